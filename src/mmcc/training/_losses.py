"""Losses in which examples do not interact.

In: scores and labels of a batch.  Out: one loss for each example, which depends on it alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mmcc.errors import ParameterError

IGNORED = -100
"""The label of positions that do not count, such as padding: torch's and Hugging Face's default."""


def per_example_loss(logits: Tensor, labels: Tensor, *, ignore_index: int = IGNORED) -> Tensor:
    """The cross-entropy of each example: the mean over its own labels, one number an example.

    `logits` has the scores of the classes in its last dimension, and `labels` has its other
    dimensions, the examples first.  Positions labelled `ignore_index` do not count, and an example
    with no other labels has the loss 0.  Train with the mean of what is returned, or with its sum
    and `loss_reduction="sum"`.  The usual mean over all labels of a batch divides each example's
    loss by a number that depends on how many labels the *others* have, so clipping would not bound
    what one of them does.
    """
    if labels.dim() < 1 or logits.shape[:-1] != labels.shape:
        raise ParameterError(
            f"logits of shape {tuple(logits.shape)} do not fit labels of shape "
            f"{tuple(labels.shape)}: logits need the labels' dimensions, the examples first, and "
            "then one dimension for the classes."
        )
    losses = functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=ignore_index
    ).view_as(labels)
    counting = labels != ignore_index
    rest = tuple(range(1, labels.dim()))
    if rest:
        total = torch.where(counting, losses, 0.0).sum(dim=rest)
        losses = total / counting.sum(dim=rest).clamp(min=1)
    return losses
