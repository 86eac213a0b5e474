"""Training with exactly the mechanism that was accounted."""
