"""What is odd about what the policy did? One check a file."""
