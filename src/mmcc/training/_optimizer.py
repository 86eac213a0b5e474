"""The optimizer: clipped gradients of the right batch, the right noise, a public divisor.

In: per-example gradients, as far as clipping needs them.  Out: `p.grad`, and a step of the wrapped
optimizer.
Rounding: floating point as in Opacus.  Clipped norms and noise are right up to rounding errors,
which no guarantee here takes into account.
"""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from mmcc.accounting._guarantee import Guarantee
from mmcc.training._accelerate import Prepared, check_place, check_setting
from mmcc.training._example_gradients import summed_type
from mmcc.training._gradient_agreement import check_gradients, wrong_count
from mmcc.training._mechanism import Mechanism, spent_by
from mmcc.training._module_contents import forget_gradients
from mmcc.training._peers import ENDING, STEPPING
from mmcc.training._run import PhysicalBatch, RunError, TrainingRun

FROM_OUTSIDE = (
    "parameter {!r} is used outside the layers of the module's forward, where per-example "
    "gradients are not found (a weight that is used directly; a penalty on weights in the loss, "
    "for which there is the optimizer's weight_decay)."
)


def _fixed(name: str) -> Any:
    """An attribute of Opacus's optimizer that the mechanism determines."""

    def get(self: PrivateOptimizer) -> Any:
        return getattr(self.run.mechanism, name)

    def settle(self: PrivateOptimizer, value: Any) -> None:
        if value != get(self):
            raise RunError(
                f"{name} is {get(self)!r} for the whole run: clipping and noise are those that "
                "were accounted for, and no schedule may change them."
            )

    return property(get, settle)


class PrivateOptimizer(Prepared, DPOptimizer):
    """Any torch optimizer, stepping on the released gradients of a run.

    `step()` works on one physical batch: it clips and sums, and with the last part of a logical
    batch it adds the noise of this step, divides, and lets the wrapped optimizer step.
    """

    max_grad_norm = _fixed("max_grad_norm")
    noise_multiplier = _fixed("sigma")
    expected_batch_size = _fixed("expected_batch_size")
    loss_reduction = _fixed("loss_reduction")

    def __init__(self, optimizer: Optimizer, run: TrainingRun) -> None:
        mechanism = run.mechanism
        self.run = run
        self._watch = run.watch
        self._sharding = run.sharding
        self._releasing = False
        self._parameters: tuple[Any, ...] = tuple(run.watch.trained)
        self._stepped: tuple[Any, ...] = tuple(run.masters.stepped)
        run.masters.take_over(optimizer)
        super().__init__(
            optimizer,
            noise_multiplier=mechanism.sigma,
            max_grad_norm=mechanism.max_grad_norm,
            expected_batch_size=mechanism.expected_batch_size,
            loss_reduction=mechanism.loss_reduction,
        )
        self._forget_sums()
        self._names = [run.watch.names[p] for p in self._parameters]
        self._parts = mechanism.clipping.parts(self._names)
        self._optimizer_step_pre_hooks: OrderedDict[int, Any] = OrderedDict()
        self._optimizer_step_post_hooks: OrderedDict[int, Any] = OrderedDict()
        optimizer.register_step_pre_hook(self._refuse_others)
        warn_of_plateaus(optimizer, self)

    @property
    def mechanism(self) -> Mechanism:
        """What this run does to the data."""
        return self.run.mechanism

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the whole run, which an early stop does not change.

        Deciding when to stop from what was released is post-processing of the full run.
        """
        return self.run.guarantee

    def spent(self) -> Guarantee:
        """What the steps done would have cost, had the run been declared to end here.

        It is not what this run costs if it ends here because of what was seen: the decision to stop
        then depended on what was released, and the whole run's `guarantee` holds.  `stop_after`
        declares an end in advance.  Each call runs the accounting, which may take a while.
        """
        return spent_by(self.mechanism, self.guarantee, self.position)

    @property
    def position(self) -> int:
        """The number of steps done."""
        return self.run.position

    @property
    def finished(self) -> bool:
        """Whether all accounted steps are done."""
        return self.run.finished

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool:
        """Clip, sum, and with the last part of the batch release; whether there was a release."""
        if self._sharding.spread:
            self.run.meet(STEPPING)
        with self._watch.agreeing():
            self._check_parameters()
            batch = self.run.take()
            self._check_counts(batch)
            factors, counted = self._factors(batch)
        if batch.chunk == 0:
            self._forget_sums()
        self._add_clipped(factors, counted)
        self.run.summed()
        self._is_last_step_skipped = not batch.last
        if not batch.last:
            return False
        self.sum_over_processes()
        self.add_noise()
        self.scale_grad()
        if self.step_hook:
            self.step_hook(self)
        return True

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Work on the earliest batch that the loader handed out and that still waits."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self.pre_step():
            self.run.updated()
            return loss
        self._step_inside()
        if self.finished:
            self.end()
        return loss

    def _step_inside(self) -> None:
        """Let the wrapped optimizer step, with the hooks that were registered here."""
        for before in tuple(self._optimizer_step_pre_hooks.values()):
            before(self, (), {})
        self.run.masters.refresh()
        self._releasing = True
        try:
            self.original_optimizer.step()
        finally:
            self._releasing = False
        self.run.masters.write_back()
        self._sharding.settle()
        torch.clear_autocast_cache()  # it holds the old weights if the loop is inside autocast
        self.run.updated()
        for after in tuple(self._optimizer_step_post_hooks.values()):
            after(self, (), {})

    def _refuse_others(self, *_: Any) -> None:
        """Refuse a step of the wrapped optimizer that does not come from here: it has no noise."""
        if not self._releasing:
            raise RunError(
                "this is the optimizer that was given to make_private, and a step of it would "
                "train without clipping and noise. Call step() of the optimizer that make_private "
                "returned."
            )

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Only GradScaler reads this: the losses of this run must not be scaled."""
        raise RunError(
            "GradScaler scales the loss, so every gradient would be clipped as if it were "
            "thousands of times as long. Use autocast with bfloat16, which needs no scaler."
        )

    def _meet_accelerate(self, state: Any) -> None:
        """Refuse parameters on another device than accelerate's."""
        check_setting(state, self.run)
        check_place(state, self._parameters)

    @property
    def step_was_skipped(self) -> bool:
        """Accelerate asks this before a schedule advances: a part of a batch is not a step."""
        return self._is_last_step_skipped

    @property
    def optimizer(self) -> Optimizer:
        """Where accelerate looks for the optimizer of a schedule."""
        inner: Optimizer = self.original_optimizer
        return inner

    def end(self) -> None:
        """Declare, before all steps are done, that no step follows: a ledger records the end."""
        if not self.run.ended:
            self.run.meet(ENDING)
            self.run.end()

    def clip_and_accumulate(self) -> None:
        """Refused: a batch whose gradients are added twice is released twice."""
        raise RunError("call step() instead: it clips and sums the gradients of its batch, once.")

    def _factors(self, batch: PhysicalBatch) -> tuple[Tensor, Tensor]:
        """The factors that clip each example's gradient, part by part, and which examples count.

        A gradient that is not finite has no norm, and its effect on the sum would show that its
        example is there: it counts as zero.  So does that of a row of padding.
        """
        squares = self._squares(batch.size)
        if batch.size:
            self._check_sums(squares)
            self._watch.forget_ordinary()
        parts = squares.new_zeros(batch.size, max(self._parts) + 1)
        parts.index_add_(1, torch.tensor(self._parts, device=squares.device), squares)
        counted = parts.isfinite().all(dim=1)
        counted[batch.members :] = False
        return self.mechanism.clipping.factors(parts, self.max_grad_norm), counted

    def _add_clipped(self, factors: Tensor, counted: Tensor) -> None:
        """Add each example's gradient to the sum, times the factor that clips it."""
        gradients = self._watch.gradients
        for p, stepped, part in zip(self._parameters, self._stepped, self._parts, strict=True):
            total = p.summed_grad
            if total is None or self._sharding.spread:
                total = torch.zeros_like(p, dtype=summed_type(p.dtype)).detach()
            gradients.add(total, p, factors[:, part], counted)
            gradients.forget([p])  # no gradient counts twice
            p.grad = None  # where backward has left the sum without clipping and noise
            if self._sharding.spread:  # whole totals of all parameters might not fit
                total = self._sharding.share(total, stepped)
                total = total if p.summed_grad is None else p.summed_grad.add_(total)
            p.summed_grad = total

    def _squares(self, count: int) -> Tensor:
        """Squared norms of each example's gradient: a row an example, a column a parameter."""
        columns = [self._watch.gradients.squares(p) for p in self._parameters]
        present = [column for column in columns if column is not None]
        if not present or not count:
            return torch.zeros(count, len(columns))
        nothing = torch.zeros_like(present[0])
        kind = max((column.dtype for column in present), key=lambda dtype: dtype.itemsize)
        return torch.stack(
            [(nothing if c is None else c).to(nothing.device, kind) for c in columns], dim=1
        )

    def _check_sums(self, squares: Tensor) -> None:
        """Refuse per-example gradients whose sum is not the gradient that autograd found."""
        if not self._watch.close:
            return
        gradients, count = self._watch.gradients, len(squares)
        truths = [self._watch.ordinary(p) for p in self._parameters]
        if not self._watch.finds_ordinary:
            self._check_inside(truths)
        else:
            ones = torch.ones(count, device=squares.device)
            sums = (gradients.total(p, ones) for p in self._parameters)
            kinds = gradients.dtypes()
            if not check_gradients(self._names, truths, sums, squares, kinds, self.loss_reduction):
                return
        if count > 1:
            self._watch.seen()

    def _check_inside(self, truths: Sequence[Tensor | None]) -> None:
        """Refuse ordinary gradients: expanded weights leave none, so they come from elsewhere."""
        for name, truth in zip(self._names, truths, strict=True):
            if truth is not None and truth.any():
                raise RunError(FROM_OUTSIDE.format(name))

    def sum_over_processes(self) -> None:
        """Add up the sums of all processes, each of which has a part of the batch."""
        if self._sharding.spread:  # done already, chunk by chunk
            return
        sums = [p.summed_grad for p in self._parameters]
        totals = self.run.peers.sum(sums, self.position, self._stepped)
        for p, total in zip(self._parameters, totals, strict=True):
            p.summed_grad = total

    def add_noise(self) -> None:
        """Add the noise of this step, in units of the clip norm; from here on the step is done."""
        each = zip(self._parameters, self._stepped, self.run.draw(), strict=True)
        for p, stepped, noise in each:
            stepped.grad = p.summed_grad.add_(noise, alpha=self.max_grad_norm)
            p.summed_grad = None

    def scale_grad(self) -> None:
        """Divide by the expected batch size: the real one is private."""
        if self.loss_reduction == "mean":
            for p in self._stepped:
                p.grad /= self.expected_batch_size

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clear gradients; sums of an incomplete logical batch are kept."""
        self._watch.gradients.forget(self._parameters)
        forget_gradients(set(self._parameters).difference(self._stepped))
        self.original_optimizer.zero_grad(set_to_none)

    def signal_skip_step(self, do_skip: bool = True) -> None:
        """Refused: BatchMemoryManager would split batches of a loader that is not the run's."""
        raise RunError(
            "Opacus's BatchMemoryManager uses a loader of its own; use "
            "make_private(..., physical_batch_size=...), which splits the accounted batches."
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused: the noise is made for the parameters that make_private got."""
        raise RunError("the parameters are fixed: add them to the optimizer before make_private.")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refused: such a state has neither the noise nor the position of the run."""
        raise RunError(
            "the state of an optimizer does not say which steps were made with which noise: use "
            "mmcc.training.load_checkpoint. To start a new run from trained parameters, load both "
            "before make_private; then both runs count."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivateOptimizer:
        raise RunError("an optimizer belongs to one run and cannot be copied: copy the module.")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RunError("a run's optimizer cannot be pickled: use mmcc.training.save_checkpoint.")

    def accept_buffers(self) -> None:
        """Declare that the present content of the module's buffers does not depend on the data."""
        self.run.check_between_steps("new content of buffers")
        self._watch.contents.accept()

    def _forget_sums(self) -> None:
        for p in self._parameters:
            p.summed_grad = None

    def _check_parameters(self) -> None:
        present = self.params
        frozen = not all(p.requires_grad for p in self._parameters)
        if frozen or [*map(id, present)] != [*map(id, self._stepped)]:
            raise RunError(
                "the trainable parameters are not those that make_private got: freeze and unfreeze "
                "before make_private, as clipping and noise are over all of them together."
            )
        known = set(self._stepped)
        held = [p for group in self.original_optimizer.param_groups for p in group["params"]]
        moved = next((p for p in held if p not in known and p.grad is not None), None)
        if moved is not None:  # optimizers look for a gradient, not for requires_grad
            name = self._watch.contents.names.get(moved)
            raise RunError(
                f"{'a tensor' if name is None else repr(name)} that this run does not train has a "
                "gradient, with which the optimizer would move it without clipping and noise. Keep "
                "it frozen in the forward pass too, or set its gradient to None."
            )

    def _check_counts(self, batch: PhysicalBatch) -> None:
        """Refuse gradients that are not one for each example.

        A parameter without any must have none by plain autograd either, as when the loss does not
        depend on it: the backward pass ran, and left nothing.
        """
        counts = [sum(self._watch.gradients.counts(p)) for p in self._parameters]
        if batch.size and not any(counts):
            raise RunError(
                f"the loader handed out {batch.size} examples, but no parameter has per-example "
                "gradients: call loss.backward() before optimizer.step(), after a pass of the "
                "module in training mode."
            )
        for name, p, count in zip(self._names, self._parameters, counts, strict=True):
            outside = p.grad is not None or p in self._watch.outside
            if count != batch.size and not (count == 0 and not outside):
                raise RunError(wrong_count(name, count, batch.size))
            if batch.size and outside and not self._watch.gradients.leaves_ordinary:
                raise RunError(FROM_OUTSIDE.format(name))


_WATCHED: weakref.WeakKeyDictionary[Optimizer, list[bool]] = weakref.WeakKeyDictionary()
"""Optimizers of runs, and whether the run's warning was already given."""


def warn_of_plateaus(*optimizers: Optimizer) -> None:
    """Warn, once, when a plateau schedule sets the rate of one of these optimizers of one run.

    Any number from the training data that changes the learning rate is a release that carries no
    noise.  Which data the number comes from cannot be detected.
    """
    told = [False]
    for optimizer in optimizers:
        _WATCHED[optimizer] = told
    if not hasattr(ReduceLROnPlateau.step, "__wrapped__"):
        # A schedule tells its optimizer nothing, so the call can only be noticed here.
        ReduceLROnPlateau.step = _watched(ReduceLROnPlateau.step)  # type: ignore[method-assign]


def _watched(step: Any) -> Any:
    @wraps(step)
    def watched(self: ReduceLROnPlateau, *args: Any, **kwargs: Any) -> Any:
        told = _WATCHED.get(self.optimizer)
        if told is not None and not told[0]:
            told[0] = True
            warnings.warn(
                "ReduceLROnPlateau sets the learning rate by the number it is given: if that comes "
                "from the training data, it is a release without noise, which the guarantee does "
                "not cover. Use a schedule that is fixed in advance, or other data.",
                stacklevel=2,
            )
        return step(self, *args, **kwargs)

    return watched
