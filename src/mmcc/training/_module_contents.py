"""The contents of a module: whether anything was written to it, and how to restore it.

In: a module.  Out: the name of what changed, or the module as it was.

Whatever the data write into a module carries no noise, wherever it is written:

- trained parameters are changed by the optimizer's steps, so not between a batch and its step;
- frozen parameters do not change in between either; they are large, so all their bits are read only
  on batches that are inspected, and where torch has counted a change;
- buffers do not change at all, from `accept` on;
- attributes of layers can be of any kind.  They are restored after a trial, which checks whether
  they make a difference (`mmcc.training._trial`).
"""

from __future__ import annotations

import copy
import itertools
import random
import warnings
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mmcc.training._examples import is_plain_object, tensors_of

WORD = 8
"""Bytes that are summed at once."""
WEIGHED = 2**20
"""Words of a tensor up to which their positions count in the checksum."""
OWN = frozenset(vars(nn.Module()))
"""Attributes that every module has."""
MOST_KEPT = 5000
"""Levels of containers and objects that are looked into; deeper ones are left alone."""
Generator = np.random.Generator | random.Random | torch.Generator
Container = list | dict | set | deque  # type: ignore[type-arg]


class Contents:
    """The expected bits of a module's parameters and buffers."""

    def __init__(self, module: nn.Module, trained: Sequence[nn.Parameter]) -> None:
        self._module = module
        self.trained = tuple(trained)
        self.names = {p: name for name, p in module.named_parameters()}
        self._versions: list[int] | None = None
        self._weights: list[int] = []
        self._frozen: list[int] = []
        self._buffers: list[int] = []

    def accept(self) -> None:
        """Take the present buffers as independent of the data; frozen parameters are read anew."""
        self._buffers = check_sums(self._module.buffers())
        self._versions = None

    def mark(self, close: bool) -> None:
        """From now on nothing may be written, until the optimizer steps."""
        self._weights = check_sums(self.trained)
        versions = self._counted()
        if close or versions != self._versions:
            self._frozen = check_sums(self._left_alone().values())
        self._versions = versions

    def changed(self, close: bool) -> str:
        """What was written to since `mark`, even without autograd; empty text for nothing.

        Writing to a frozen parameter and restoring it is not a change.
        """
        buffers = dict(self._module.named_buffers())
        present = check_sums(buffers.values())
        if present != self._buffers:
            name = _first_apart(buffers, present, self._buffers)
            return f"a buffer of the module changed during training ({name!r})"
        weights = {self.names[p]: p for p in self.trained}
        name = _first_apart(weights, check_sums(weights.values()), self._weights)
        if not name and (close or self._counted() != self._versions):
            frozen = self._left_alone()
            name = _first_apart(frozen, check_sums(frozen.values()), self._frozen)
        if not name:
            return ""
        return f"{name!r}, a parameter of the module, changed between a batch and its step"

    def _counted(self) -> list[int]:
        """How often torch has counted a change of each frozen parameter."""
        return [p._version for p in self._left_alone().values()]

    def _left_alone(self) -> dict[str, Tensor]:
        trained = set(self.trained)
        return {n: p for n, p in self._module.named_parameters() if p not in trained}


def _first_apart(names: Iterable[str], present: Sequence[int], expected: Sequence[int]) -> str:
    """The name of the first tensor with unexpected bits, which may be new or gone."""
    for name, found, right in itertools.zip_longest(names, present, expected):
        if found != right:
            return name or "one that is gone"
    return ""


def check_sums(tensors: Iterable[Tensor]) -> list[int]:
    """A checksum of each tensor's bits, modulo 2^64: if one bit differs, so does the sum.

    Words of all but the largest tensors are weighted by odd numbers that grow with their position,
    so that swapped values show.  Reads all bytes once; the host receives all sums at once.
    """
    sums = [_bits(tensor) for tensor in tensors]
    by_device: dict[torch.device, list[int]] = {}
    for place, value in enumerate(sums):
        by_device.setdefault(value.device, []).append(place)
    found = [0] * len(sums)
    for places in by_device.values():
        for place, value in zip(
            places, torch.stack([sums[i] for i in places]).tolist(), strict=True
        ):
            found[place] = value
    return found


def _bits(tensor: Tensor) -> Tensor:
    content = _here(tensor)
    if content.is_complex():
        content = torch.view_as_real(content)
    flat = content.contiguous().view(-1).view(torch.uint8)
    over = len(flat) % WORD
    words = flat[: len(flat) - over] if over else flat
    if flat.storage_offset() % WORD:
        words = words.clone()  # words must begin at multiples of their length
    whole = words.view(torch.int64)
    if len(whole) <= WEIGHED:
        whole = whole * (2 * torch.arange(len(whole), device=whole.device) + 1)
    total: Tensor = whole.sum()
    return total + flat[-over:].sum(dtype=torch.int64) if over else total


def _here(tensor: Tensor) -> Tensor:
    """The part of a tensor on this process: reading all of a DTensor would take all processes."""
    found: Tensor = getattr(tensor.detach(), "to_local", tensor.detach)()
    return found


class Attributes:
    """Attributes of a module's layers, other than parameters and buffers, as they are now.

    Containers and plain objects among them are restored in place, as others may hold them too.
    `tensors` are the tensors in them, by their identities.
    """

    def __init__(self, module: nn.Module) -> None:
        self._layers = {layer: _attributes(layer) for layer in module.modules()}
        self._objects: dict[int, tuple[Any, Any]] = {}
        self._generators: list[tuple[Generator, Any]] = []
        self._contents: dict[int, tuple[Tensor, Tensor]] = {}
        self.tensors = tensors_at_layers(module)
        for found in self._layers.values():
            for value in found.values():
                self._keep(value)

    def _keep(self, value: Any) -> None:
        if isinstance(value, Tensor):
            if value.is_leaf and not value.requires_grad and id(value) not in self._contents:
                here = _here(value)
                self._contents[id(value)] = (here, here.clone())
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
        """Restore all that is not a tensor: a module may count its passes, but not remember them.

        With `seed`, generators are seeded with it instead of being restored.
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
        """Restore everything; attributes that did not exist are removed."""
        for layer, found in self._layers.items():
            for name in _attributes(layer).keys() - found.keys():
                del layer.__dict__[name]
            layer.__dict__.update({name: _own_count(value) for name, value in found.items()})
        for value, content in self._objects.values():
            _refill(value.__dict__ if is_plain_object(value) else value, content)
        for generator, state in self._generators:
            _set_state(generator, state)
        with torch.no_grad():
            for tensor, content in self._contents.values():
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
) -> Iterator[Attributes]:
    """Leave generators, gradients and layers as they were.

    Of the layers' forward hooks only `hooks`, given by their handles, are called: the user's hooks
    would otherwise run once too often.
    """
    devices = {p.device.index for p in trained if p.device.type == "cuda"}
    numpy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    ours = {handle.id for handle in hooks}
    registered = {layer: layer._forward_hooks for layer in module.modules()}
    kept = Attributes(module)
    for layer, found in registered.items():
        layer._forward_hooks = OrderedDict((i, hook) for i, hook in found.items() if i in ours)
    try:
        with (
            torch.random.fork_rng(devices=sorted(d for d in devices if d is not None)),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # the pass itself will warn again
            yield kept
    finally:
        np.random.set_state(numpy)  # noqa: NPY002
        random.setstate(python)
        for layer, found in registered.items():
            layer._forward_hooks = found
        kept.put_back()
        forget_gradients(trained)


def forget_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Remove gradients, as if there had been no backward pass."""
    for p in parameters:
        p.grad = None


def left_at_layers(module: nn.Module, before: Mapping[int, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Numbers and vectors that a pass stored at layers: parts of a loss, perhaps."""
    for name, layer in module.named_modules():
        for attribute, value in _attributes(layer).items():
            for place, tensor in enumerate(tensors_of(value)):
                small = tensor.dim() < 2 and tensor.is_floating_point()
                if small and id(tensor) not in before:
                    yield f"{name}.{attribute}.{place}".lstrip("."), tensor


def tensors_at_layers(module: nn.Module) -> dict[int, Tensor]:
    """Tensors in plain attributes, by identities that are theirs as long as the result exists."""
    return {
        id(tensor): tensor
        for layer in module.modules()
        for value in _attributes(layer).values()
        for tensor in tensors_of(value)
    }
