"""Independent truth.  Nothing here imports mmcc, nor anything else of the tests."""
