"""One consistent view of everything in a store, whether live, sealed or merged."""
