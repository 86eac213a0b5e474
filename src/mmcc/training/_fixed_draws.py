"""Passes without randomness.

In: one number.  Out: contexts for passes whose result depends on the inputs alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class FixedDraws(TorchFunctionMode):
    """Every random number becomes the quantile `chance`, whichever examples are in the batch."""

    def __init__(self, chance: float) -> None:
        super().__init__()
        self.chance = chance

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        kwargs.update({"generator": None} if kwargs.get("generator") is not None else {})
        if func in _DRAWN:
            return func(*args, **kwargs).fill_(_DRAWN[func](self.chance))
        if func in _OTHERWISE:
            return _OTHERWISE[func](self.chance, func, args, kwargs)
        if func is functional.scaled_dot_product_attention and len(args) > 4:
            args = (*args[:4], 0.0, *args[5:])  # query, key, value, mask, dropout, ...
        elif func is functional.scaled_dot_product_attention:
            kwargs["dropout_p"] = 0.0
        elif func is functional.multi_head_attention_forward:
            kwargs["training"] = False
        return func(*args, **kwargs)


def _normal_quantile(chance: float) -> float:
    return float(torch.special.ndtri(torch.tensor(chance, dtype=torch.float64)))


def _whole(chance: float, func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    numbers = [value for value in args if isinstance(value, int)]
    low = kwargs.get("low", numbers[0] if len(numbers) > 1 else 0)
    high = kwargs.get("high", numbers[-1] if numbers else low + 1)
    drawn: Tensor = func(*args, **kwargs)
    return drawn.fill_(low + int(chance * (high - low)))


def _around(chance: float, func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """For `torch.normal`: means and deviations, and then perhaps a shape."""
    mean = kwargs.get("mean", args[0] if args else 0.0)
    deviation = kwargs.get("std", args[1] if len(args) > 1 else 1.0)
    drawn: Tensor = torch.zeros_like(func(*args, **kwargs))
    moved: Tensor = drawn + mean + _normal_quantile(chance) * deviation
    return moved


def _turned(_chance: float, _func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """Everyone gets a neighbour's place: examples mixed by a permutation do interact."""
    options = {name: part for name, part in kwargs.items() if name not in ("generator", "n")}
    count = args[0] if args else kwargs["n"]
    return torch.arange(count, **options).roll(1)


def _sorted(_chance: float, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Any order of equal numbers is as good as another: they were drawn for a permutation."""
    found = func(*args, **kwargs)
    numbers: Tensor = args[0] if args else kwargs["input"]
    if numbers.dim() != 1 or len(numbers) < 2 or not bool((numbers == numbers[0]).all()):
        return found
    if isinstance(found, Tensor):
        return found.roll(1)
    return type(found)((found[0], found[1].roll(1)))


def _coins(chance: float, _func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    probabilities: Tensor = args[0] if args else kwargs["input"]
    return (probabilities > chance).to(probabilities.dtype)


def _coins_in_place(chance: float, _func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    target: Tensor = args[0]
    probability = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    return target.copy_(torch.as_tensor(probability).to(target.device) > chance)


def _likeliest(_chance: float, _func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    probabilities: Tensor = args[0] if args else kwargs["input"]
    count = args[1] if len(args) > 1 else kwargs["num_samples"]
    top: Tensor = probabilities.topk(min(count, probabilities.shape[-1]), dim=-1).indices
    return top if top.shape[-1] == count else top[..., :1].expand(*top.shape[:-1], count)


def _without_gumbel(_chance: float, _func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    names = ("logits", "tau", "hard", "eps", "dim")
    given = {"tau": 1.0, "hard": False, "dim": -1, **dict(zip(names, args, strict=False)), **kwargs}
    soft: Tensor = (given["logits"] / given["tau"]).softmax(given["dim"])
    if not given["hard"]:
        return soft
    place = soft.max(given["dim"], keepdim=True).indices
    return torch.zeros_like(soft).scatter_(given["dim"], place, 1.0) - soft.detach() + soft


_DROPOUTS = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    torch.dropout,
    torch.dropout_,
}
_DRAWN: dict[Any, Callable[[float], float]] = {
    torch.rand: float,
    torch.rand_like: float,
    Tensor.uniform_: float,
    torch.randn: _normal_quantile,
    torch.randn_like: _normal_quantile,
    Tensor.normal_: _normal_quantile,
    Tensor.exponential_: lambda chance: -math.log(chance),
}
"""Fills in place of random numbers; ranges other than the default do not matter."""
_OTHERWISE: dict[Any, Callable[[float, Any, Any, dict[str, Any]], Any]] = {
    torch.randint: _whole,
    torch.normal: _around,
    torch.randperm: _turned,
    torch.argsort: _sorted,
    Tensor.argsort: _sorted,
    torch.sort: _sorted,
    Tensor.sort: _sorted,
    torch.bernoulli: _coins,
    Tensor.bernoulli_: _coins_in_place,
    torch.multinomial: _likeliest,
    Tensor.multinomial: _likeliest,
    functional.gumbel_softmax: _without_gumbel,
}
"""Functions that are called in place of random draws."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed everything that is drawn by other means than torch's functions."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the one that modules use)
    yield
