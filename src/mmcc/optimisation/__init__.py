"""Strategies made for one amplified guarantee: shapes, the noise they need, the search."""
