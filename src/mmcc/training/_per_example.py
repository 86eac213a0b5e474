"""Modules that leave the gradients of each example at their parameters: `p.grad_sample`.

In: a module, and the batches that it is called with.  Out: the module's own outputs; after the
backward pass, one row of gradients for each example.
Opacus makes the rows, by hooks or by torch's expanded weights.  What it cannot do is refused here,
with the name of the layer; whether the rows are right is checked before the first batches, and
now and then (`mmcc.training._rehearsal`).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from types import TracebackType
from typing import Any

import torch
from opacus.grad_sample import (
    AbstractGradSampleModule,
    GradSampleModule,
    GradSampleModuleExpandedWeights,
)
from opacus.layers.dp_rnn import DPGRU, DPLSTM, DPRNN, RNNLinear
from torch import Tensor, nn
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

from mmcc.errors import MmccError
from mmcc.training._accelerate import Prepared, check_setting, precision
from mmcc.training._example_gradients import KeptRows
from mmcc.training._examples import tensors_of
from mmcc.training._gradient_agreement import first_sentence
from mmcc.training._module_contents import tensors_at_layers
from mmcc.training._rehearsal import rehearse
from mmcc.training._run import RunError, TrainingRun
from mmcc.training._sharding import kind_of
from mmcc.training._trial import outputs_of
from mmcc.training._watch import Watch


class Watched(Prepared, AbstractGradSampleModule):
    """A module that checks each pass for gradients, on some batches closely, and then makes it."""

    watch: Watch
    precision: AbstractContextManager[Any] = nullcontext()
    """The context of passes: autocast, if accelerate was told so."""

    def _meet_accelerate(self, state: Any) -> None:
        """Adopt accelerate's precision for passes."""
        assert self.run is not None
        check_setting(state, self.run)
        self.precision = precision(state)

    @property
    def run(self) -> TrainingRun | None:
        """The run that this module is trained by."""
        return self.watch.run

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.precision:
            return self._forward(*args, **kwargs)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return self._module(*args, **kwargs)
        count = self.watch.passed((args, kwargs))
        before = tensors_at_layers(self._module) if self.watch.close else {}
        with self._inside():
            unusable = self._rehearsed(args, kwargs, count)
            self.watch.expect_gradients()
            returned = self.by_example(args, kwargs, count, ordinary=self.watch.close)
        if unusable:
            for name, output in outputs_of(self._module, returned, before).items():
                if name in unusable and output.requires_grad:
                    output.register_hook(_refusing(unusable[name]))  # type: ignore[no-untyped-call]
        return returned

    def _rehearsed(self, args: Any, kwargs: Any, count: int) -> dict[str, str]:
        """Outputs that no loss may use, and why; on most batches nothing is checked."""
        if not self.watch.close_somewhere:
            return {}
        with self.watch.sharding.gathered(), self.watch.agreeing():
            return rehearse(self, args, kwargs, count) if self.watch.close else {}

    @contextmanager
    def _inside(self) -> Iterator[None]:
        self.__dict__["_called"] = True
        try:
            yield
        finally:
            self.__dict__["_called"] = False

    def guard(self) -> None:
        """While there is a run, refuse passes for gradients that bypass this wrapper."""
        self._guard = self._module.register_forward_pre_hook(_Guard(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Watched:
        """A copy, for averages of weights, say; the run's optimizer ignores a copy's passes."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RunError(
            "a module of a run cannot be pickled, as the keys of its noise would go with it: save "
            "module.to_standard_module().state_dict(), or the run with "
            "mmcc.training.save_checkpoint."
        )

    def _close(self) -> None:
        self._guard.remove()
        super()._close()

    def own_hooks(self) -> list[Any]:
        """Handles of the forward hooks that make the per-example gradients."""
        return []

    @abstractmethod
    def by_example(self, args: Any, kwargs: Any, count: int, *, ordinary: bool = False) -> Any:
        """A pass after which the gradients of each of `count` examples are known.

        If they are `ordinary` too, the backward pass also leaves autograd's own gradients; some
        ways of computing per-example gradients always do.
        """

    def mute(self) -> None:
        """Until the next pass by example, passes are those of the plain module."""

    @cached_property
    def shared(self) -> list[nn.Module]:
        """Layers of the last pass that received one row for all examples."""
        return []

    def lay_out(
        self,
        layer: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        count: int,
        *,
        rebuilt: bool,
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Before a layer whose per-example gradients come from a rule or are `rebuilt`.

        A row that all examples share, such as one row of positions, is repeated for each of them:
        broadcasting would do the same after the layer, but would lose whose gradient is whose.
        """
        others = len(list(tensors_of((args[1:], kwargs))))
        if not args and others == 1:
            raise RunError(
                f"layer {self.layer_name(layer)!r} ({kind_of(layer).__name__}) gets its tensor by "
                "name, but per-example gradients are made from the first argument: call "
                f"layer(x), not layer({next(iter(kwargs))}=x)."
            )
        if others and (rebuilt or not args):
            raise RunError(
                f"layer {self.layer_name(layer)!r} ({kind_of(layer).__name__}) gets more than one "
                "tensor, but per-example gradients of a layer of this type can only be made from "
                "the first. If it holds parameters of its own beside other layers, put them into a "
                "small module with one input."
            )
        if not (args and isinstance(args[0], Tensor) and args[0].dim() > 1 and len(args[0]) == 1):
            return None
        if count > 1:
            self.shared.append(layer)
        return (args[0].expand(count, *args[0].shape[1:]), *args[1:]), kwargs

    def layer_name(self, layer: nn.Module) -> str:
        """A layer's name in the module."""
        return next((name for name, other in self._module.named_modules() if other is layer), "")

    def impossible(self, problem: Exception) -> str:
        """The message for an error that only occurs when per-example gradients are made.

        Layers whose rows were repeated for each example are the likely cause.
        """
        if self.shared:
            return (
                f"layer {self.layer_name(self.shared[0])!r} gets one row for all examples, which "
                "was repeated for each of them, and the module does not add it to theirs by "
                f"broadcasting: {first_sentence(problem)}. Give it one row for each example."
            )
        layer = _innermost(problem.__traceback__)
        if layer is not None and self.layer_name(layer):
            return IMPOSSIBLE.format(f"layer {self.layer_name(layer)!r}", first_sentence(problem))
        known = self.watch.gradients.counts
        left = [self.watch.names[p] for p in self.watch.trained if not known(p)]
        name = f"parameter {left[-1]!r}" if left else "this module"
        return IMPOSSIBLE.format(name, first_sentence(problem))


class Hooked(Watched, GradSampleModule):
    """Opacus's module that makes per-example gradients by hooks."""

    def __init__(self, module: nn.Module, reduction: str, watch: Watch, *, functorch: bool) -> None:
        GradSampleModule.__init__(self, module, loss_reduction=reduction, force_functorch=functorch)
        self.forbid_grad_accumulation()
        self.watch = watch
        self._count = 0
        for layer in module.modules():
            if getattr(layer, "inplace", None) is True:
                setattr(layer, "inplace", False)  # noqa: B010 (not all layers have the attribute)
        rows = KeptRows(watch.trained)
        rows.hooked = list(self.iterate_submodules(module))
        watch.gradients = rows
        for layer in rows.hooked:
            if type(layer) not in (DPRNN, DPLSTM, DPGRU, RNNLinear):
                handle = layer.register_forward_pre_hook(self._prepare, with_kwargs=True)
                self.autograd_grad_sample_hooks.append(handle)

    def by_example(self, args: Any, kwargs: Any, count: int, *, ordinary: bool = False) -> Any:
        self._count = count
        self.shared.clear()
        if count:
            self.enable_hooks()
        else:  # some layers fail on the gradients of no examples, which are not needed
            self.mute()  # until the next pass: hooks of the backward pass come later
        try:
            return self._module(*args, **kwargs)
        except RuntimeError as problem:
            if "BackwardHook" not in str(problem):  # the module's own error
                raise
            layer = _innermost(problem.__traceback__)
            name = "" if layer is None else self.layer_name(layer)
            who = f"layer {name!r}" if name else "the module"
            raise RunError(
                f"{who} changes the output of another layer in place, which hooks do not support: "
                "write out = out + x, not out += x."
            ) from problem

    def iterate_submodules(self, module: nn.Module) -> Iterable[nn.Module]:
        """Opacus's iterator, but with a reused layer once: it would be counted twice."""
        return dict.fromkeys(GradSampleModule.iterate_submodules(self, module))

    def own_hooks(self) -> list[Any]:
        return list(self.autograd_grad_sample_hooks)

    def mute(self) -> None:
        self.disable_hooks()

    def _prepare(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if not (self.hooks_enabled and layer.training and torch.is_grad_enabled()):
            return None
        rebuilt = self.force_functorch or type(layer) not in self.GRAD_SAMPLERS
        return self.lay_out(layer, args, kwargs, self._count, rebuilt=rebuilt)

    def capture_backprops_hook(
        self,
        module: nn.Module,
        _forward_input: Any,
        forward_output: tuple[Tensor | None, ...],
        loss_reduction: str,
        batch_first: bool,
    ) -> None:
        """Opacus's hook, with errors that name the layer."""
        if not self.hooks_enabled:
            return
        name = f"layer {self.layer_name(module)!r} ({type(module).__name__})"
        if not getattr(module, "activations", None):
            raise RunError(
                f"{name} has gradients of a pass that was not made in training mode, or of a "
                "second backward pass (a gradient penalty, create_graph=True, activation "
                "checkpointing): an example's gradient is taken from one backward pass after one "
                "forward pass in training mode."
            )
        if len(forward_output) > 1:
            raise RunError(
                f"{name} returns several tensors, but per-example gradients are only possible for "
                "a layer that returns one. If it holds parameters of its own beside other layers, "
                "put them into a small module with one input and one output."
            )
        try:
            super().capture_backprops_hook(
                module,
                _forward_input,
                _unpadded(module, forward_output),
                loss_reduction,
                batch_first,
            )
        except MmccError:
            raise
        except Exception as problem:  # whatever Opacus and torch raise in a layer
            raise RunError(IMPOSSIBLE.format(name, first_sentence(problem))) from problem

    def _get_module_type(self, module: nn.Module) -> Any:
        """The type by which Opacus finds a rule; none where its rule is wrong or fails.

        Such a layer is then handled by functorch, like those without a rule.
        """
        if isinstance(module, nn.LayerNorm) and module.bias is None:
            return None
        if getattr(module, "padding_mode", "zeros") != "zeros":
            return None
        return type(module)


class ExpandedWeights(Watched, GradSampleModuleExpandedWeights):
    """Opacus's module for torch's expanded weights, which do not support empty batches."""

    def __init__(self, module: nn.Module, reduction: str, watch: Watch) -> None:
        GradSampleModuleExpandedWeights.__init__(self, module, loss_reduction=reduction)
        self.watch = watch

    def by_example(self, args: Any, kwargs: Any, count: int, *, ordinary: bool = False) -> Any:
        if not count:  # without examples there are no gradients to separate
            return self._module(*args, **kwargs)
        call = call_for_per_sample_grads(  # type: ignore[no-untyped-call]
            self._module, batch_size=count, loss_reduction=self.loss_reduction
        )
        try:
            return call(*args, **kwargs)
        except RuntimeError as problem:
            if "xpanded" not in str(problem):  # the module's own error
                raise
            raise RunError(f"{self.impossible(problem)} Try grad_sample_mode='hooks'.") from problem


class _Guard:
    """A hook that guards the module given to make_private, as long as there is a run."""

    def __init__(self, owner: Watched) -> None:
        self._owner = owner

    def __call__(self, module: nn.Module, *_: Any) -> None:
        called = self._owner.__dict__.get("_called", False)
        guarded = module.training and torch.is_grad_enabled() and not called
        if guarded and self._owner.watch.guarded():
            raise RunError(
                "the module that was given to make_private was called for gradients: they "
                "would be neither clipped nor noised. Call the module that make_private "
                "returned, or use torch.no_grad()."
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> _Guard:
        """The same guard: a copy's gradients are not protected either."""
        return self


IMPOSSIBLE = (
    "per-example gradients cannot be computed for {}: {}. If it holds parameters of its own beside "
    "other layers, put them into a small module with one input; otherwise freeze or replace it."
)


def _unpadded(layer: nn.Module, outputs: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Gradients of a layer's outputs, without those of an embedding's padding row.

    Autograd leaves the row `padding_idx` alone; Opacus does not know about it.
    """
    if not isinstance(layer, nn.Embedding) or layer.padding_idx is None or outputs[0] is None:
        return outputs
    kept: Any = getattr(layer, "activations", None)
    if not kept:
        return outputs
    padding = kept[-1][0] == layer.padding_idx
    return (outputs[0].masked_fill(padding.unsqueeze(-1), 0.0), *outputs[1:])


def _innermost(trace: TracebackType | None) -> nn.Module | None:
    """The layer in whose forward an error was raised."""
    found = None
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and not isinstance(owner, AbstractGradSampleModule):
            found = owner
        trace = trace.tb_next
    return found


def _refusing(why: str) -> Callable[[Tensor], None]:
    def refuse(_gradient: Tensor) -> None:
        raise RunError(why)

    return refuse
