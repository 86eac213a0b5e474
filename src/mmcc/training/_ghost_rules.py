"""How each kind of layer yields the terms of its per-example gradients.

In: a layer, its input, and the gradients of its output.  Out: a term for each of its trained
parameters (`mmcc.training._ghost_terms`).
Rounding: that of Opacus's rules; in single precision at least where there is a rule here.
Layers without a rule here whose parameters are vectors, such as norms, get rows from Opacus's rules
or from functorch.  So do other layers, and then the rows may be large: `is_ghostly` says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from opacus.grad_sample import GradSampleModule
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient, prepare_layer
from opacus.layers.dp_rnn import DPRNNBase, RNNLinear
from torch import Tensor, nn
from torch.nn import functional

from mmcc.errors import MethodError
from mmcc.training._example_gradients import summed_type
from mmcc.training._ghost_terms import Convolved, Gather, Outer, Rows, Term
from mmcc.training._gradient_agreement import first_sentence
from mmcc.training._sharding import is_unit, kind_of

Terms = dict[nn.Parameter, Term]
Rule = Callable[[Any, Tensor, Tensor], Terms]
BUILTIN = {"weight", "bias"}


def hooked_layers(module: nn.Module) -> Iterator[nn.Module]:
    """Layers that are handled one by one, each with its parameters, in the order of the module.

    A layer that has parameters of its own and no rule is handled as a whole, with everything in it.
    A layer that is used in several places is yielded once.
    """
    yield from dict.fromkeys(_met(module))


def _met(module: nn.Module) -> Iterator[nn.Module]:
    """The same layers, each as often as it is used."""
    # Opacus's recurrent layers list the parameters of their cells as their own too.
    listed = isinstance(module, DPRNNBase)
    own = not listed and any(p.requires_grad for p in module.parameters(recurse=False))
    if own:
        yield module
    if own and _rule(module) is None:
        return
    for child in module.children():
        yield from _met(child)


def has_rule(layer: nn.Module) -> bool:
    """Whether a layer's gradients by example follow from its input by a rule for its kind."""
    return _rule(layer) is not None


def prepare(layer: nn.Module) -> None:
    """Prepare a layer without a rule for functorch; call this before any hooks are attached."""
    if has_rule(layer):
        return
    if any(map(is_unit, layer.modules())):
        raise MethodError(
            f"a layer of type {kind_of(layer).__name__}, which has no rule for per-example "
            "gradients, is sharded by itself. Call fully_shard on a larger part of the module that "
            "contains it."
        )
    try:
        prepare_layer(layer)
    except RuntimeError as problem:  # functorch copies it, and a weight may depend on others
        raise MethodError(
            f"a layer of type {kind_of(layer).__name__}, which has no rule for per-example "
            f"gradients, cannot be copied: {first_sentence(problem)}. If its weight is normalised "
            "by torch.nn.utils.weight_norm, use torch.nn.utils.parametrizations.weight_norm."
        ) from problem


def is_ghostly(layer: nn.Module) -> bool:
    """Whether a layer is handled without forming large rows."""
    small = all(p.dim() < 2 for p in layer.parameters() if p.requires_grad)
    return small or _ghost_rule(layer) is not None


def needs_parameters(layer: nn.Module) -> bool:
    """Whether a layer's per-example gradients are computed with its parameters."""
    return _ghost_rule(layer) is None


def terms_of(layer: nn.Module, given: Tensor, gradients: Tensor) -> Terms:
    """Terms for a layer's trained parameters, from its input and the gradients of its output."""
    rule = _rule(layer)
    if rule is None:
        rows = ft_compute_per_sample_gradient(layer, [given], gradients)
        return {p: Rows(found) for p, found in rows.items() if p.requires_grad}
    return rule(layer, given, gradients)


def _rule(layer: nn.Module) -> Rule | None:
    found = _ghost_rule(layer)
    if found is not None:
        return found
    kind = kind_of(layer)
    usual = not kind.__module__.startswith("torch.") or set(_own_names(layer)) <= BUILTIN
    return _by_opacus if usual and kind in GradSampleModule.GRAD_SAMPLERS else None


def _ghost_rule(layer: nn.Module) -> Rule | None:
    """The rule for a layer's type, unless the layer has parameters beyond those of its type."""
    kind = kind_of(layer)
    if not set(_own_names(layer)) <= BUILTIN:
        return None
    if (kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D"):
        return _transposed_linear  # by name: that package may not be installed
    return _RULES.get(kind)


def _own_names(layer: nn.Module) -> Iterator[str]:
    return (name for name, _ in layer.named_parameters(recurse=False))


def _by_opacus(layer: nn.Module, given: Tensor, gradients: Tensor) -> Terms:
    sampler = GradSampleModule.GRAD_SAMPLERS[kind_of(layer)]
    rows = sampler(layer, [given], gradients)
    return {p: Rows(found) for p, found in rows.items() if p.requires_grad}


def _linear(layer: Any, given: Tensor, gradients: Tensor) -> Terms:
    """For y = x W^T + b."""
    return _products(layer, _pieces(gradients), _pieces(given), _pieces(gradients))


def _transposed_linear(layer: Any, given: Tensor, gradients: Tensor) -> Terms:
    """For y = x W + b, as in GPT-2."""
    return _products(layer, _pieces(given), _pieces(gradients), _pieces(gradients))


def _products(layer: Any, left: Tensor, right: Tensor, gradients: Tensor) -> Terms:
    """For a weight with gradient sum_t l_t r_t^T, and a bias that is added to every piece."""
    terms = _bias(layer, gradients)
    if layer.weight.requires_grad:
        terms[layer.weight] = Outer(left[:, None], right[:, None], tuple(layer.weight.shape))
    return terms


def _pieces(tensor: Tensor) -> Tensor:
    """The tensor in the shape (examples, pieces, width)."""
    return tensor.reshape(len(tensor), -1, tensor.shape[-1])


def _bias(layer: Any, gradients: Tensor) -> Terms:
    """For a bias that is added to every piece."""
    if layer.bias is None or not layer.bias.requires_grad:
        return {}
    return {layer.bias: Rows(gradients.sum(dim=1, dtype=summed_type(gradients.dtype)))}


def _embedding(layer: nn.Embedding, index: Tensor, gradients: Tensor) -> Terms:
    """For y_t = W[k_t]; the row `padding_idx` gets no gradient."""
    index, gradients = index.reshape(len(index), -1).long(), _pieces(gradients)
    if layer.padding_idx is not None:
        gradients = gradients.masked_fill((index == layer.padding_idx)[..., None], 0.0)
    weight: Any = layer.weight
    return {weight: Gather(index, gradients, tuple(weight.shape))}


def _scaled(layer: Any, normed: Tensor, gradients: Tensor, last: int) -> Terms:
    """For y = weight x + bias over the last dimensions."""
    terms: Terms = {}
    between = tuple(range(1, gradients.dim() - last))
    kind = summed_type(gradients.dtype)
    bias = getattr(layer, "bias", None)
    for p, found in ((layer.weight, normed.to(kind) * gradients), (bias, gradients)):
        if p is not None and p.requires_grad:
            rows = found.sum(dim=between, dtype=kind) if between else found.to(kind)
            terms[p] = Rows(rows)
    return terms


def _layer_norm(layer: nn.LayerNorm, given: Tensor, gradients: Tensor) -> Terms:
    normed = functional.layer_norm(given, layer.normalized_shape, eps=layer.eps)
    return _scaled(layer, normed, gradients, len(layer.normalized_shape))


def _rms_norm(layer: nn.RMSNorm, given: Tensor, gradients: Tensor) -> Terms:
    normed = functional.rms_norm(given, layer.normalized_shape, eps=layer.eps)
    return _scaled(layer, normed, gradients, len(layer.normalized_shape))


def _group_norm(layer: nn.GroupNorm, given: Tensor, gradients: Tensor) -> Terms:
    normed = functional.group_norm(given, layer.num_groups, eps=layer.eps)
    return _scaled(layer, normed.movedim(1, -1), gradients.movedim(1, -1), 1)


def _convolution(layer: Any, given: Tensor, gradients: Tensor) -> Terms:
    """Outer products over windows, or rows where these are no larger than what they consist of."""
    terms = _bias(layer, gradients.flatten(2).mT)
    if not layer.weight.requires_grad:
        return terms
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padding = layer._reversed_padding_repeated_twice
    padded = functional.pad(given, padding, mode=mode) if any(padding) else given
    shape = tuple(layer.weight.shape)
    term = Convolved(padded, gradients, shape, layer.stride, layer.dilation, layer.groups)
    small = math.prod(shape) <= (padded.numel() + gradients.numel()) // max(len(given), 1)
    terms[layer.weight] = term.rows() if small else term
    return terms


_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    RNNLinear: _linear,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
}
