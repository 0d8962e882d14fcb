"""Is the record right? One check a file."""
