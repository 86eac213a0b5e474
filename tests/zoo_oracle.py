"""Clipping example by example with plain autograd, and a private run beside it.

The oracle knows nothing of hooks: it differentiates the loss of one example at a time, in a copy of
the module that was made before it became private.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from zoo_case import Batch, Case, batch_of, seeded

from mmcc import strategies
from mmcc.sampling import Poisson
from mmcc.training import make_private
from mmcc.training._optimizer import STABILISER

STEPS = 3
SIGMA = 1e-9
RATE = 0.05


def trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().to_dense().flatten().double() for tensor in tensors])


def gradient(loss: Tensor, module: nn.Module, *, again: bool = False) -> Tensor:
    """Over all trained parameters; one that the loss does not use has the gradient zero."""
    module.zero_grad()
    loss.backward(retain_graph=again)
    return flat([torch.zeros_like(p) if p.grad is None else p.grad for p in trained(module)])


def alone(case: Case, module: nn.Module, batch: Batch) -> list[Tensor]:
    """Each example's gradient, from a batch of its own."""
    count = len(batch["labels"])
    rows = [{name: value[i : i + 1] for name, value in batch.items()} for i in range(count)]
    return [gradient(case.losses(module, row)[0], module) for row in rows]


def together(case: Case, module: nn.Module, batch: Batch, seed: int) -> list[Tensor]:
    """Each example's gradient, from the same random numbers as a pass over the batch."""
    torch.manual_seed(seed)
    losses = case.losses(module, batch)
    return [gradient(loss, module, again=True) for loss in losses]


def gradients(case: Case, module: nn.Module, batch: Batch, seed: int) -> list[Tensor]:
    if case.random:
        return together(case, module, batch, seed)
    return alone(case, module, batch)


def clipped_sum(rows: list[Tensor], clip: float) -> Tensor:
    return sum(
        (row * min(1.0, clip / (float(row.norm()) + STABILISER)) for row in rows),
        start=torch.zeros_like(rows[0]),
    )


def clip_norm(case: Case, module: nn.Module) -> float:
    """The median norm: about half of the examples are clipped."""
    rows = gradients(case, module, batch_of(case.data()), 0)
    return float(torch.stack(rows).norm(dim=1).median())


@dataclass(frozen=True)
class Step:
    """What a step released, and what it should have."""

    size: int
    found: Tensor
    truth: Tensor

    @property
    def error(self) -> float:
        """Relative to the true gradient, over all parameters."""
        return float((self.found - self.truth).norm() / self.truth.norm())


def private_steps(
    case: Case,
    mode: str,
    *,
    steps: int = STEPS,
    before_step: Callable[[nn.Module], Any] = bool,
    **options: Any,
) -> Iterator[Step]:
    """Train a model of the zoo privately, with next to no noise, beside the oracle."""
    module = seeded(case.build, 5)
    plain = copy.deepcopy(module)
    clip = clip_norm(case, plain)
    private, optimizer, loader = make_private(
        module,
        torch.optim.SGD(trained(module), lr=RATE),
        case.data(),
        strategy=strategies.identity(steps),
        sampling=Poisson(case.rate),
        max_grad_norm=clip,
        sigma=SIGMA,
        delta=1e-5,
        grad_sample_mode=mode,
        **{"seed": 11, **options},
    )
    expected = optimizer.mechanism.expected_batch_size
    for place, batch in enumerate(loader):
        _copy(module, plain)
        truth = clipped_sum(gradients(case, plain, batch, place), clip) / expected
        optimizer.zero_grad()
        torch.manual_seed(place)
        case.losses(private, batch).mean().backward()
        before_step(module)
        optimizer.step()
        found = flat([p.grad for p in trained(module)])
        yield Step(len(batch["labels"]), found, truth)


def _copy(source: nn.Module, target: nn.Module) -> None:
    with torch.no_grad():
        for p, q in zip(source.parameters(), target.parameters(), strict=True):
            q.copy_(p)


def check_refusal(message: str, module: nn.Module) -> None:
    """One line of few words, with the name of a parameter or layer in quotes."""
    names = [*dict(module.named_parameters()), *dict(module.named_modules())]
    assert "\n" not in message
    assert message.count(". ") <= 2
    assert len(message) < 600
    assert any(f"'{name}'" in message for name in names if name), message
