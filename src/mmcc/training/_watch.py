"""Between a batch and its step: one pass of the module over the batch, and nothing written to it.

In: the module's passes and its content.  Out: refusals, and on which batches to look closely.
Clipping bounds what one example does to the sum of gradients if each row of per-example gradients
is one example's, and if the data leave no other trace in the module.  Neither can be seen from the
gradients alone.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from mmcc.training._example_gradients import ExampleGradients, KeptRows
from mmcc.training._examples import first_tensor, tensors_of
from mmcc.training._module_contents import Contents, forget_gradients
from mmcc.training._peers import PASSING
from mmcc.training._run import PhysicalBatch, RunError, TrainingRun
from mmcc.training._sharding import Sharding

FIRST = 3
"""Batches at the beginning that are inspected; a wrong model shows at once."""
SELDOM = 100
"""Afterwards, one in so many, drawn by the operating system: no loop can predict which."""


class Watch:
    """What a module does from the moment a batch is handed out until its step.

    `close` says whether this batch is inspected, which costs more: gradients are compared with
    those of plain autograd, and everything frozen is read again; `thorough`, whether it is one of
    the first, of which more examples are tried.  `finds_ordinary` says whether the backward pass
    leaves ordinary gradients beside the per-example ones.
    """

    def __init__(
        self,
        module: nn.Module,
        trained: Sequence[nn.Parameter],
        sharding: Sharding,
        *,
        finds_ordinary: bool = True,
    ) -> None:
        self.module = module
        self.sharding = sharding
        self.finds_ordinary = finds_ordinary
        self.contents = Contents(module, trained)
        self.trained = tuple(sharding.trained)
        self.names = {sharding.computed_with(p): n for p, n in self.contents.names.items()}
        self.close = self.thorough = False
        self.close_somewhere = False
        self.outside: set[Tensor] = set()
        """Parameters at which a backward pass has left gradients that are not per example."""
        self.run: TrainingRun | None = None
        self._due = FIRST
        self._passes = 0
        self._sizes: list[int | None] = []
        self._ordinary: dict[Tensor, Tensor] = {}
        self._handles: list[Any] = []
        self._unclear: int | None = 0
        self._coincided: set[int] = set()
        self.gradients: ExampleGradients = KeptRows(self.trained)

    def follow(self, run: TrainingRun) -> None:
        """Use this run's batches, and take the module's present content as correct."""
        self.run = run
        self.contents.accept()

    def guarded(self) -> bool:
        """Whether there are steps to come, so that nothing else may train the module."""
        return self.run is not None and not (self.run.finished or self.run.ended)

    @property
    def in_use(self) -> bool:
        """Whether a pass was made whose step is still to come."""
        return any(size != 0 for size in self._sizes)

    def start_over(self) -> None:
        """Forget what is known about the module: it was loaded anew."""
        self._due, self._passes = FIRST, 0
        self.contents.accept()

    def forget(self) -> None:
        """Drop a pass that will not be followed by its step."""
        self._sizes.clear()
        self.clear()

    def mark(self, size: int) -> None:
        """From now on, until the step on so many examples, nothing may be written to the module."""
        due = self._passes < FIRST or (self._due > 0 and size != 1)  # one alone meets no others
        self.thorough = bool(size) and due
        drawn = secrets.randbelow(SELDOM) == 0 and not (self.sharding.spread and self._rank)
        self.close = bool(size) and (due or drawn)
        self.sharding.settle()
        self.contents.mark(self.close)

    def clear(self) -> None:
        """Remove what passes have left at the parameters and layers."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.gradients.clear()

    def passed(self, inputs: Sequence[Any]) -> int:
        """Note that a pass for gradients is about to be made; returns how many examples it has."""
        batch = first_tensor(inputs)
        size = None if batch is None else len(batch)
        handed = () if self.run is None else self.run.handed
        if self.in_use and size != 0:
            raise RunError(
                f"the module was called for gradients again, with {size} examples, before "
                "optimizer.step() had worked on the previous pass: each batch goes through the "
                "module once, in training mode, followed by optimizer.step(), of the optimizer "
                "that make_private returned. Use torch.no_grad() for anything else."
            )
        if _is_of_later(inputs, handed):
            raise RunError(
                f"a batch was skipped: this one is of step {handed[1].step} or later, and "
                f"optimizer.step() has not worked on step {handed[0].step}. Call it for every "
                "batch, including empty ones; start iterating over the loader again to go on."
            )
        self._sizes.append(size)
        self.clear()
        forget_gradients(self.trained)  # those of the last step are not of this batch
        self._passes += 1
        self.close_somewhere = self.close
        if self.sharding.spread and self.run is not None:
            self.run.meet(PASSING)
            self.close_somewhere = self.run.peers.any(self.close)
            self.close = bool(size) and self.close_somewhere
        return size or 0

    def agreeing(self) -> AbstractContextManager[None]:
        """Processes that share parameters continue together, or not at all."""
        shared = self.sharding.spread and self.run is not None
        return self.run.peers.agreeing() if self.run is not None and shared else nullcontext()

    @property
    def _rank(self) -> int:
        return 0 if self.run is None else self.run.peers.rank

    def members(self, count: int) -> int:
        """How many of a pass's rows are examples: padding comes last."""
        handed = () if self.run is None else self.run.handed
        padded = bool(handed) and handed[0].size == count
        return handed[0].members if padded else count

    def expect_gradients(self) -> None:
        """Keep what the coming backward pass finds, whatever is done to `p.grad` afterwards."""
        self._ordinary = {}
        self.outside.clear()
        if self.close or self.sharding.spread:
            self._handles = [
                p.register_post_accumulate_grad_hook(self._keep)  # type: ignore[no-untyped-call]
                for p in self.trained
                if p.requires_grad
            ]

    def _keep(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        found = parameter.grad.detach()
        if found.is_sparse:
            found = found.to_dense()
        elif self.gradients.leaves_ordinary:
            found = found.clone()
        if not self.close:  # FSDP would add up what it finds, even the zeros of an empty batch
            parameter.grad = None
            self.outside.add(parameter)
            return
        if not self.gradients.leaves_ordinary:  # as on all batches that are not inspected
            parameter.grad = None
            earlier = self._ordinary.get(parameter)
            found = found if earlier is None else found + earlier
        self._ordinary[parameter] = found

    def ordinary(self, parameter: Tensor) -> Tensor | None:
        """The gradient that the backward pass has found; None if the loss did not depend on it."""
        return self._ordinary.get(parameter)

    def forget_ordinary(self) -> None:
        """Free what the backward pass found: it was compared, and is as large as the parameters."""
        self._ordinary = {}

    def seen(self) -> None:
        """Note that a batch of several examples was fully inspected."""
        self._due = max(0, self._due - 1)

    def check(self, batch: PhysicalBatch) -> None:
        """Refuse a step that does not follow one pass over the batch, with nothing written."""
        sizes, self._sizes = self._sizes, []
        mattering = sizes if batch.size else [size for size in sizes if size] or [0]
        if mattering != [batch.size]:
            raise RunError(
                f"the loader handed out {batch.size} examples, but the module was called "
                f"{len(sizes)} times, with {sizes} of them in the first dimension of its first "
                "tensor: each example must go through the module once for each batch, in training "
                "mode. Use torch.no_grad() for anything else."
            )
        self.sharding.settle()
        changed = self.contents.changed(self.close)
        if changed:
            raise RunError(
                f"{changed}: what the data wrote there carries no noise. Leave out layers that "
                "keep statistics (BatchNorm, running means) or change their weights in the forward "
                "pass, such as Embedding(max_norm=...)."
            )

    def is_about_examples(self, tensors: Sequence[Tensor], count: int) -> bool:
        """Whether tensors with a row for each of `count` examples are about them.

        They are if they came with the batch, or if they also had as many rows as there were
        examples in a batch of another size.
        """
        self._coincided.add(count)
        batch = self.run.handed[:1] if self.run is not None else ()
        return len(self._coincided) > 1 or any(
            _is_of([tensor], one) for one in batch for tensor in tensors
        )

    def note_clear(self) -> None:
        """Note that a rehearsal was conclusive."""
        self._unclear = None

    def note_unclear(self, why: str) -> None:
        """Note an inconclusive rehearsal; if all of the first ones are, warn."""
        if self._unclear is None:
            return
        self._unclear += 1
        if self._unclear == FIRST:
            self._unclear = None
            warnings.warn(
                "the module's per-example gradients could not be compared with those of its "
                f"examples alone ({why}): whether examples interact in it is not checked.",
                stacklevel=5,
            )


def _is_of_later(inputs: Sequence[Any], handed: Sequence[PhysicalBatch]) -> bool:
    """Whether inputs are of a batch beyond the next one."""
    if len(handed) < 2:
        return False
    used = list(tensors_of(inputs))
    return not _is_of(used, handed[0]) and any(_is_of(used, batch) for batch in handed[1:])


def _is_of(used: Sequence[Tensor], batch: PhysicalBatch) -> bool:
    """Whether a tensor is one of the batch's: has the same memory, or the same content."""
    return any(
        tensor.numel() > 0
        and tensor.shape == part.shape
        and tensor.dtype == part.dtype
        and (tensor.data_ptr() == part.data_ptr() or torch.equal(tensor, part.to(tensor.device)))
        for tensor in used
        for part in batch.content
    )


def refuse_packed(_layer: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Refuse packed sequences in recurrent layers: they sort examples and their gradients."""
    if any(isinstance(entry, nn.utils.rnn.PackedSequence) for entry in inputs):
        raise RunError(
            "a recurrent layer got a PackedSequence, whose rows need not be in the order of the "
            "batch, so gradients of different examples would be clipped as one. Pass padded "
            "sequences."
        )
