"""Losses in which examples do not meet.

In: scores and labels of a batch.  Out: one loss for each example, which depends on it alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mmcc.errors import ParameterError

IGNORED = -100
"""The label of what does not count, such as padding: the usual one of torch and Hugging Face."""


def per_example_loss(logits: Tensor, labels: Tensor, *, ignore_index: int = IGNORED) -> Tensor:
    """The cross-entropy of each example: the mean over its own labels, one number an example.

    `logits` has the scores of the classes in its last dimension and `labels` has its other
    dimensions, the examples first.  What has the label `ignore_index` does not count, and an
    example without any other has the loss 0.  Train with the mean of what is returned, or with its
    sum and `loss_reduction="sum"`.  The usual mean over all labels of a batch divides each
    example's loss by how many labels the *others* have, and so clipping does not bound what one
    of them does.
    """
    if labels.dim() < 1 or logits.shape[:-1] != labels.shape:
        raise ParameterError(
            f"logits of the shape {tuple(logits.shape)} do not fit labels of the shape "
            f"{tuple(labels.shape)}: the labels' dimensions come first, the examples before all, "
            "and the classes last."
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
