"""Which modules and optimizers can be trained with per-example gradients.

In: what make_private is given.  Out: a refusal with its remedy, or nothing; the parameters that are
trained, and a digest of their layout.
Refused is whatever has no per-example gradients in Opacus, and whatever would leak past the noise.
"""

from __future__ import annotations

import hashlib

import torch
from opacus.grad_sample import AbstractGradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from mmcc.errors import MethodError, ParameterError, suggestion
from mmcc.training._clipping import FLAT
from mmcc.training._masters import SHORT, WIDE
from mmcc.training._sharding import FSDP, is_unit, kind_of

HOOKS, FUNCTORCH, EXPANDED, GHOST = MODES = ("hooks", "functorch", "ew", "ghost")


def check_module(module: nn.Module, optimizer: Optimizer, mode: str) -> None:
    """Refuse a module, an optimizer or a mode that cannot be trained with."""
    if not isinstance(module, nn.Module) or not isinstance(optimizer, Optimizer):
        raise ParameterError(
            "make_private takes a torch.nn.Module and a torch.optim.Optimizer, got "
            f"{type(module).__name__} and {type(optimizer).__name__}."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ParameterError(
            "LBFGS looks at the data several times in one step, but only one look is accounted "
            "for. Use SGD, Adam or another optimizer with one gradient a step."
        )
    hooked = hasattr(module, "autograd_grad_sample_hooks")
    if hooked or isinstance(module, AbstractGradSampleModule) or isinstance(optimizer, DPOptimizer):
        raise ParameterError(
            "the module or optimizer is private already: pass a new module and its plain optimizer."
        )
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise ParameterError(
            f"{type(optimizer).__name__} is not a complete torch optimizer (it does not call "
            "Optimizer.__init__), so a direct call of its step() could not be refused. Pass the "
            "optimizer that it wraps, one of torch.optim."
        )
    _check_whole(module)
    _check_layers(module, mode)
    _check_parameters(trained_by(optimizer), set(module.parameters()))


def trained_by(optimizer: Optimizer) -> list[nn.Parameter]:
    """The parameters that an optimizer trains, in its order."""
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def names_of(module: nn.Module, trained: list[nn.Parameter]) -> list[str]:
    """The names of the trained parameters, in the module's order."""
    known = set(trained)
    return [name for name, p in module.named_parameters() if p in known]


def layout_digest(module: nn.Module, trained: list[nn.Parameter]) -> str:
    """A digest of names, shapes, types and what is trained: whatever says which number is which."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    names = {id(tensor): name for name, tensor in tensors}
    content = [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors]
    content += [names[id(p)] for p in trained]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def untrainable(what: str, problem: Exception) -> ParameterError:
    """Opacus's error message in one line."""
    said = str(problem).replace("\\n", " ").replace("\n", " ").rstrip(". !")
    return ParameterError(f"Opacus cannot train {what}: {said}.")


def mode_of(mode: object, clipping: object, *, sharded: bool) -> str:
    """How per-example gradients are computed: as asked for, or as suits the clipping."""
    if mode is None:
        return HOOKS if clipping == FLAT and not sharded else GHOST
    if not isinstance(mode, str) or mode not in MODES:
        raise MethodError(f"unknown grad_sample_mode {mode!r}; {suggestion(mode, MODES)}")
    if clipping == GHOST and mode != GHOST:
        raise MethodError(
            f"clipping={GHOST!r} makes no per-example gradients, so grad_sample_mode={mode!r} "
            f"has no effect. Leave it out, or use clipping={FLAT!r}."
        )
    if sharded and mode != GHOST:
        raise MethodError(
            f"grad_sample_mode={mode!r} stores per-example gradients at parameters, of which a "
            "process has only a part where they are sharded. Leave it out: the clipped sum is the "
            "same."
        )
    return mode


def _check_whole(module: nn.Module) -> None:
    """Refuse modules of which not everything is here."""
    if isinstance(module, torch.jit.ScriptModule):
        raise ParameterError(
            "a scripted module has no per-example gradients: pass the module that was scripted."
        )
    if isinstance(module, nn.parallel.DistributedDataParallel):
        raise ParameterError(
            "DistributedDataParallel averages gradients that are not clipped yet: pass the plain "
            "module, with distributed=True."
        )
    for name, layer in module.named_modules():
        old = (kind.__module__.startswith(FSDP) for kind in type(layer).mro())
        if any(old) and not is_unit(layer):
            raise ParameterError(
                f"layer {name!r} is sharded by FullyShardedDataParallel, which joins parameters, "
                "so no example's gradient could be told apart. Use "
                "torch.distributed.fsdp.fully_shard on the plain module."
            )
    if any(isinstance(p, nn.UninitializedParameter) for p in module.parameters()):
        raise ParameterError(
            "the module has lazy layers whose sizes are not known yet. Pass one batch of data that "
            "need no protection through it before make_private."
        )


def _check_layers(module: nn.Module, mode: str) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm):
            raise ParameterError(
                f"layer {name!r} is a {type(layer).__name__}: it mixes the examples of a batch and "
                "keeps statistics without noise. Use GroupNorm or LayerNorm."
            )
    for name, layer in module.named_modules():
        validator = ModuleValidator.VALIDATORS.get(kind_of(layer))
        if validator is not None and any(p.requires_grad for p in layer.parameters()):
            for problem in validator(layer):
                raise untrainable(f"layer {name!r}", problem)
    for problem in ModuleValidator.validate(module, strict=False):
        raise untrainable("this module", problem)
    for name, layer in module.named_modules():
        if isinstance(layer, nn.EmbeddingBag) and layer.weight.requires_grad:
            raise ParameterError(
                f"layer {name!r} is an EmbeddingBag, for which there are no per-example gradients. "
                "Use an Embedding, and a mean or sum over its rows."
            )
        if (
            mode == EXPANDED
            and isinstance(layer, nn.Embedding)
            and (layer.padding_idx is not None or layer.scale_grad_by_freq)
        ):
            raise ParameterError(
                f"layer {name!r} has padding_idx or scale_grad_by_freq, which expanded weights "
                "ignore. Use grad_sample_mode='hooks' and no scale_grad_by_freq."
            )


def _check_parameters(trained: list[nn.Parameter], known: set[nn.Parameter]) -> None:
    if not trained:
        raise ParameterError("the optimizer has no parameter that is trained.")
    if not known.issuperset(trained):
        raise ParameterError(
            "the optimizer has parameters that are not the module's: they would get no clipped "
            "gradients. Make the optimizer from module.parameters()."
        )
    if any(p.requires_grad for p in known.difference(trained)):
        raise ParameterError(
            "the module has trainable parameters that the optimizer does not have: their gradients "
            "would be neither clipped nor noised. Freeze them (requires_grad_(False)), or give "
            "them to the optimizer."
        )
    for p in trained:
        if p.dtype not in (*SHORT, *WIDE):
            raise ParameterError(
                f"a parameter is {p.dtype}, which has no gradients that could be clipped. Train in "
                "bfloat16, float32 or float64."
            )
