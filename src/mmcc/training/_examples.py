"""Which dimension of a tensor holds the examples.

In: the arguments of a module, and its outputs.  Out: the same for some of the examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Take = Callable[[Arguments, int, Sequence[int]], Arguments]


def is_plain_object(value: Any) -> bool:
    """Whether an object only holds values in attributes: a record, a result."""
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, type | Tensor | nn.Module | ModuleType)
        and not callable(value)
    )


def tensors_of(inputs: Any, depth: int = 4) -> Iterator[Tensor]:
    """The tensors in arguments or outputs, in order."""
    for entry in tree_leaves(inputs):
        if isinstance(entry, Tensor):
            yield entry
        elif depth and isinstance(entry, Mapping):  # one unknown to torch, such as a BatchEncoding
            yield from tensors_of(list(entry.values()), depth - 1)
        elif depth and is_plain_object(entry):
            yield from tensors_of(list(vars(entry).values()), depth - 1)


def first_tensor(inputs: Any) -> Tensor | None:
    """The first tensor among the arguments that has a dimension for the examples."""
    return next((tensor for tensor in tensors_of(inputs) if tensor.dim()), None)


@dataclass(frozen=True)
class Layout:
    """Where an output has its examples: a dimension, with `each` consecutive rows per example."""

    dimension: int = 0
    each: int = 1
    by_example: bool = True

    def of(self, output: Tensor, count: int) -> Tensor:
        """The output with the examples in the first dimension."""
        first = output.movedim(self.dimension, 0)
        if self.each == 1:
            return first
        if self.by_example:
            return first.reshape(count, self.each, *first.shape[1:])
        return first.reshape(self.each, count, *first.shape[1:]).transpose(0, 1)


class Rowless(Enum):
    """Kinds of outputs without rows for examples."""

    LOSS = "one number"
    MEETING = "rows that change with the other examples"
    UNKNOWN = "something else that depends on the examples"


LOSS, MEETING, UNKNOWN = Rowless


def is_square(tensor: Tensor, count: int) -> bool:
    """Whether a tensor has a row and a column for each example."""
    return tuple(tensor.shape[:2]) == (count, count)


def layouts(output: Tensor, count: int) -> Iterator[Layout]:
    """The ways in which an output might hold its examples: in one dimension, alone or combined."""
    for dimension in range(output.dim()):
        each, over = divmod(output.shape[dimension], count)
        if each and not over:
            yield Layout(dimension, each)
            if each > 1:
                yield Layout(dimension, each, by_example=False)


def fits(some: Tensor, pair: Tensor, dimension: int, each: int) -> bool:
    """Whether an output for two examples has the shape of one for some, apart from the examples."""
    shape = list(some.shape)
    shape[dimension] = 2 * each
    return list(pair.shape) == shape


def take_rows(arguments: Arguments, count: int, members: Sequence[int]) -> Arguments:
    """The arguments of some examples: the rows of every tensor that has one for each example."""

    def taken(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() and len(value) == count:
            return value[list(members)]
        if hasattr(value, "items"):  # such as a BatchEncoding, which torch does not look into
            return type(value)({name: taken(part) for name, part in value.items()})
        return value

    args, kwargs = tree_map(taken, arguments)
    return args, kwargs


def take_squares(arguments: Arguments, count: int, members: Sequence[int]) -> Arguments:
    """Like `take_rows`; of tensors with a row and a column for each example, the columns too."""
    first = first_tensor(arguments)

    def taken(value: Any) -> Any:
        square = isinstance(value, Tensor) and value is not first and is_square(value, count)
        return value[:, list(members)] if square else value

    args, kwargs = take_rows(tree_map(taken, arguments), count, members)
    return args, kwargs


def take_first(arguments: Arguments, count: int, members: Sequence[int]) -> Arguments:
    """The rows of the first tensor alone."""
    first = first_tensor(arguments)
    assert first is not None
    assert len(first) == count

    def taken(value: Any) -> Any:
        return first[list(members)] if value is first else value

    args, kwargs = tree_map(taken, arguments)
    return args, kwargs
