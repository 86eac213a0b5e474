"""Gradients example by example with plain autograd, and their clipped sum; nothing from mmcc."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]
Losses = Callable[[nn.Module, Batch], Tensor]
"""Of each example of a batch."""


def trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().to_dense().flatten().double() for tensor in tensors])


def gradient(loss: Tensor, module: nn.Module, *, again: bool = False) -> Tensor:
    """Over all trained parameters; one that the loss does not use has the gradient zero."""
    module.zero_grad()
    loss.backward(retain_graph=again)
    return flat([torch.zeros_like(p) if p.grad is None else p.grad for p in trained(module)])


def alone(losses: Losses, module: nn.Module, batch: Batch) -> list[Tensor]:
    """Each example's gradient, from a batch of its own."""
    count = len(batch["labels"])
    rows = [{name: value[i : i + 1] for name, value in batch.items()} for i in range(count)]
    return [gradient(losses(module, row)[0], module) for row in rows]


def together(losses: Losses, module: nn.Module, batch: Batch, seed: int) -> list[Tensor]:
    """Each example's gradient, from the same random numbers as a pass over the batch."""
    torch.manual_seed(seed)
    return [gradient(loss, module, again=True) for loss in losses(module, batch)]


def clipped_sum(rows: list[Tensor], clip: float, stabiliser: float) -> Tensor:
    """Each row scaled down to the norm `clip`; `stabiliser` is what opacus adds to its norm."""
    return sum(
        (row * min(1.0, clip / (float(row.norm()) + stabiliser)) for row in rows),
        start=torch.zeros_like(rows[0]),
    )


def normalised_sum(rows: list[Tensor], clip: float, gamma: float) -> Tensor:
    """Each row divided by its norm plus gamma, times the norm `clip`."""
    return sum(
        (row * (clip / (float(row.norm()) + gamma)) for row in rows),
        start=torch.zeros_like(rows[0]),
    )


def layerwise_sum(
    rows: list[Tensor], sizes: list[int], clips: list[float], stabiliser: float
) -> Tensor:
    """Each part of each row, parts being so long, scaled down to a norm of its own."""
    parts = zip(*(row.split(sizes) for row in rows), strict=True)
    return torch.cat(
        [clipped_sum(list(own), clip, stabiliser) for own, clip in zip(parts, clips, strict=True)]
    )


def layer_sizes(module: nn.Module) -> dict[str, int]:
    """How many numbers each layer has of its own that are trained, in the order of parameters."""
    found: dict[str, int] = {}
    for name, p in module.named_parameters():
        if p.requires_grad:
            layer = name.rpartition(".")[0]
            found[layer] = found.get(layer, 0) + p.numel()
    return found
