"""Toeplitz strategies under random allocation: a Gaussian chain, revealed one epoch at a time."""
