"""The reveal bounds: the adversary is told who took part.  Proofs: docs/theory-reveal.md."""
