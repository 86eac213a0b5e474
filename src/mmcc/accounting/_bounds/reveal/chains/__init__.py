"""Toeplitz strategies: dominated by a Gaussian chain, revealed column by column."""
