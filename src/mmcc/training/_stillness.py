"""Passes that leave no trace, and in which chance has no part.

In: a module.  Out: contexts for passes whose result depends on the inputs alone, after which module
and random generators are as they were.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from mmcc.training._examples import is_plain_object, tensors_of

OWN = frozenset(vars(nn.Module()))
"""Attributes that every module has."""
MOST_KEPT = 5000
"""Containers and objects that are looked into; what lies deeper is left alone."""
Generator = np.random.Generator | random.Random | torch.Generator
Container = list | dict | set | deque  # type: ignore[type-arg]


class Still(TorchFunctionMode):
    """Random numbers are one number, the quantile `chance`: for every example, in any company."""

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
    """Of `torch.normal`: means and deviations, and then perhaps a shape."""
    mean = kwargs.get("mean", args[0] if args else 0.0)
    deviation = kwargs.get("std", args[1] if len(args) > 1 else 1.0)
    drawn: Tensor = torch.zeros_like(func(*args, **kwargs))
    moved: Tensor = drawn + mean + _normal_quantile(chance) * deviation
    return moved


def _turned(_chance: float, _func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """Everyone gets a neighbour's place: examples that are mixed by a permutation do meet."""
    options = {name: part for name, part in kwargs.items() if name not in ("generator", "n")}
    count = args[0] if args else kwargs["n"]
    return torch.arange(count, **options).roll(1)


def _sorted(_chance: float, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An order of equal numbers is as good as any other: they were drawn to be permuted."""
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
"""What fills the place of numbers that were drawn; other ranges than the usual do not matter."""
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
"""What is done in place of a draw."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """What is drawn by other means than torch's functions comes from this seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the one that modules use)
    yield


class Kept:
    """Attributes of a module's layers, other than parameters and buffers, as they are now.

    Containers and plain objects among them are put back in place, for others may hold them too.
    """

    def __init__(self, module: nn.Module) -> None:
        self._layers = {layer: _attributes(layer) for layer in module.modules()}
        self._objects: dict[int, tuple[Any, Any]] = {}
        self._generators: list[tuple[Generator, Any]] = []
        self._contents: list[tuple[Tensor, Tensor]] = []
        self.tensors: dict[int, Tensor] = {}
        for found in self._layers.values():
            for value in found.values():
                self._keep(value)

    def _keep(self, value: Any) -> None:
        if isinstance(value, Tensor):
            if value.is_leaf and not value.requires_grad and id(value) not in self.tensors:
                self._contents.append((value, value.clone()))
            self.tensors[id(value)] = value
        elif isinstance(value, Generator):
            self._generators.append((value, _state(value)))
        elif len(self._objects) < MOST_KEPT and id(value) not in self._objects:
            if isinstance(value, Container):
                self._objects[id(value)] = (value, copy.copy(value))
                for entry in value.values() if isinstance(value, dict) else value:
                    self._keep(entry)
            elif is_plain_object(value):
                self._objects[id(value)] = (value, dict(vars(value)))
                for entry in vars(value).values():
                    self._keep(entry)

    def put_back_counts(self, seed: int | None = None) -> None:
        """All that is no tensor: a module may count its passes, but not remember what passed.

        With `seed`, generators start there and not where they were.
        """
        for layer, found in self._layers.items():
            _put_back_numbers(layer.__dict__, found, _attributes(layer))
        for value, content in self._objects.values():
            if is_plain_object(value):
                _put_back_numbers(value.__dict__, content, dict(vars(value)))
            elif isinstance(value, dict):
                _put_back_numbers(value, content, dict(value))
            elif not any(isinstance(entry, Tensor) for entry in (*value, *content)):
                _refill(value, content)
        for generator, state in self._generators:
            _set_state(generator, state if seed is None else _state_from(generator, seed))

    def put_back(self) -> None:
        """Everything; what was not there is taken away."""
        for layer, found in self._layers.items():
            for name in _attributes(layer).keys() - found.keys():
                del layer.__dict__[name]
            layer.__dict__.update({name: _own_count(value) for name, value in found.items()})
        for value, content in self._objects.values():
            _refill(value.__dict__ if is_plain_object(value) else value, content)
        for generator, state in self._generators:
            _set_state(generator, state)
        with torch.no_grad():
            for tensor, content in self._contents:
                if not torch.equal(tensor, content):
                    tensor.copy_(content)


def _attributes(layer: nn.Module) -> dict[str, Any]:
    return {name: _own_count(value) for name, value in vars(layer).items() if name not in OWN}


def _own_count(value: Any) -> Any:
    return copy.copy(value) if isinstance(value, itertools.count) else value


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.dim() and not value.is_floating_point() and not value.is_complex()
    return isinstance(value, int | float | np.number | itertools.count)


def _put_back_numbers(target: dict[Any, Any], before: dict[Any, Any], now: dict[Any, Any]) -> None:
    for name, value in now.items():
        if not _is_number(value):
            continue
        if name not in before:
            del target[name]
        elif _is_number(before[name]):
            target[name] = _own_count(before[name])


def _refill(container: Any, content: Any) -> None:
    container.clear()
    (container.extend if isinstance(container, list | deque) else container.update)(content)


def _state(generator: Generator) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.getstate() if isinstance(generator, random.Random) else generator.get_state()


def _set_state(generator: Generator, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _state_from(generator: Generator, seed: int) -> Any:
    if isinstance(generator, np.random.Generator):
        return type(generator.bit_generator)(seed).state
    if isinstance(generator, random.Random):
        return random.Random(seed).getstate()
    return torch.Generator(generator.device).manual_seed(seed).get_state()


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


def left_at_layers(module: nn.Module, before: Mapping[int, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Numbers and vectors that a pass has left at its layers: parts of a loss, perhaps."""
    for name, layer in module.named_modules():
        for attribute, value in _attributes(layer).items():
            for place, tensor in enumerate(tensors_of(value)):
                small = tensor.dim() < 2 and tensor.is_floating_point()
                if small and id(tensor) not in before:
                    yield f"{name}.{attribute}.{place}".lstrip("."), tensor


def tensors_at_layers(module: nn.Module) -> dict[int, Tensor]:
    """Tensors in plain attributes, by their identities, which stay theirs as long as this."""
    return {
        id(tensor): tensor
        for layer in module.modules()
        for value in _attributes(layer).values()
        for tensor in tensors_of(value)
    }
