"""One trial of a module: a few examples together, by example, against plain autograd.

In: a wrapped module, and which examples of a batch.  Out: `Findings`.  What is tested, and why, is
in `mmcc.training._rehearsal`.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mmcc.errors import MmccError
from mmcc.training._example_gradients import ExampleGradients
from mmcc.training._examples import (
    LOSS,
    MEETING,
    UNKNOWN,
    Arguments,
    Layout,
    Rowless,
    Take,
    fits,
    is_square,
    layouts,
    tensors_of,
)
from mmcc.training._fixed_draws import FixedDraws, seeded
from mmcc.training._gradient_agreement import (
    AVERAGED,
    MEETS,
    MISSING,
    REDUCTION,
    REMEMBERS,
    UNCLEAR_OUTPUT,
    WRONG,
    Tolerance,
    difference,
    first_sentence,
    tolerance,
    worst,
)
from mmcc.training._module_contents import Attributes, forget_gradients, left_at_layers, untouched
from mmcc.training._run import RunError

if TYPE_CHECKING:
    from mmcc.training._per_example import Watched

LEAST = 2
"""With fewer examples, other dimensions could be mistaken for the examples'."""
TRIED_ALONE = 3
"""How many of the examples are tried alone."""
STEADY = 8
"""Before a module is refused, it must give the same outputs under this many seeds."""
DIVISIONS = 3
"""How often the examples are split, to see how a loss changes."""
Outputs = dict[str, Tensor]


class UnclearError(Exception):
    """The trial is inconclusive."""


@dataclass
class Findings:
    """What is wrong with a module, and with its outputs by their names."""

    losses: dict[str, str]
    meeting: dict[str, str]
    refusal: RunError | None

    @property
    def none(self) -> bool:
        """Whether nothing is wrong."""
        return self.refusal is None and not self.losses and not self.meeting


@dataclass(frozen=True)
class Trial:
    """A few of the `count` examples in a batch."""

    wrapped: Watched
    arguments: Arguments
    count: int
    few: Sequence[int]
    take: Take
    seed: int
    """The seed of what the module draws; the same in all trials of one rehearsal."""

    def run(self) -> Findings:
        """Compare the examples together with some of them alone."""
        watch = self.wrapped.watch
        with untouched(self.wrapped._module, watch.trained, self.wrapped.own_hooks()) as kept:
            try:
                return self._run(kept)
            finally:
                watch.clear()

    def _run(self, kept: Attributes) -> Findings:
        alone = [self._alone(kept, member) for member in self.few[:TRIED_ALONE]]
        halves = self._halves(kept, self.few)
        divisions = self._divisions(kept, alone[0])
        together = self._by_example(kept)
        found = {
            name: self._layout(name, output, alone, halves)
            for name, output in together.items()
            if all(name in other for other in (*alone, *(half.outputs for half in halves)))
        }
        rows = {name: layout for name, layout in found.items() if isinstance(layout, Layout)}
        losses = [name for name, layout in found.items() if layout is LOSS]
        wrong = self._wrong_losses(together, divisions, losses)
        used = list(rows) or [name for name in losses if name not in wrong]
        refusal = self._wrong_gradients(kept, together, alone, used, rows) if used else None
        if rows and refusal is None:
            others = [name for name in losses if name not in wrong]
            wrong |= {name: AVERAGED for name in others if self._is_unlike(kept, name)}
        wrong |= {name: UNCLEAR_OUTPUT for name, how in found.items() if how is UNKNOWN}
        meeting = {name: self._company(kept) for name, how in found.items() if how is MEETING}
        findings = Findings(wrong, meeting, refusal or self._memory(kept, alone[0]))
        if not used and findings.none:
            raise UnclearError("its outputs hold nothing that could be taken for examples")
        if not findings.none:
            self._check_steady(kept)
        return findings

    def _layout(
        self, name: str, some: Tensor, alone: Sequence[Outputs], halves: Sequence[Part]
    ) -> Layout | Rowless | None:
        """Where an output has its examples, if they are the same together as alone."""
        count, pairs = len(self.few), [one[name] for one in alone]
        if some.is_leaf or not all(output.requires_grad for output in (some, *pairs)):
            return None
        if all(output.numel() == 1 for output in (some, *pairs)):
            return LOSS
        if all(_is_same(some, pair) for pair in pairs):
            return None  # about parameters, not about examples
        if count > LEAST and is_square(some, count) and all(is_square(one, 2) for one in pairs):
            return MEETING
        possible = [
            layout
            for layout in layouts(some, count)
            if all(fits(some, one, layout.dimension, layout.each) for one in pairs)
        ]
        for layout in possible:
            company = layout.of(some, count).detach()
            own = torch.stack([layout.of(pair, 2)[0].detach() for pair in pairs])
            parts = [layout.of(half.outputs[name], half.passed)[: half.size] for half in halves]
            split = torch.cat([part.detach() for part in parts])
            apart = [_apart(company[: len(pairs)], own), _apart(company, split)]
            if _disagreeing(apart, self._allowed([some])) is None:
                return layout
        return MEETING if possible else UNKNOWN

    def _wrong_losses(
        self, together: Outputs, divisions: Sequence[Sequence[Part]], losses: Sequence[str]
    ) -> dict[str, str]:
        """Losses that are not the mean, or the sum, of those of parts of the examples."""
        wrong = {}
        for name in losses:
            whole, allowed = float(together[name]), self._allowed([together[name]]).own
            for parts in divisions:
                if not all(name in part.outputs for part in parts):
                    continue
                mean = [part.loss(name) * part.size / len(self.few) for part in parts]
                total = [part.loss(name) * part.size / part.passed for part in parts]
                expected, other = mean, total
                if self.wrapped.loss_reduction == "sum":
                    expected, other = total, mean
                if not _is_sum(expected, whole, allowed):
                    wrong[name] = REDUCTION if _is_sum(other, whole, allowed) else AVERAGED
        return wrong

    def _is_unlike(self, kept: Attributes, name: str) -> bool:
        """Whether a loss gives an example another gradient in a batch than alone.

        In a new model all tokens have nearly the same loss, so its value shows nothing.
        """
        alone = [self._alone(kept, member) for member in self.few[:TRIED_ALONE]]
        together = self._by_example(kept)
        return self._wrong_gradients(kept, together, alone, [name], {}) is not None

    def _wrong_gradients(
        self,
        kept: Attributes,
        together: Outputs,
        alone: Sequence[Outputs],
        used: Sequence[str],
        rows: dict[str, Layout],
    ) -> RunError | None:
        """The refusal of rows of gradients that are not those of the examples."""
        watch, count = self.wrapped.watch, len(self.few)
        by_row = bool(rows)
        views = [
            rows[name].of(together[name], count) if by_row else together[name] for name in used
        ]
        weights = [torch.where(view.isfinite(), _numbers(view), 0.0) for view in views]
        mean = self.wrapped.loss_reduction == "mean"
        self._backward(views, [w / count if by_row and mean else w for w in weights])
        gradients = watch.gradients
        try:
            for p in watch.trained:
                gradients.check_count(p, watch.names[p], count)
        except RunError as wrong:
            return wrong
        allowed = self._allowed(views, gradients.dtypes())
        squares = {p: gradients.squares(p) for p in watch.trained}
        self.wrapped.mute()
        for i, one in enumerate(alone):
            if by_row:
                own = [rows[name].of(one[name], 2)[:1] for name in used]
                numbers = [w[i : i + 1] for w in weights]
            else:
                own = [one[name] for name in used]
                numbers = weights if mean else [w / 2 for w in weights]
            refusal = self._difference(_of_one(gradients, squares, i), own, numbers, allowed)
            if refusal is not None:
                return refusal
        if not by_row:
            return None
        some = _numbers(views[0].new_empty(count))
        outputs = self._plain(kept, self.few)
        return self._difference(
            lambda p: (gradients.total(p, some), None),
            [rows[name].of(outputs[name], count) for name in used],
            [w * some.to(w).view(-1, *(1,) * (w.dim() - 1)) for w in weights],
            allowed,
        )

    def _difference(
        self,
        found: Callable[[nn.Parameter], tuple[Tensor | None, Tensor | None]],
        outputs: list[Tensor],
        weights: list[Tensor],
        allowed: Tolerance,
    ) -> RunError | None:
        """The refusal of gradients, or of their norms, that are not those of plain autograd."""
        watch = self.wrapped.watch
        forget_gradients(watch.trained)
        self._backward(outputs, weights)
        apart = []
        for p in watch.trained:  # one after another: all of them might not fit into memory
            gradient, norm = found(p)
            apart.append(difference(gradient, p.grad, norm))
        place = _disagreeing(apart, allowed)
        if place is None:
            return None
        length, true, _ = apart[place].tolist()
        wrong = watch.trained[place]
        words = WRONG if watch.gradients.counts(wrong) else MISSING
        return RunError(words.format(watch.names[wrong], length, true))

    def _memory(self, kept: Attributes, first: Outputs) -> RunError | None:
        """The refusal of a module whose output for an example depends on earlier passes."""
        again = self._alone(kept, self.few[0])
        apart = [
            _apart(again[name].detach(), output.detach())
            for name, output in first.items()
            if name in again and again[name].shape == output.shape
        ]
        if not apart or _disagreeing(apart, self._allowed(list(first.values()))) is None:
            return None
        return RunError(REMEMBERS)

    def _check_steady(self, kept: Attributes) -> None:
        """A module that draws random numbers by its own means cannot be judged."""
        for members in ([self.few[0]] * 2, self.few):
            first = self._at_first(kept, members, 0)
            for change in range(1, STEADY):
                other = self._at_first(kept, members, change)
                if first.keys() != other.keys() or not all(
                    torch.equal(other[name], output) for name, output in first.items()
                ):
                    raise UnclearError("it draws random numbers of its own")

    def _at_first(self, kept: Attributes, members: Sequence[int], change: int) -> Outputs:
        """The outputs as if nothing had passed before, with another seed for the module's draws."""
        kept.put_back()
        with torch.no_grad():
            return self._plain(kept, members, self.seed + change)

    def _company(self, kept: Attributes) -> str:
        """Why an output that changes with the other examples cannot be used; names a layer."""
        seen: dict[str, list[Tensor]] = {}
        handles = [
            layer.register_forward_hook(_note(seen, name))
            for name, layer in self.wrapped._module.named_modules()
        ]
        try:
            self._plain(kept, self.few)
            company, order = dict(seen), list(seen)
            seen.clear()
            self._alone(kept, self.few[0])
        finally:
            for handle in handles:
                handle.remove()
        for name in order:
            for some, one in zip(company[name], seen.get(name, []), strict=False):
                if one.shape == (2, *some.shape[1:]) and not torch.allclose(
                    some[:1].float(), one[:1].float(), rtol=1e-3, atol=1e-5
                ):
                    return MEETS.format(f"layer {name!r}" if name else "the module itself")
        return MEETS.format("the module itself")

    def _divisions(self, kept: Attributes, first: Outputs) -> list[list[Part]]:
        """Outputs of halves of the examples, for modules that compute losses.

        There are several splits: two halves may have the same number of tokens by chance.
        """
        if not any(output.numel() == 1 for output in first.values()):
            return []
        members = list(self.few)
        return [
            self._halves(kept, random.SystemRandom().sample(members, len(members)))
            for _ in range(DIVISIONS)
        ]

    def _halves(self, kept: Attributes, members: Sequence[int]) -> list[Part]:
        middle = (len(members) + 1) // 2
        with torch.no_grad():
            return [self._part(kept, half) for half in (members[:middle], members[middle:])]

    def _part(self, kept: Attributes, members: Sequence[int]) -> Part:
        passed = [*members, *members] if len(members) == 1 else members
        return Part(self._plain(kept, passed), len(members), len(passed))

    def _alone(self, kept: Attributes, member: int) -> Outputs:
        return self._plain(kept, [member, member])

    @property
    def _chance(self) -> float:
        """The one number that replaces what torch draws."""
        return random.Random(self.seed).uniform(0.02, 0.98)

    def _plain(self, kept: Attributes, members: Sequence[int], seed: int | None = None) -> Outputs:
        seed = self.seed if seed is None else seed
        kept.put_back_counts(seed)
        self.wrapped.mute()
        try:
            args, kwargs = self.take(self.arguments, self.count, members)
            with FixedDraws(self._chance), seeded(seed):
                returned = self.wrapped._module(*args, **kwargs)
        except Exception as problem:  # a module that cannot handle so few is not judged
            raise UnclearError(
                f"it fails on some of the examples: {first_sentence(problem)}"
            ) from problem
        return outputs_of(self.wrapped._module, returned, kept.tensors)

    def _by_example(self, kept: Attributes) -> Outputs:
        kept.put_back_counts(self.seed)
        self.wrapped.watch.clear()
        args, kwargs = self.take(self.arguments, self.count, self.few)
        try:
            with FixedDraws(self._chance), seeded(self.seed):
                returned = self.wrapped.by_example(args, kwargs, len(self.few))
        except MmccError:
            raise
        except Exception as problem:
            words = self.wrapped.impossible(problem)
            self._plain(kept, self.few)  # inconclusive, if that fails too
            raise RunError(words) from problem
        return outputs_of(self.wrapped._module, returned, kept.tensors)

    def _backward(self, outputs: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
        try:
            with torch.autocast(outputs[0].device.type, enabled=False):
                torch.autograd.backward(outputs, weights)
        except MmccError:
            raise
        except Exception as problem:
            raise RunError(self.wrapped.impossible(problem)) from problem

    def _allowed(self, tensors: Sequence[Tensor], dtypes: Iterable[torch.dtype] = ()) -> Tolerance:
        device = tensors[0].device
        kinds = [*dtypes, *(tensor.dtype for tensor in tensors)]
        if torch.is_autocast_enabled(device.type):
            kinds.append(torch.get_autocast_dtype(device.type))
        return tolerance(device, kinds)


@dataclass(frozen=True)
class Part:
    """A part of the examples: its outputs, how many it has, and how many were passed for them."""

    outputs: Outputs
    size: int
    passed: int

    def loss(self, name: str) -> float:
        """The part's loss."""
        return float(self.outputs[name])


def outputs_of(module: nn.Module, returned: Any, before: Mapping[int, Tensor]) -> Outputs:
    """The outputs of a pass: the tensors that it returns, and losses that it stores at layers."""
    found = {
        str(place): tensor
        for place, tensor in enumerate(tensors_of(returned))
        if tensor.is_floating_point()
    }
    return {**found, **dict(left_at_layers(module, before))}


def _of_one(
    gradients: ExampleGradients, squares: Mapping[nn.Parameter, Tensor | None], place: int
) -> Callable[[nn.Parameter], tuple[Tensor | None, Tensor | None]]:
    """The gradient of the example at an index, and its norm as clipping computes it."""

    def of_one(parameter: nn.Parameter) -> tuple[Tensor | None, Tensor | None]:
        known = squares[parameter]
        return gradients.row(parameter, place), None if known is None else known[place].sqrt()

    return of_one


def _note(seen: dict[str, list[Tensor]], name: str) -> Callable[..., None]:
    def note(_layer: nn.Module, _inputs: Any, outputs: Any) -> None:
        tensors = (tensor.detach() for tensor in tensors_of(outputs))
        seen[name] = [tensor for tensor in tensors if tensor.dim()]

    return note


def _apart(found: Tensor, truth: Tensor) -> Tensor:
    """How far apart outputs are; entries infinite in both, such as masked scores, are equal."""
    both = (found == truth) & found.isinf()
    return difference(found.masked_fill(both, 0.0), truth.masked_fill(both, 0.0))


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _disagreeing(apart: Sequence[Tensor], allowed: Tolerance) -> int | None:
    rows = torch.stack([row.double().cpu() for row in apart])
    if not rows[:, 1].isfinite().all():
        raise UnclearError("an example has no finite gradient")  # it counts as zero
    return worst(torch.nan_to_num(rows, nan=torch.inf).tolist(), allowed)


def _is_sum(parts: Sequence[float], whole: float, allowed: float) -> bool:
    """Whether a loss is the sum of others; one that is not finite may be."""
    apart = abs(math.fsum(parts) - whole) if all(map(math.isfinite, parts)) else math.nan
    return not apart > allowed * math.fsum(map(abs, parts))


def _numbers(output: Tensor) -> Tensor:
    """Random numbers in the shape of an output, from a generator of their own."""
    own = torch.Generator().manual_seed(secrets.randbits(63))
    return torch.randn(output.shape, generator=own, dtype=torch.float32).to(output)
