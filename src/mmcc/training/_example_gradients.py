"""Per-example gradients of a pass, as far as clipping needs them: norms and weighted sums.

In: a parameter.  Out: the squared norms of its per-example gradients; their sum with a factor for
each example; one of them.
Rounding: squares and sums are in single precision at least, whatever the parameters' type: what an
example adds is bounded by its norm, and a coarsely rounded sum would not be.

There are two kinds: `KeptRows` has every row, as Opacus leaves them at `p.grad_sample`;
`mmcc.training._ghost` has only what rows are made of.  Under sharding a process would hold a part
of every row, and the processes sum squares before there are factors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mmcc.training._gradient_agreement import wrong_count
from mmcc.training._lengths import squared_lengths
from mmcc.training._run import RunError

LEFT = ("activations", "max_batch_len")
"""Attributes that Opacus keeps at a layer between a forward pass and its backward pass."""


class ExampleGradients(ABC):
    """The per-example gradients that the last backward pass found."""

    leaves_ordinary: bool
    """Whether every backward pass leaves ordinary gradients too, or only one that is inspected."""

    @abstractmethod
    def clear(self) -> None:
        """Forget everything, including passes in progress."""

    @abstractmethod
    def forget(self, parameters: Iterable[Tensor]) -> None:
        """Forget the gradients of parameters."""

    @abstractmethod
    def counts(self, parameter: Tensor) -> list[int]:
        """How many examples have gradients; one number for each backward pass."""

    @abstractmethod
    def dtypes(self) -> set[torch.dtype]:
        """The types in which gradients were found."""

    @abstractmethod
    def squares(self, parameter: Tensor) -> Tensor | None:
        """Squared norms, one for each example; None without gradients."""

    @abstractmethod
    def row(self, parameter: Tensor, member: int) -> Tensor | None:
        """The gradient of one example."""

    @abstractmethod
    def add(self, total: Tensor, parameter: Tensor, factors: Tensor, counted: Tensor) -> None:
        """Add every example's gradient, times its factor, to a total of the parameter's shape.

        Gradients that are not `counted` are left out, whatever their values.
        """

    def total(self, parameter: Tensor, factors: Tensor) -> Tensor | None:
        """The sum of all examples' gradients, each times its factor."""
        if not self.counts(parameter):
            return None
        found = torch.zeros_like(parameter, dtype=summed_type(parameter.dtype)).detach()
        self.add(found, parameter, factors, torch.ones_like(factors, dtype=torch.bool))
        return found

    def check_count(self, parameter: Tensor, name: str, examples: int) -> None:
        """Refuse gradients that are not one for each example, or that come from several passes."""
        counts = self.counts(parameter)
        if counts not in ([], [examples]):
            raise RunError(wrong_count(name, counts if len(counts) > 1 else counts[0], examples))


class KeptRows(ExampleGradients):
    """Every row of every parameter's gradients."""

    leaves_ordinary = True

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters: list[Any] = list(parameters)
        self.hooked: Sequence[nn.Module] = ()
        """Layers at which Opacus may leave attributes."""

    def clear(self) -> None:
        for parameter in self._parameters:
            parameter.grad_sample = None
            if hasattr(parameter, "_forward_counter"):
                parameter._forward_counter = 0
            parameter.__dict__.pop("_current_grad_sample", None)
        for layer in self.hooked:
            for name in LEFT:
                layer.__dict__.pop(name, None)

    def forget(self, parameters: Iterable[Any]) -> None:
        for parameter in parameters:
            parameter.grad_sample = None

    def counts(self, parameter: Tensor) -> list[int]:
        return [len(sample) for sample in _samples(parameter)]

    def dtypes(self) -> set[torch.dtype]:
        return {sample.dtype for p in self._parameters for sample in _samples(p)}

    def squares(self, parameter: Tensor) -> Tensor | None:
        sample = _joined(parameter)
        if sample is None:
            return None
        rows = sample.flatten(1) if sample.dim() > 1 else sample[:, None]
        return squared_lengths(rows, summed_type(rows.dtype))

    def row(self, parameter: Tensor, member: int) -> Tensor | None:
        sample = _joined(parameter)
        return None if sample is None else sample[member]

    def add(self, total: Tensor, parameter: Tensor, factors: Tensor, counted: Tensor) -> None:
        sample = _joined(parameter)
        if sample is None:
            return
        if not counted.all():
            left_out = ~counted.to(sample.device)
            sample = sample.masked_fill(left_out.view(-1, *(1,) * (sample.dim() - 1)), 0.0)
            factors = factors.masked_fill(~counted, 0.0)
        with full_precision(total.device):
            total += torch.tensordot(factors.to(total), sample.to(total), dims=1)


def summed_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which gradients of a given type are summed."""
    return torch.promote_types(dtype, torch.float32)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Matrix products in the precision of their factors: not in bfloat16 or TensorFloat-32."""
    before = torch.get_float32_matmul_precision()
    convolutions = torch.backends.cudnn.allow_tf32
    try:
        if before != "highest":
            torch.set_float32_matmul_precision("highest")
        if device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = False
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        if before != "highest":
            torch.set_float32_matmul_precision(before)
        if device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = convolutions


def _samples(parameter: Tensor) -> list[Tensor]:
    """The gradients that backward passes left, one after another."""
    found: Tensor | list[Tensor] | None = getattr(parameter, "grad_sample", None)
    if found is None:
        return []
    return [sample.detach() for sample in (found if isinstance(found, list) else [found])]


def _joined(parameter: Tensor) -> Tensor | None:
    samples = _samples(parameter)
    if not samples:
        return None
    return samples[0] if len(samples) == 1 else torch.cat(samples)
