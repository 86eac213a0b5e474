"""The reveal bound for trees: counts are revealed from the roots down, or in leaf order."""

from __future__ import annotations

from mmcc.accounting._bounds.reveal.trees.curves import bound_delta, bound_epsilon
from mmcc.accounting._bounds.reveal.trees.forest import refusal

__all__ = ("bound_delta", "bound_epsilon", "refusal")
