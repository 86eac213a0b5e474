"""Before a pass: some examples of the batch by example, against plain autograd.

In: a wrapped module and the arguments of a pass.  Out: a refusal, or which of the module's outputs
are losses in which examples meet.
Clipping bounds an example if its row of gradients is its own: what it would be if the example were
alone, by plain autograd.  That is the definition, and here it is tried, with random numbers v in
place of the loss's gradients.  The rows that the wrapped module gives for the outputs' products
with v are compared twice: three of them with the gradients of their examples alone, and all of
them, in a sum with random weights r, with the one gradient for r v.  It sees rows that are not
examples, layers in which examples meet and layers whose rows are wrong.  It cannot see losses that
are computed outside the module.

Dropout is left out, all passes draw the same random numbers, and generators are put back.  A module
that is random in other ways cannot be tried.
"""

from __future__ import annotations

import random
import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from mmcc.errors import MmccError
from mmcc.training.agreement import Tolerance, difference, tolerance, worst
from mmcc.training.run import RunError
from mmcc.training.watch import first_tensor, tensors_of

if TYPE_CHECKING:
    from mmcc.training.per_example import Watched

LEAST = 2
"""Fewer examples cannot be taken for each other."""
MOST = 32
"""Examples that are tried together, of the first batches; of later ones a quarter as many."""
ALONE = 3
"""Of these are tried alone."""
MOST_SAID = 200
"""Characters of somebody else's error message."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def rehearse(
    wrapped: Watched, args: tuple[Any, ...], kwargs: dict[str, Any], count: int
) -> set[int]:
    """Refuse a module whose rows of gradients are not examples.

    Returns the places, among the tensors that the module returns, of losses in which examples
    meet; nothing is said against a module that does not use them.
    """
    if count < LEAST or not all(p.requires_grad for p in wrapped.watch.trained):
        return set()
    draw = random.SystemRandom()
    most = MOST if wrapped.watch.thorough else max(ALONE, min(MOST, count) // 4)
    few = draw.sample(range(count), min(count, most))
    trial = Trial(wrapped, (args, kwargs), count, few)
    try:
        return trial.run(_take_all)
    except UnclearError:
        return set()
    except RunError as refusal:
        # A tensor may have as many rows as there are examples without being about them.
        try:
            return trial.run(_take_first)
        except (UnclearError, RunError):
            raise refusal from refusal.__cause__


class UnclearError(Exception):
    """The trial says nothing about the module."""


@dataclass(frozen=True)
class Trial:
    """A few of the `count` examples in a batch."""

    wrapped: Watched
    arguments: Arguments
    count: int
    few: Sequence[int]

    def run(self, take: Take) -> set[int]:
        """Compare them together with some of them alone; the losses in which they meet."""
        with _untouched(self.wrapped):
            alone = [self._plain(take, [member]) for member in self.few[:ALONE]]
            parts = self._parts(take, alone[0])
            together = self._by_example(take)
            rows = [place for place in range(len(together)) if self._is_row(place, together, alone)]
            losses = [place for place in range(len(together)) if _is_loss(place, together, alone)]
            meeting = self._meeting(together, parts, losses)
            used = rows or [place for place in losses if place not in meeting]
            if not used and not meeting:
                raise UnclearError
            try:
                self._check_outputs(take, together, alone, rows)
                if used:
                    self._check_gradients(take, together, alone, used, by_row=bool(rows))
            except RunError:
                self._check_steady(take, alone)
                raise
            if meeting:
                self._check_steady(take, alone)
            return meeting

    def _is_row(self, place: int, together: list[Tensor], alone: list[list[Tensor]]) -> bool:
        """Whether an output has a row for each example."""
        some = together[place]
        return (
            some.requires_grad
            and some.dim() > 0
            and len(some) == len(self.few)
            and all(
                place < len(one)
                and one[place].requires_grad
                and one[place].shape == (1, *some.shape[1:])
                for one in alone
            )
        )

    def _parts(self, take: Take, first: list[Tensor]) -> list[tuple[list[Tensor], int]]:
        """Outputs of a division of the examples, for modules that compute losses."""
        if all(output.dim() for output in first):
            return []
        half = (len(self.few) + 1) // 2
        divided = [part for part in (self.few[1:half], self.few[half:]) if part]
        with torch.no_grad():
            return [(first, 1), *((self._plain(take, part), len(part)) for part in divided)]

    def _meeting(
        self,
        together: list[Tensor],
        parts: list[tuple[list[Tensor], int]],
        losses: Sequence[int],
    ) -> set[int]:
        """Losses that are not the mean, or the sum, of those of the parts."""
        mean = self.wrapped.loss_reduction == "mean"
        meeting = set()
        for place in losses:
            added = sum(
                float(outputs[place]) * (size / len(self.few) if mean else 1)
                for outputs, size in parts
            )
            whole = float(together[place])
            if not abs(added - whole) <= self._allowed(together).own * abs(whole):
                meeting.add(place)
        return meeting

    def _check_outputs(
        self,
        take: Take,
        together: list[Tensor],
        alone: list[list[Tensor]],
        rows: Sequence[int],
    ) -> None:
        """Refuse outputs that are others for an example in company."""
        for place in rows:
            company = together[place][: len(alone)].detach()
            found = torch.cat([one[place].detach() for one in alone])
            if _disagreeing([difference(company, found)], self._allowed(together)) is not None:
                raise RunError(
                    f"examples meet in the module, as layer {self._meeting_layer(take)!r} shows: "
                    "what comes out for an example is something else when the others are left "
                    "out, so that clipping does not bound what one of them does. Leave out layers "
                    "that look at the whole batch."
                )

    def _check_gradients(
        self,
        take: Take,
        together: list[Tensor],
        alone: list[list[Tensor]],
        used: Sequence[int],
        by_row: bool,
    ) -> None:
        """Refuse rows of gradients that are not those of the examples."""
        watch, count = self.wrapped.watch, len(self.few)
        weights = [_numbers(together[place]) for place in used]
        share = count if by_row and self.wrapped.loss_reduction == "mean" else 1
        self._backward([together[place] for place in used], [w / share for w in weights])
        samples = [_rows(p, watch.names[p], count) for p in watch.trained]
        self.wrapped.mute()
        for i, one in enumerate(alone):
            own = [w[i : i + 1] if by_row else w for w in weights]
            self._compare(
                [None if sample is None else sample[i] for sample in samples],
                [one[place] for place in used],
                own,
            )
        if by_row:
            some = _numbers(together[used[0]].new_empty(count))
            outputs = self._plain(take, self.few)
            self._compare(
                [None if s is None else torch.tensordot(some.to(s), s, 1) for s in samples],
                [outputs[place] for place in used],
                [w * some.to(w).view(-1, *(1,) * (w.dim() - 1)) for w in weights],
            )

    def _compare(
        self, found: Sequence[Tensor | None], outputs: list[Tensor], weights: list[Tensor]
    ) -> None:
        """Refuse gradients that are not those of plain autograd."""
        watch = self.wrapped.watch
        _forget_gradients(watch.trained)
        self._backward(outputs, weights)
        apart = [difference(f, p.grad) for f, p in zip(found, watch.trained, strict=True)]
        place = _disagreeing(apart, self._allowed(outputs))
        if place is not None:
            length, true, _ = apart[place].tolist()
            words = _MISSING if found[place] is None else _WRONG
            raise RunError(words.format(watch.names[watch.trained[place]], length, true))

    def _check_steady(self, take: Take, alone: list[list[Tensor]]) -> None:
        """Nothing can be said of a module that draws random numbers of its own."""
        again = self._plain(take, self.few[:1], seed=1)  # the others drew with the seed 0
        if not all(map(torch.equal, again, alone[0])):
            raise UnclearError

    def _meeting_layer(self, take: Take) -> str:
        """The first layer that gives an example something else in company than alone."""
        seen: dict[str, list[Tensor]] = {}
        handles = [
            layer.register_forward_hook(_note(seen, name))
            for name, layer in self.wrapped._module.named_modules()
        ]
        try:
            self._plain(take, self.few)
            company, order = dict(seen), list(seen)
            seen.clear()
            self._plain(take, self.few[:1])
        finally:
            for handle in handles:
                handle.remove()
        for name in order:
            for some, one in zip(company[name], seen.get(name, []), strict=False):
                if one.shape == (1, *some.shape[1:]) and not torch.allclose(
                    some[:1].float(), one.float(), rtol=1e-3, atol=1e-5
                ):
                    return name
        return ""

    def _plain(self, take: Take, members: Sequence[int], seed: int = 0) -> list[Tensor]:
        args, kwargs = take(self.arguments, self.count, members)
        self.wrapped.mute()
        try:
            with _Still(), _seeded(seed):
                return list(tensors_of(self.wrapped._module(*args, **kwargs)))
        except Exception as problem:  # a module that cannot do with so few says nothing
            raise UnclearError from problem

    def _by_example(self, take: Take) -> list[Tensor]:
        args, kwargs = take(self.arguments, self.count, self.few)
        try:
            with _Still(), _seeded(0):
                return list(tensors_of(self.wrapped.by_example(args, kwargs, len(self.few))))
        except MmccError:
            raise
        except Exception as problem:
            self._plain(take, self.few)  # unclear, if that fails too
            raise RunError(self.wrapped.impossible(problem)) from problem

    def _backward(self, outputs: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
        try:
            with torch.autocast(outputs[0].device.type, enabled=False):
                torch.autograd.backward(outputs, weights)
        except MmccError:
            raise
        except Exception as problem:
            raise RunError(self.wrapped.impossible(problem)) from problem

    def _allowed(self, outputs: Sequence[Tensor]) -> Tolerance:
        return tolerance(outputs[0].device, [output.dtype for output in outputs])


_WRONG = (
    "the per-example gradients of parameter {!r} are not those of the examples: they are {:.3g} "
    "away from what plain autograd finds, whose length is {:.3g}, so that clipping would bound "
    "nothing. Usual causes: a layer that gets something else than one row for each example, in "
    "their order, and a module that holds parameters of its own beside other layers (put them into "
    "a small module with one input)."
)
_MISSING = (
    "parameter {!r} has no per-example gradients, but a gradient of length {:.3g} by plain "
    "autograd: its layer is not called as a module is (its weight is used directly, as in LoRA on "
    "embeddings and IA3), or its pass is made twice (activation checkpointing). Freeze it, or "
    "call its layer."
)


def wrong_count(name: str, rows: object, examples: int) -> str:
    """The sentence for gradients that are not one for each example."""
    return (
        f"parameter {name!r} has gradients of {rows} rows for {examples} examples: its layer got "
        "something else than one row for each example, such as positions without the examples' "
        "dimension (use positions.expand(len(batch), -1)), tokens that are flattened or routed to "
        "experts, or a pass that is made twice (activation checkpointing)."
    )


def first_sentence(problem: BaseException) -> str:
    """What somebody else's error says, in short."""
    words = " ".join(str(problem).split()) or type(problem).__name__
    return words.partition(". ")[0][:MOST_SAID].rstrip(". ")


Take = Callable[[Arguments, int, Sequence[int]], Arguments]


def _take_all(arguments: Arguments, count: int, members: Sequence[int]) -> Arguments:
    """The arguments of some examples: the rows of every tensor that has one for each."""

    def taken(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() and len(value) == count:
            return value[list(members)]
        if hasattr(value, "items"):  # such as a BatchEncoding, which torch does not look into
            return type(value)({name: taken(part) for name, part in value.items()})
        return value

    args, kwargs = tree_map(taken, arguments)
    return args, kwargs


def _take_first(arguments: Arguments, count: int, members: Sequence[int]) -> Arguments:
    """The same, for the first tensor alone."""
    first = first_tensor(arguments)
    assert first is not None
    assert len(first) == count

    def taken(value: Any) -> Any:
        return first[list(members)] if value is first else value

    args, kwargs = tree_map(taken, arguments)
    return args, kwargs


def _is_loss(place: int, together: list[Tensor], alone: list[list[Tensor]]) -> bool:
    return all(
        place < len(outputs) and outputs[place].requires_grad and not outputs[place].dim()
        for outputs in (together, *alone)
    )


def _rows(parameter: Any, name: str, examples: int) -> Tensor | None:
    """Gradients by example, as the wrapped module gives them."""
    sample: Tensor | list[Tensor] | None = parameter.grad_sample
    if sample is None:
        return None
    if isinstance(sample, list) or len(sample) != examples:
        rows = [len(part) for part in sample] if isinstance(sample, list) else len(sample)
        raise RunError(wrong_count(name, rows, examples))
    return sample


def _note(seen: dict[str, list[Tensor]], name: str) -> Callable[..., None]:
    def note(_layer: nn.Module, _inputs: Any, outputs: Any) -> None:
        tensors = (tensor.detach() for tensor in tensors_of(outputs))
        seen[name] = [tensor for tensor in tensors if tensor.dim()]

    return note


def _disagreeing(apart: Sequence[Tensor], allowed: Tolerance) -> int | None:
    rows = torch.stack([row.double().cpu() for row in apart])
    if not rows[:, 1].isfinite().all():
        raise UnclearError  # an example without a finite gradient counts as zero
    return worst(torch.nan_to_num(rows, nan=torch.inf).tolist(), allowed)


def _numbers(output: Tensor) -> Tensor:
    """Random numbers in the shape of an output, from a generator of their own."""
    own = torch.Generator().manual_seed(secrets.randbits(63))
    return torch.randn(output.shape, generator=own, dtype=torch.float32).to(output)


def _forget_gradients(parameters: Sequence[nn.Parameter]) -> None:
    for p in parameters:
        p.grad = None


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the one that modules use)
    yield


@contextmanager
def _untouched(wrapped: Watched) -> Iterator[None]:
    """Leave the run's generators, gradients and layers as they were."""
    watch = wrapped.watch
    devices = {p.device.index for p in watch.trained if p.device.type == "cuda"}
    numpy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with (
            torch.random.fork_rng(devices=sorted(d for d in devices if d is not None)),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # the pass itself will say it again
            yield
    finally:
        np.random.set_state(numpy)  # noqa: NPY002
        random.setstate(python)
        watch.clear()
        _forget_gradients(watch.trained)


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


class _Still(TorchFunctionMode):
    """Without dropout: what is left of a pass is the same for an example in any company."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is functional.scaled_dot_product_attention and len(args) > 4:
            args = (*args[:4], 0.0, *args[5:])  # query, key, value, mask, dropout, ...
        elif func is functional.scaled_dot_product_attention:
            kwargs["dropout_p"] = 0.0
        elif func is functional.multi_head_attention_forward:
            kwargs["training"] = False
        return func(*args, **kwargs)
