"""Modules whose per-example gradients are never formed: what they consist of is kept instead.

In: a module, and the batches that it is called with.  Out: the module's own outputs; after the
backward pass, terms for each trained parameter (`mmcc.training._ghost_terms`), which give the norms
of all examples and, once the factors are known, the clipped sum.
Rounding: that of the terms.

One backward pass suffices (the book-keeping of Bu et al. 2023): the input of each layer and the
gradient of its output are kept until the step.  During a layer's forward pass its parameters need
no gradient, so autograd spends nothing on the gradient of the batch, which nobody needs; on batches
that are inspected they do, and the two gradients are compared.  The loss is as usual.

On all other batches a gradient that autograd leaves at a parameter comes from outside the layers,
where it was not clipped: such a step is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from opacus.grad_sample import AbstractGradSampleModule
from torch import Tensor, nn

from mmcc.errors import MmccError
from mmcc.training._example_gradients import ExampleGradients, full_precision
from mmcc.training._ghost_rules import (
    has_rule,
    hooked_layers,
    is_ghostly,
    needs_parameters,
    prepare,
    terms_of,
)
from mmcc.training._ghost_sums import joined, squared_norms
from mmcc.training._ghost_terms import Term
from mmcc.training._gradient_agreement import first_sentence, wrong_count
from mmcc.training._per_example import IMPOSSIBLE, Watched
from mmcc.training._run import RunError
from mmcc.training._sharding import kind_of
from mmcc.training._watch import Watch

MOST_NAMED = 5


class Terms(ExampleGradients):
    """The terms of every parameter's gradients."""

    leaves_ordinary = False

    def __init__(self, reduction: str) -> None:
        self._mean = reduction == "mean"
        self._terms: dict[Tensor, list[Term]] = {}
        self.generation = 0
        """Grows whenever everything is forgotten, so that older passes are recognised."""

    def clear(self) -> None:
        self._terms.clear()
        self.generation += 1

    def forget(self, parameters: Iterable[Tensor]) -> None:
        for parameter in parameters:
            self._terms.pop(parameter, None)

    def note(self, parameter: Tensor, term: Term) -> None:
        """Record one use of a parameter."""
        self._terms.setdefault(parameter, []).append(term)

    def counts(self, parameter: Tensor) -> list[int]:
        return sorted({term.count for term in self._terms.get(parameter, ())})

    def dtypes(self) -> set[torch.dtype]:
        return {term.dtype for terms in self._terms.values() for term in terms}

    def squares(self, parameter: Tensor) -> Tensor | None:
        terms = self._joined(parameter)
        if not terms:
            return None
        with full_precision(parameter.device):
            return squared_norms(terms) * self._scale(terms) ** 2

    def row(self, parameter: Tensor, member: int) -> Tensor | None:
        terms = self._joined(parameter)
        if not terms:
            return None
        with full_precision(parameter.device):
            first, *others = (term.row(member) for term in terms)
            return sum(others, start=first) * self._scale(terms)

    def add(self, total: Tensor, parameter: Tensor, factors: Tensor, counted: Tensor) -> None:
        terms = self._joined(parameter)
        if not terms:
            return
        with full_precision(parameter.device):
            factors = factors * self._scale(terms)
            if not counted.all():  # zero times a number that is not finite is not zero
                members = counted.nonzero().flatten()
                terms, factors = [term.take(members) for term in terms], factors[members]
            for term in terms:
                if term.count:
                    term.add(total, factors)

    def _joined(self, parameter: Tensor) -> list[Term]:
        terms = self._terms.get(parameter, [])
        if len(terms) > 1:
            with full_precision(parameter.device):
                self._terms[parameter] = terms = joined(terms)
        return terms

    def _scale(self, terms: list[Term]) -> int:
        """The factor that turns gradients of a mean loss into the examples' own."""
        return terms[0].count if self._mean else 1


class Ghost(Watched):
    """A module that keeps its layers' inputs and the gradients of their outputs."""

    def __init__(self, module: nn.Module, reduction: str, watch: Watch) -> None:
        AbstractGradSampleModule.__init__(self, module, loss_reduction=reduction)
        self.watch = watch
        self.terms = Terms(reduction)
        watch.gradients = self.terms
        self._count = 0
        self._enabled = self._ordinary = False
        self._resting: dict[nn.Module, list[nn.Parameter]] = {}
        self._anchor = torch.zeros(0, requires_grad=True)
        layers = list(hooked_layers(module))
        for layer in layers:
            prepare(layer)
        self._forward_handles = [
            layer.register_forward_hook(
                self._after, prepend=True, with_kwargs=True, always_call=True
            )
            for layer in layers
        ]
        self._handles = [
            layer.register_forward_pre_hook(self._before, with_kwargs=True) for layer in layers
        ]
        # By this name Opacus, and make_private, recognise a module that is already private.
        module.__dict__["autograd_grad_sample_hooks"] = self._handles
        self._warn_of_large_rows([layer for layer in layers if not is_ghostly(layer)])

    def _warn_of_large_rows(self, layers: list[nn.Module]) -> None:
        if layers:
            names = ", ".join(repr(self.layer_name(layer)) for layer in layers[:MOST_NAMED])
            kinds = ", ".join(sorted({kind_of(layer).__name__ for layer in layers}))
            left = len(layers) - MOST_NAMED
            warnings.warn(
                f"there is no rule to clip layers of these kinds ({kinds}) without per-example "
                f"gradients, so these are computed for {names}"
                f"{f' and {left} more' if left > 0 else ''}: this only costs memory.",
                stacklevel=4,
            )

    def by_example(self, args: Any, kwargs: Any, count: int, *, ordinary: bool = False) -> Any:
        self._count, self._ordinary = count, ordinary
        self.shared.clear()
        self._enabled = bool(count)  # without examples there are no gradients to separate
        try:
            return self._module(*args, **kwargs)
        finally:
            self._wake()

    def mute(self) -> None:
        self._enabled = False

    def own_hooks(self) -> list[Any]:
        return list(self._forward_handles)

    def remove_hooks(self) -> None:
        self.mute()
        self._wake()
        for handle in (*self._handles, *self._forward_handles):
            handle.remove()
        self._handles.clear()
        self._forward_handles.clear()
        self._module.__dict__.pop("autograd_grad_sample_hooks", None)
        for layer in self._module.modules():
            layer.__dict__.pop("ft_compute_sample_grad", None)

    def _active(self) -> bool:
        return self._enabled and self.training and torch.is_grad_enabled()

    def _wake(self, *layers: nn.Module) -> None:
        """The parameters of these layers, or of all, need gradients again."""
        for layer in layers or list(self._resting):
            for parameter in self._resting.pop(layer, ()):
                parameter.requires_grad_(True)

    def _before(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if not self._active():
            return None
        whole = not has_rule(layer)
        changed = self.lay_out(layer, args, kwargs, self._count, rebuilt=whole)
        if not self._ordinary:
            needing = [p for p in layer.parameters(recurse=whole) if p.requires_grad]
            self._resting.setdefault(layer, []).extend(needing)
            for parameter in needing:
                parameter.requires_grad_(False)
        return changed

    def _after(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        self._wake(layer)
        if not self._active() or output is None:  # an error leaves no output
            return None
        name = f"layer {self.layer_name(layer)!r} ({kind_of(layer).__name__})"
        if not isinstance(output, Tensor):
            raise RunError(
                f"{name} returns several tensors, but per-example gradients are only possible for "
                "a layer that returns one. If it holds parameters of its own beside other layers, "
                "put them into a small module with one input and one output."
            )
        if not args or not isinstance(args[0], Tensor):
            raise RunError(IMPOSSIBLE.format(name, "it is called without a tensor"))
        if not output.requires_grad:
            root: Any = _Root.apply
            output = root(output, self._anchor, output is args[0])
        call = _Call(self, layer, name, args[0].detach(), args[0]._version, self.terms.generation)
        output.register_hook(call.gradients_of)
        return output


@dataclass
class _Call:
    """A layer that was called, until the gradients of its output are known."""

    owner: Ghost
    layer: nn.Module
    name: str
    given: Tensor
    version: int
    generation: int
    done: bool = False

    def gradients_of(self, gradients: Tensor) -> None:
        """Compute the terms: the backward pass has reached the layer's output."""
        terms, count = self.owner.terms, self.owner._count
        if self.done or self.generation != terms.generation:
            raise RunError(
                f"{self.name} has gradients of a second backward pass, or of a pass before the "
                "last one (a gradient penalty, create_graph=True): an example's gradient is taken "
                "from one backward pass after one forward pass in training mode."
            )
        self.done = True
        if self.given._version != self.version:
            raise RunError(
                f"the input of {self.name} was changed in place after the layer used it, so its "
                "per-example gradients cannot be computed: write out = out + x, not out += x."
            )
        names, sharding = self.owner.watch.names, self.owner.watch.sharding
        whole = map(sharding.computed_with, self.layer.parameters())
        trained = [names[p] for p in whole if p.requires_grad]
        for rows in {len(self.given), len(gradients)} - {count}:
            raise RunError(wrong_count(trained[0] if trained else self.name, rows, count))
        try:
            if needs_parameters(self.layer):
                sharding.gather(self.layer)
            with full_precision(gradients.device):
                found = terms_of(self.layer, self.given, gradients.detach())
        except MmccError:
            raise
        except Exception as problem:  # whatever Opacus and torch raise in a layer
            raise RunError(IMPOSSIBLE.format(self.name, first_sentence(problem))) from problem
        for parameter, term in found.items():
            terms.note(sharding.computed_with(parameter), term)


class _Root(torch.autograd.Function):
    """Makes an output require gradients although nothing that it depends on does."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, _anchor: Tensor, given: bool) -> Tensor:
        if given or output._is_view():
            return output.view_as(output)
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(_ctx: Any, *_gradients: Any) -> Any:
        return None, None, None
