"""Between a batch and its step: one pass of the module over the batch, and nothing written down.

In: the module's passes and its content.  Out: refusals, and on which batches to look closely.
Clipping bounds what one example does to the sum of gradients if each row of per-example gradients
is one example's, and if the data leave no other trace in the module.  Neither can be seen from the
gradients alone.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmcc.training._examples import first_tensor, tensors_of
from mmcc.training._run import Batch, Run, RunError

LEFT = ("activations", "max_batch_len")
"""What Opacus keeps at a layer between a forward pass and its backward pass."""
FIRST = 3
"""Batches at the beginning that are looked at closely; a wrong model shows at once."""
SELDOM = 100
"""After these one of so many, drawn by the operating system: no loop can know which."""
WORD = 8
"""Bytes that are added up at once."""


class Watch:
    """What a module does from the moment a batch is handed out until its step.

    `close` says whether this batch is one of those that cost more: gradients are compared with
    those of plain autograd, and all that is frozen is read again; `thorough`, whether it is one of
    the first, of which more examples are tried.  `finds_ordinary` says whether
    the backward pass leaves ordinary gradients beside those by example.
    """

    def __init__(
        self, module: nn.Module, trained: Sequence[nn.Parameter], *, finds_ordinary: bool = True
    ) -> None:
        self._module = module
        self.finds_ordinary = finds_ordinary
        self.trained = tuple(trained)
        self.names = {p: name for name, p in module.named_parameters()}
        self.close = self.thorough = False
        self._run: Run | None = None
        self._due = FIRST
        self._passes = 0
        self._sizes: list[int | None] = []
        self._ordinary: dict[Tensor, Tensor] = {}
        self._handles: list[Any] = []
        self._content: list[int] = []
        self._frozen: list[int] = []
        self._versions: list[int] = []
        self._unclear: int | None = 0
        self._coincided: set[int] = set()
        self.hooked: Sequence[nn.Module] = ()

    def follow(self, run: Run) -> None:
        """Of this run are the batches."""
        self._run = run

    def guarded(self) -> bool:
        """Whether there are steps to come, so that nothing else may train the module."""
        return self._run is not None and not (self._run.finished or self._run.ended)

    @property
    def in_use(self) -> bool:
        return any(size != 0 for size in self._sizes)

    def start_over(self) -> None:
        self._due, self._passes, self._versions = FIRST, 0, []

    def forget(self) -> None:
        self._sizes.clear()
        self.clear()

    def mark(self, size: int) -> None:
        due = self._passes < FIRST or (self._due > 0 and size != 1)  # one alone cannot meet others
        self.thorough = bool(size) and due
        self.close = bool(size) and (due or secrets.randbelow(SELDOM) == 0)
        self._content = check_sums(tensor for _, tensor in self._small())
        versions = self._present_versions()
        if self.close or versions != self._versions:
            self._frozen = check_sums(tensor for _, tensor in self._kept())
        self._versions = versions

    def clear(self) -> None:
        """Take away what passes have left at the parameters and layers."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for parameter in self.trained:
            parameter.grad_sample = None  # type: ignore[attr-defined]
            if hasattr(parameter, "_forward_counter"):
                parameter._forward_counter = 0
            parameter.__dict__.pop("_current_grad_sample", None)
        for layer in self.hooked:
            for name in LEFT:
                layer.__dict__.pop(name, None)

    def passed(self, inputs: Sequence[Any]) -> None:
        """The module is about to make a pass for gradients."""
        batch = first_tensor(inputs)
        size = None if batch is None else len(batch)
        handed = () if self._run is None else self._run.handed
        if self.in_use and size != 0:
            raise RunError(
                f"the module was called for gradients again, with {size} examples, before "
                "optimizer.step() had worked on the pass before: each batch goes through the "
                "module once, in training mode, and then comes optimizer.step(), of the optimizer "
                "that make_private returned. Use torch.no_grad() for anything else."
            )
        if _is_of_later(inputs, handed):
            raise RunError(
                f"a batch was skipped: this one is of step {handed[1].step} or later, and "
                f"optimizer.step() has not worked on step {handed[0].step}. Call it for every "
                "batch, also for an empty one; iterate over the loader anew to go on."
            )
        self._sizes.append(size)
        self.clear()
        for parameter in self.trained:
            parameter.grad = None  # what the last step has left there is no gradient of this batch
        self._passes += 1

    def expect_gradients(self) -> None:
        """Keep what the coming backward pass finds, whatever is done to `p.grad` after it."""
        self._ordinary = {}
        if self.close:
            self._handles = [
                p.register_post_accumulate_grad_hook(self._keep)  # type: ignore[no-untyped-call]
                for p in self.trained
                if p.requires_grad
            ]

    def _keep(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        found = parameter.grad.detach()
        self._ordinary[parameter] = found.to_dense() if found.is_sparse else found.clone()

    def ordinary(self, parameter: Tensor) -> Tensor | None:
        """The gradient that the backward pass has found; None if the loss did not depend on it."""
        return self._ordinary.get(parameter)

    def seen(self) -> None:
        """A batch of several examples was looked at closely, to the end."""
        self._due = max(0, self._due - 1)

    def check(self, batch: Batch) -> None:
        sizes, self._sizes = self._sizes, []
        mattering = sizes if batch.size else [size for size in sizes if size] or [0]
        if mattering != [batch.size]:
            raise RunError(
                f"the loader handed out {batch.size} examples, and the module was called "
                f"{len(sizes)} times, with {sizes} of them in the first dimension of its first "
                "tensor: each example goes through the module once for each batch, in training "
                "mode. Use torch.no_grad() for anything else."
            )
        changed = self._changed()
        if changed is not None:
            raise RunError(
                f"{changed!r}, a parameter or buffer of the module, changed between a batch and "
                "its step: what the data wrote there carries no noise. Leave out layers that keep "
                "statistics or change their weights in the forward pass, such as "
                "Embedding(max_norm=...)."
            )

    def _changed(self) -> str | None:
        """What was written to, also behind autograd's back.

        What is frozen is large and read in full on close batches, and where torch has counted
        a change; what was written there and put back is no change.
        """
        tensors = dict(self._small())
        names, before, present = [*tensors], self._content, check_sums(tensors.values())
        if self.close or self._present_versions() != self._versions:
            kept = dict(self._kept())
            names, before = [*names, *kept], [*before, *self._frozen]
            present += check_sums(kept.values())
        for name, found, expected in zip(names, present, before, strict=True):
            if found != expected:
                return name
        return None

    def _present_versions(self) -> list[int]:
        return [tensor._version for _, tensor in self._kept()]

    def is_about_examples(self, tensors: Sequence[Tensor], count: int) -> bool:
        """Whether tensors with a row for each of `count` examples are about them.

        They are if they came with the batch, or if they had as many rows as there were examples
        in a batch of another size too.
        """
        self._coincided.add(count)
        batch = self._run.handed[:1] if self._run is not None else ()
        return len(self._coincided) > 1 or any(
            _is_of([tensor], one) for one in batch for tensor in tensors
        )

    def note_clear(self) -> None:
        """A rehearsal has said something about the module."""
        self._unclear = None

    def note_unclear(self, why: str) -> None:
        """A rehearsal could say nothing; if none of the first could, that is told."""
        if self._unclear is None:
            return
        self._unclear += 1
        if self._unclear == FIRST:
            self._unclear = None
            warnings.warn(
                "the module's gradients by example could not be compared with those of its "
                f"examples alone ({why}): whether examples meet in it is not checked.",
                stacklevel=5,
            )

    def _small(self) -> Iterator[tuple[str, Tensor]]:
        """What may change from step to step: trained parameters and buffers."""
        yield from ((self.names[p], p) for p in self.trained)
        yield from self._module.named_buffers()

    def _kept(self) -> Iterator[tuple[str, Tensor]]:
        """What is frozen."""
        trained = set(self.trained)
        yield from ((n, p) for n, p in self._module.named_parameters() if p not in trained)


def check_sums(tensors: Iterable[Tensor]) -> list[int]:
    """Of each tensor's bits, modulo 2^64: where one bit differs, so does it.

    Reads all bytes once; the host gets all sums at once.
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
    content = tensor.detach()
    if content.is_complex():
        content = torch.view_as_real(content)
    flat = content.contiguous().view(-1).view(torch.uint8)
    over = len(flat) % WORD
    words = flat[: len(flat) - over] if over else flat
    if flat.storage_offset() % WORD:
        words = words.clone()  # words begin at multiples of their length
    total: Tensor = words.view(torch.int64).sum()
    return total + flat[-over:].sum(dtype=torch.int64) if over else total


def _is_of_later(inputs: Sequence[Any], handed: Sequence[Batch]) -> bool:
    """Whether inputs are of a batch whose turn has not come, and not of the next."""
    if len(handed) < 2:
        return False
    used = list(tensors_of(inputs))
    return not _is_of(used, handed[0]) and any(_is_of(used, batch) for batch in handed[1:])


def _is_of(used: Sequence[Tensor], batch: Batch) -> bool:
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
    """For recurrent layers: a packed sequence sorts its examples, and its gradients with them."""
    if any(isinstance(entry, nn.utils.rnn.PackedSequence) for entry in inputs):
        raise RunError(
            "a recurrent layer got a PackedSequence, whose rows need not be in the order of the "
            "batch, so that gradients of different examples would be clipped as one. Pass padded "
            "sequences."
        )
