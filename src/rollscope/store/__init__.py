"""How records lie on disk, are written by many and read by many. See README.md."""
