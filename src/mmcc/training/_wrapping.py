"""Wrapping the module of a run so that it makes per-example gradients.

In: a module and `grad_sample_mode`.  Out: the wrapped module.
"""

from __future__ import annotations

from opacus.layers.dp_rnn import DPRNNBase
from torch import nn

from mmcc.training._ghost import Ghost
from mmcc.training._per_example import ExpandedWeights, Hooked, Watched
from mmcc.training._trainable import EXPANDED, FUNCTORCH, GHOST, untrainable
from mmcc.training._watch import Watch, refuse_packed


def wrap(module: nn.Module, mode: str, reduction: str, watch: Watch) -> Watched:
    """The module, wrapped so that it makes per-example gradients."""
    for layer in module.modules():
        if isinstance(layer, DPRNNBase):
            layer.register_forward_pre_hook(refuse_packed)
    try:
        if mode == GHOST:
            wrapped: Watched = Ghost(module, reduction, watch)
        elif mode == EXPANDED:
            wrapped = ExpandedWeights(module, reduction, watch)
        else:
            wrapped = Hooked(module, reduction, watch, functorch=mode == FUNCTORCH)
    except NotImplementedError as problem:
        raise untrainable("this module", problem) from None
    wrapped.guard()
    return wrapped
