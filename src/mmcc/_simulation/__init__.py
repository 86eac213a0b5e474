"""Simulation: estimates with confidence intervals, which are no proofs, and verified guarantees."""
