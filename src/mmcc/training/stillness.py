"""Passes that leave no trace, and in which chance has no part.

In: a module.  Out: contexts for passes whose result depends on the inputs alone, after which module
and random generators are as they were.
"""

from __future__ import annotations

import copy
import math
import random
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

OWN = frozenset(vars(nn.Module()))
"""Attributes that every module has."""
CONTAINERS = (list, dict, set, deque)
GOLDEN = 0.5 * (5**0.5 - 1)
"""Multiples of it, without their whole parts, are spread evenly."""


class Still(TorchFunctionMode):
    """Random numbers are a fixed pattern: each of `examples` gets the same, in any company."""

    def __init__(self, examples: int) -> None:
        super().__init__()
        self.examples = examples

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        kwargs.update({"generator": None} if kwargs.get("generator") is not None else {})
        if func in _DRAWN:
            return _DRAWN[func](func(*args, **kwargs), self.examples)
        if func in _OTHERWISE:
            return _OTHERWISE[func](args, kwargs)
        if func is functional.scaled_dot_product_attention and len(args) > 4:
            args = (*args[:4], 0.0, *args[5:])  # query, key, value, mask, dropout, ...
        elif func is functional.scaled_dot_product_attention:
            kwargs["dropout_p"] = 0.0
        elif func is functional.multi_head_attention_forward:
            kwargs["training"] = False
        return func(*args, **kwargs)


def spread(like: Tensor, examples: int) -> Tensor:
    """Numbers in (0, 1) that are spread evenly, and the same for every example.

    The first dimension that has as many entries as there are examples is taken for them.
    """
    shape = list(like.shape)
    if examples in shape:
        shape[shape.index(examples)] = 1
    places = torch.arange(math.prod(shape), dtype=torch.float64, device=like.device)
    return ((0.5 + places * GOLDEN) % 1).clamp(1e-3, 1 - 1e-3).view(shape).expand(like.shape)


def _uniform(drawn: Tensor, examples: int) -> Tensor:
    return drawn.copy_(spread(drawn, examples))


def _normal(drawn: Tensor, examples: int) -> Tensor:
    return drawn.copy_(torch.special.ndtri(spread(drawn, examples)))


def _exponential(drawn: Tensor, examples: int) -> Tensor:
    return drawn.copy_(-torch.log(spread(drawn, examples)))


def _whole(drawn: Tensor, examples: int) -> Tensor:
    """Some of the numbers that were drawn, the same for every example."""
    if not drawn.numel():
        return drawn
    low, high = int(drawn.min()), int(drawn.max())
    return drawn.copy_((low + (high - low) * spread(drawn, examples)).floor())


def _turned(args: Any, kwargs: dict[str, Any]) -> Tensor:
    """Everyone gets a neighbour's place: examples that are mixed by a permutation do meet."""
    options = {name: part for name, part in kwargs.items() if name not in ("generator", "n")}
    count = args[0] if args else kwargs["n"]
    return torch.arange(count, **options).roll(1)


def _likely(args: Any, kwargs: dict[str, Any]) -> Tensor:
    probabilities: Tensor = args[0] if args else kwargs["input"]
    return (probabilities >= 0.5).to(probabilities.dtype)


def _likeliest(args: Any, kwargs: dict[str, Any]) -> Tensor:
    probabilities: Tensor = args[0] if args else kwargs["input"]
    count = args[1] if len(args) > 1 else kwargs["num_samples"]
    top: Tensor = probabilities.topk(min(count, probabilities.shape[-1]), dim=-1).indices
    return top if top.shape[-1] == count else top[..., :1].expand(*top.shape[:-1], count)


def _heads(args: Any, _kwargs: dict[str, Any]) -> Tensor:
    """A coin, in place: heads, as dropout by hand keeps what it gets."""
    target: Tensor = args[0]
    return target.fill_(1.0)


def _without_gumbel(args: Any, kwargs: dict[str, Any]) -> Tensor:
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
_DRAWN: dict[Any, Callable[[Tensor, int], Tensor]] = {
    torch.rand: _uniform,
    torch.rand_like: _uniform,
    Tensor.uniform_: _uniform,
    torch.randn: _normal,
    torch.randn_like: _normal,
    Tensor.normal_: _normal,
    Tensor.exponential_: _exponential,
    torch.randint: _whole,
    torch.randint_like: _whole,
}
"""What stands in for numbers that were drawn; ranges other than the usual ones do not matter."""
_OTHERWISE: dict[Any, Callable[[Any, dict[str, Any]], Tensor]] = {
    torch.randperm: _turned,
    torch.bernoulli: _likely,
    torch.multinomial: _likeliest,
    Tensor.multinomial: _likeliest,
    Tensor.bernoulli_: _heads,
    functional.gumbel_softmax: _without_gumbel,
}
"""What is done in place of a draw."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What is drawn by other means than torch's functions comes from this seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the one that modules use)
    yield


class Kept:
    """Attributes of a module's layers, other than parameters and buffers, as they are now."""

    def __init__(self, module: nn.Module) -> None:
        self._layers = {layer: _attributes(layer) for layer in module.modules()}
        self._contents = [
            (value, value.clone())
            for found in self._layers.values()
            for value in found.values()
            if isinstance(value, Tensor) and value.is_leaf and not value.requires_grad
        ]
        self.tensors = tensors_at_layers(module)

    def put_back_counts(self) -> None:
        """Numbers: a module may count its passes, but not remember what passed."""
        for layer, found in self._layers.items():
            for name, value in _attributes(layer).items():
                if not isinstance(value, int | float):
                    continue
                if name not in found:
                    del layer.__dict__[name]
                elif isinstance(found[name], int | float):
                    layer.__dict__[name] = found[name]

    def put_back(self) -> None:
        """Everything; what was not there is taken away."""
        for layer, found in self._layers.items():
            for name in _attributes(layer).keys() - found.keys():
                del layer.__dict__[name]
            layer.__dict__.update(found)
        with torch.no_grad():
            for tensor, content in self._contents:
                if not torch.equal(tensor, content):
                    tensor.copy_(content)


def _attributes(layer: nn.Module) -> dict[str, Any]:
    return {name: _own_copy(value) for name, value in vars(layer).items() if name not in OWN}


def _own_copy(value: Any) -> Any:
    return copy.copy(value) if type(value) in CONTAINERS else value


@contextmanager
def untouched(
    module: nn.Module, trained: Sequence[nn.Parameter], hooks: Sequence[Any]
) -> Iterator[Kept]:
    """Leave generators, gradients and layers as they were.

    Of the layers' forward hooks only `hooks`, given by their handles, are called: what others
    do is somebody else's, and would be done once too often.
    """
    devices = {p.device.index for p in trained if p.device.type == "cuda"}
    numpy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    ours = {handle.id for handle in hooks}
    registered = {layer: layer._forward_hooks for layer in module.modules()}
    kept = Kept(module)
    for layer, found in registered.items():
        layer._forward_hooks = OrderedDict((i, hook) for i, hook in found.items() if i in ours)
    try:
        with (
            torch.random.fork_rng(devices=sorted(d for d in devices if d is not None)),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # the pass itself will say it again
            yield kept
    finally:
        np.random.set_state(numpy)  # noqa: NPY002
        random.setstate(python)
        for layer, found in registered.items():
            layer._forward_hooks = found
        kept.put_back()
        forget_gradients(trained)


def forget_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """As if there had been no backward pass."""
    for p in parameters:
        p.grad = None


def left_at_layers(module: nn.Module, before: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Single numbers with a gradient that a pass has left at its layers: losses, most likely.

    `before` has the identities of what was there before the pass.
    """
    for name, layer in module.named_modules():
        for attribute, value in vars(layer).items():
            if (
                attribute not in OWN
                and isinstance(value, Tensor)
                and value.requires_grad
                and value.numel() == 1
                and id(value) not in before
            ):
                yield f"{name}.{attribute}".lstrip("."), value


def tensors_at_layers(module: nn.Module) -> set[int]:
    """Identities of the tensors in plain attributes."""
    return {
        id(value)
        for layer in module.modules()
        for value in vars(layer).values()
        if isinstance(value, Tensor)
    }
