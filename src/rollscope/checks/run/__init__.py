"""What goes wrong over the steps of a run? One check a file."""
