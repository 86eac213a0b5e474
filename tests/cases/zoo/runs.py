"""Private runs of the zoo beside an oracle that clips example by example.

The oracle (`oracles.clipping`) knows nothing of hooks: it differentiates the loss of one example at
a time, in a copy of the module that was made before it became private.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from oracles.clipping import (
    alone,
    clipped_sum,
    flat,
    layer_sizes,
    layerwise_sum,
    normalised_sum,
    together,
    trained,
)
from torch import Tensor, nn

from cases.zoo.case import Batch, Case, batch_of, seeded
from mmcc import strategies
from mmcc.sampling import Poisson
from mmcc.training import make_private
from mmcc.training._clipping import STABILISER

GAMMA = 0.1

STEPS = 3
SIGMA = 1e-9
RATE = 0.05


def gradients(case: Case, module: nn.Module, batch: Batch, seed: int) -> list[Tensor]:
    if case.random:
        return together(case.losses, module, batch, seed)
    return alone(case.losses, module, batch)


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
    grad_sample_mode: str | None = None,
    *,
    clipping: str = "flat",
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
        grad_sample_mode=grad_sample_mode,
        clipping=clipping,
        gamma=GAMMA if clipping == "automatic" else None,
        **{"seed": 11, **options},
    )
    expected = optimizer.mechanism.expected_batch_size
    for place, batch in enumerate(loader):
        _copy(module, plain)
        rows = gradients(case, plain, batch, place)
        truth = summed(clipping, rows, clip, layer_sizes(plain)) / expected
        optimizer.zero_grad()
        torch.manual_seed(place)
        case.losses(private, batch).mean().backward()
        before_step(module)
        optimizer.step()
        found = flat([p.grad for p in optimizer.param_groups[0]["params"]])
        yield Step(len(batch["labels"]), found, truth)


def summed(clipping: str, rows: list[Tensor], clip: float, layers: dict[str, int]) -> Tensor:
    """What the law of clipping makes of each example's gradient, added up."""
    if clipping == "automatic":
        return normalised_sum(rows, clip, GAMMA)
    if clipping == "per-layer":
        share = clip / len(layers) ** 0.5
        return layerwise_sum(rows, [*layers.values()], [share] * len(layers), STABILISER)
    return clipped_sum(rows, clip, STABILISER)


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
