"""What studies came to, for people."""
