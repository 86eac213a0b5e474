"""The projection bracket: exact along one direction, moments for the rest (docs/theory.md)."""
