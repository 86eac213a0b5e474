"""A small data set and models for the tests of private training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from mmcc import strategies
from mmcc.sampling import Poisson
from mmcc.training import make_private

EXAMPLES, FEATURES, CLASSES = 30, 4, 3
STEPS = 7


def data(examples: int = EXAMPLES) -> TensorDataset:
    generator = np.random.default_rng(20)
    inputs = torch.from_numpy(generator.normal(size=(examples, FEATURES)))
    return TensorDataset(inputs, torch.from_numpy(generator.integers(CLASSES, size=examples)))


def linear() -> nn.Module:
    torch.manual_seed(3)
    return nn.Linear(FEATURES, CLASSES).double()


def private(
    module: nn.Module | None = None,
    dataset: Any = None,
    *,
    rate: float = 0.5,
    momentum: float = 0.0,
    **options: Any,
) -> tuple[Any, Any, Any]:
    """make_private with small defaults."""
    module = linear() if module is None else module
    optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=momentum)
    given = {
        "strategy": strategies.identity(STEPS),
        "sampling": Poisson(0.3),
        "max_grad_norm": 1.0,
        "delta": 1e-5,
        "seed": 11,
        **options,
    }
    if "sigma" not in given and "epsilon" not in given:
        given["sigma"] = 1.0
    return make_private(module, optimizer, data() if dataset is None else dataset, **given)


def looked_at(loader: Any) -> list[Any]:
    """All batches of an epoch, none of which is used."""
    batches = iter(loader)
    return [next(batches) for _ in range(len(loader))]


def backward(module: Any, batch: Any, reduction: str = "mean") -> None:
    inputs, labels = batch
    nn.functional.cross_entropy(module(inputs), labels, reduction=reduction).backward()


def train(module: Any, optimizer: Any, loader: Any, reduction: str = "mean") -> None:
    """From wherever the run is to the end of its epoch."""
    for batch in loader:
        optimizer.zero_grad()
        backward(module, batch, reduction)
        optimizer.step()


def parameters(module: Any) -> list[torch.Tensor]:
    return [p.detach().clone() for p in module.parameters()]
