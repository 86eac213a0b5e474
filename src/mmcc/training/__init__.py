"""Training with exactly the mechanism that was accounted."""

from mmcc.training.noise import NoiseStream

__all__ = ("NoiseStream",)
