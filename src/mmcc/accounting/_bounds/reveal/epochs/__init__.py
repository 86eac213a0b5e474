"""Toeplitz strategies under random allocation: a Gaussian chain, revealed an epoch at a time."""
