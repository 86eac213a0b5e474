"""Mixtures of Gaussians beyond matrices: groups, batches of a fixed size, the last iterate."""

from mmcc.mixtures._dpsgd import fixed_batches, group_privacy, last_iterate

__all__ = ("fixed_batches", "group_privacy", "last_iterate")
