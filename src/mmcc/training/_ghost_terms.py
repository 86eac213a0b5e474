r"""What per-example gradients consist of: their norms and weighted sums, without forming rows.

In: a layer's input and the gradients of its output, for a batch.  Out: of the per-example gradients
of a parameter, the squared norms, any single one, and sums with a factor for each example.
Rounding: in single precision at least; sums of products, most of which may cancel, in double.

Example i adds to the gradient of a parameter

- `Outer`: sum_t l_it r_it^T, as in linear layers (t runs over the positions of a sequence); with
  Gram matrices, |sum_t l_t r_t^T|^2 = sum_st <l_s, l_t> <r_s, r_t>;
- `Gather`: sum_t e_{k_it} v_it^T, as in embeddings: rows v are added at indices k;
- `Convolved`: an outer product over the windows that a kernel sees, laid out only when needed;
- `Rows`: the gradient itself, where it is no larger than its parts or has no such form.

A parameter that is used several times has several terms (`mmcc.training._ghost_sums`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import grad

from mmcc.training._example_gradients import summed_type
from mmcc.training._lengths import squared_lengths

BLOCK = 2**24
"""Numbers that are processed at once, where that can be chosen."""
WITHOUT_DOUBLES = ("mps",)
"""Devices without double precision: what needs it is computed on the CPU."""
Shape = tuple[int, ...]


class Term(ABC):
    """A part of the per-example gradients of one parameter, in one of several forms."""

    shape: Shape
    """The parameter's shape."""

    @property
    @abstractmethod
    def _found(self) -> Tensor:
        """The per-example gradients that the backward pass found."""

    @property
    def count(self) -> int:
        """Examples."""
        return len(self._found)

    @property
    def dtype(self) -> torch.dtype:
        """The type in which gradients were found."""
        return self._found.dtype

    @property
    def _device(self) -> torch.device:
        return self._found.device

    @abstractmethod
    def squares(self, *, alone: bool = True) -> Tensor:
        """Squared norms; in double precision, perhaps on the CPU, unless the term is `alone`."""

    @abstractmethod
    def sizes(self) -> Tensor:
        """At least the sum of the norms of the pieces that are added up, for each example."""

    @property
    def exact(self) -> bool:
        """Whether squares have no larger rounding errors than those of rows."""
        return True

    def alive(self) -> Tensor:
        """The examples that have anything to add, as a mask."""
        return self.sizes() > 0

    @abstractmethod
    def add(self, total: Tensor, factors: Tensor) -> None:
        """Add the weighted sum over the examples to a total."""

    @abstractmethod
    def take(self, members: Tensor) -> Term:
        """The term of some of the examples."""

    @abstractmethod
    def join(self, others: Sequence[Term]) -> Term:
        """Join others of the same kind to this one: each example's gradients are added up."""

    def row(self, member: int) -> Tensor:
        """One example's gradient."""
        one = self.take(torch.tensor([member]))
        total = torch.zeros(self.shape, dtype=summed_type(self.dtype), device=self._device)
        one.add(total, total.new_ones(1))
        return total

    def rows(self) -> Rows:
        """All examples' gradients."""
        return Rows(torch.stack([self.row(member) for member in range(self.count)]))


@dataclass(frozen=True)
class Rows(Term):
    """The per-example gradients themselves."""

    values: Tensor
    """The gradients, with the examples in the first dimension."""

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        return tuple(self.values.shape[1:])

    @property
    def _found(self) -> Tensor:
        return self.values

    def squares(self, *, alone: bool = True) -> Tensor:
        found = squared_lengths(self._flat(), summed_type(self.dtype))
        return found if alone else in_double(found)

    def sizes(self) -> Tensor:
        return self.squares().sqrt()

    def add(self, total: Tensor, factors: Tensor) -> None:
        total.view(-1).addmv_(self._flat().to(total).mT, factors.to(total))

    def take(self, members: Tensor) -> Rows:
        return Rows(self.values[members.to(self._device)])

    def join(self, others: Sequence[Term]) -> Rows:
        total = self.values.to(summed_type(self.dtype))
        for other in others:
            assert isinstance(other, Rows)
            total = total + other.values
        return Rows(total)

    def row(self, member: int) -> Tensor:
        return self.values[member].to(summed_type(self.dtype))

    def rows(self) -> Rows:
        return self

    def _flat(self) -> Tensor:
        return self.values.reshape(self.count, -1)


@dataclass(frozen=True)
class Outer(Term):
    """Sums of outer products, in groups that are consecutive parts of the parameter."""

    left: Tensor
    """The left factors, of shape (examples, groups, pieces, p)."""
    right: Tensor
    """The right factors, of shape (examples, groups, pieces, q)."""
    shape: Shape

    @property
    def _found(self) -> Tensor:
        narrow = self.right.dtype.itemsize < self.left.dtype.itemsize
        return self.right if narrow else self.left

    @property
    def _kind(self) -> torch.dtype:
        return summed_type(torch.promote_types(self.left.dtype, self.right.dtype))

    def squares(self, *, alone: bool = True) -> Tensor:
        groups, pieces, p = self.left.shape[1:]
        q = self.right.shape[3]
        if alone and self.exact:
            kind, each, work = self._kind, p * q, _by_rows
        else:
            kind, each, work = torch.float64, pieces * (2 * pieces + p + q), _by_gram
        parts = [
            work(converted(self.left[block], kind), converted(self.right[block], kind))
            for block in _blocks(self.count, groups * each)
        ]
        return torch.cat(parts)

    @property
    def exact(self) -> bool:
        """Whether rows are less work than Gram matrices."""
        pieces, p = self.left.shape[2:]
        q = self.right.shape[3]
        return pieces * (p + q) > p * q

    def alive(self) -> Tensor:
        return self.left.flatten(1).any(dim=1) & self.right.flatten(1).any(dim=1)

    def sizes(self) -> Tensor:
        """Sizes that include what may have been lost to underflow."""
        smallest = torch.finfo(self._kind).tiny
        left, right = (
            torch.linalg.vector_norm(side, dim=3, dtype=self._kind).square()
            + smallest * side.shape[3]
            for side in (self.left, self.right)
        )
        found: Tensor = (left.sqrt() * right.sqrt()).sum(dim=(1, 2))
        return found

    def add(self, total: Tensor, factors: Tensor) -> None:
        left, right = self.left.to(total), self.right.to(total)
        groups, _, p = left.shape[1:]
        q = right.shape[3]
        weights = factors.to(total).view(-1, 1, 1, 1)
        if p < q:
            left = left * weights
        else:
            right = right * weights
        if groups == 1:
            total.view(p, q).addmm_(left.reshape(-1, p).mT, right.reshape(-1, q))
            return
        left, right = (side.transpose(0, 1).flatten(1, 2) for side in (left, right))
        total.view(groups, p, q).baddbmm_(left.mT, right)

    def rows(self) -> Rows:
        parts = [
            self.left[block].to(self._kind).mT @ self.right[block].to(self._kind)
            for block in _blocks(self.count, math.prod(self.shape))
        ]
        return Rows(torch.cat(parts).view(self.count, *self.shape))

    def take(self, members: Tensor) -> Outer:
        members = members.to(self._device)
        return Outer(self.left[members], self.right[members], self.shape)

    def join(self, others: Sequence[Term]) -> Outer:
        outers = [self, *(other for other in others if isinstance(other, Outer))]
        left = torch.cat([outer.left for outer in outers], dim=2)
        return Outer(left, torch.cat([outer.right for outer in outers], dim=2), self.shape)


def _by_gram(left: Tensor, right: Tensor) -> Tensor:
    if left.shape[2] == 1:
        parts = left.square().sum(dim=3) * right.square().sum(dim=3)
        return parts.sum(dim=(1, 2))
    products = (left @ left.mT) * (right @ right.mT)
    return products.sum(dim=(1, 2, 3)).clamp(min=0)


def _by_rows(left: Tensor, right: Tensor) -> Tensor:
    return (left.mT @ right).square().sum(dim=(1, 2, 3))


@dataclass(frozen=True)
class Gather(Term):
    """Vectors that are added to the rows of a table that an index names."""

    index: Tensor
    """The rows of the table, of shape (examples, pieces)."""
    values: Tensor
    """The vectors, of shape (examples, pieces, width)."""
    shape: Shape

    @property
    def _found(self) -> Tensor:
        return self.values

    def squares(self, *, alone: bool = True) -> Tensor:
        """Vectors of one example that go to the same row of the table are added up first."""
        kind = summed_type(self.dtype) if alone else torch.float64
        values = converted(self.values, kind)
        device = values.device
        examples = torch.arange(self.count, device=device)[:, None]
        places = (examples * self.shape[0] + self.index.to(device)).flatten()
        places, where = torch.unique(places, return_inverse=True)
        sums = torch.zeros(len(places), self.shape[1], dtype=kind, device=device)
        sums.index_add_(0, where, values.flatten(0, 1))
        found = torch.zeros(self.count, dtype=kind, device=device)
        owners = places.div(self.shape[0], rounding_mode="floor")
        return found.index_add_(0, owners, sums.square().sum(dim=1))

    def sizes(self) -> Tensor:
        kind = summed_type(self.dtype)
        norms: Tensor = torch.linalg.vector_norm(self.values, dim=2, dtype=kind)
        return norms.sum(dim=1)

    def add(self, total: Tensor, factors: Tensor) -> None:
        weighted = self.values.to(total) * factors.to(total).view(-1, 1, 1)
        total.index_add_(0, self.index.flatten(), weighted.flatten(0, 1))

    def take(self, members: Tensor) -> Gather:
        members = members.to(self._device)
        return Gather(self.index[members], self.values[members], self.shape)

    def join(self, others: Sequence[Term]) -> Gather:
        gathers = [self, *(other for other in others if isinstance(other, Gather))]
        index = torch.cat([gather.index for gather in gathers], dim=1)
        return Gather(index, torch.cat([gather.values for gather in gathers], dim=1), self.shape)


@dataclass(frozen=True)
class Convolved(Term):
    """Outer products of a convolution: of its outputs' gradients and the windows they saw."""

    padded: Tensor
    """The input of the convolution, with its padding: (examples, channels, ...)."""
    outputs: Tensor
    """Gradients of the output: (examples, channels, ...)."""
    shape: Shape
    stride: Shape
    dilation: Shape
    groups: int

    @property
    def _found(self) -> Tensor:
        return self.outputs

    def squares(self, *, alone: bool = True) -> Tensor:
        return torch.cat([part.squares(alone=alone) for part in self._outers()])

    def sizes(self) -> Tensor:
        return torch.cat([part.sizes() for part in self._outers()])

    def _outers(self) -> Iterator[Outer]:
        """The windows laid out, block of examples by block."""
        windows = self.outputs[0, 0].numel() * self.padded.shape[1] * math.prod(self.shape[2:])
        for block in _blocks(self.count, windows):
            yield self._of(block).outer()

    @property
    def exact(self) -> bool:
        groups, pieces = self.groups, self.outputs[0, 0].numel()
        p, q = self.shape[0] // groups, math.prod(self.shape[1:])
        return pieces * (p + q) > p * q

    def alive(self) -> Tensor:
        return self.outputs.flatten(1).any(dim=1) & self.padded.flatten(1).any(dim=1)

    def add(self, total: Tensor, factors: Tensor) -> None:
        weighted = self.outputs.to(total) * factors.to(total).view(-1, *self._ones)
        dimensions = len(self.stride)
        weight_of = (grad.conv1d_weight, grad.conv2d_weight, grad.conv3d_weight)[dimensions - 1]
        total += weight_of(  # type: ignore[no-untyped-call]
            self.padded.to(total),
            self.shape,
            weighted,
            stride=self.stride,
            padding=(0,) * dimensions,
            dilation=self.dilation,
            groups=self.groups,
        )

    def take(self, members: Tensor) -> Convolved:
        return self._of(members.to(self._device))

    def join(self, others: Sequence[Term]) -> Outer:
        outers = [other.outer() for other in others if isinstance(other, Convolved)]
        return self.outer().join(outers)

    def rows(self) -> Rows:
        return Rows(torch.cat([part.rows().values for part in self._outers()]))

    def outer(self) -> Outer:
        """The same gradients as an `Outer`, with the windows laid out."""
        windows = self.padded
        for place, (width, step, apart) in enumerate(
            zip(self.shape[2:], self.stride, self.dilation, strict=True), start=2
        ):
            windows = windows.unfold(place, (width - 1) * apart + 1, step)[..., ::apart]
        # (examples, channels, places, widths) -> (examples, groups, pieces, channels and widths)
        spread = len(self.stride)
        windows = _grouped(windows, self.groups)
        order = (0, 1, *range(3, 3 + spread), 2, *range(3 + spread, 3 + 2 * spread))
        windows = windows.permute(order).flatten(2, 1 + spread).flatten(3)
        outputs = _grouped(self.outputs, self.groups).flatten(3).mT
        return Outer(outputs, windows, self.shape)

    @property
    def _ones(self) -> Shape:
        return (1,) * (self.outputs.dim() - 1)

    def _of(self, members: Tensor | slice) -> Convolved:
        return Convolved(
            self.padded[members],
            self.outputs[members],
            self.shape,
            self.stride,
            self.dilation,
            self.groups,
        )


def converted(tensor: Tensor, kind: torch.dtype) -> Tensor:
    """The tensor in a type, on the CPU if the device does not have that type."""
    lacking = kind == torch.float64 and tensor.device.type in WITHOUT_DOUBLES
    return (tensor.cpu() if lacking else tensor).to(kind)


def in_double(tensor: Tensor) -> Tensor:
    """The tensor in double precision."""
    return converted(tensor, torch.float64)


def _grouped(tensor: Tensor, groups: int) -> Tensor:
    """The tensor with its channels in groups."""
    return tensor.reshape(len(tensor), groups, -1, *tensor.shape[2:])


def _blocks(count: int, each: int) -> Iterator[slice]:
    """Slices of `count` examples with `each` numbers per example, about `BLOCK` numbers a slice."""
    size = max(1, BLOCK // max(each, 1))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
