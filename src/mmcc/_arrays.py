"""Array types, and read-only ownership of arrays held by frozen objects."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmcc.errors import StrategyError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
ComplexArray = NDArray[np.complex128]


def own_arrays(owner: object, *names: str) -> None:
    """Replace the named attributes of a frozen object by read-only float copies."""
    for name in names:
        array = np.array(getattr(owner, name), dtype=np.float64)
        array.setflags(write=False)
        object.__setattr__(owner, name, array)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, marked read-only."""
    array.setflags(write=False)
    return array


def real_array(what: str, values: ArrayLike) -> FloatArray:
    """The values as floats; an error unless they are a rectangular array of real numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "fiubO":
            return np.asarray(array, dtype=np.float64)
        problem = f"it holds {array.dtype} values"
    except (TypeError, ValueError, OverflowError) as error:
        problem = str(error)
    raise StrategyError(f"{what} must be a rectangular array of real numbers: {problem}.")
