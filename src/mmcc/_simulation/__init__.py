"""Two-sided Monte Carlo estimates of epsilon: intervals with a confidence, never proofs."""
