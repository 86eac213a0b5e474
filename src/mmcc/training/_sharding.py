"""Modules whose parameters are sharded over processes: torch's FSDP2, `fully_shard`.

In: a module, and the parameters that its optimizer trains.  Out: the tensors that its layers
compute with while they are gathered; each process's part of a sum over all processes.
Rounding: sums are added in the type of the total, in an order that depends on the number of
processes.

A process computes with whole parameters, which FSDP gathers layer by layer, so it knows the whole
gradient of each of its examples, and norms need no reduction over shards.  FSDP itself would sum
and average gradients of the batch without clipping: it finds none, as the backward pass leaves none
(`mmcc.training._watch`).  What is summed over the processes is the clipped sum of each, parameter
by parameter; a process keeps its own shard of it, and adds the noise of that shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mmcc.errors import ParameterError
from mmcc.training._module_contents import check_sums

FSDP = "torch.distributed.fsdp"


class Sharding:
    """No sharding: every process holds the whole of each parameter."""

    spread = False

    def __init__(self, trained: Sequence[nn.Parameter]) -> None:
        self.trained = list(trained)
        """What the layers compute with, in the order of the optimizer."""

    def computed_with(self, parameter: nn.Parameter) -> nn.Parameter:
        """The tensor that a layer with this parameter computes with: gathered, if sharded."""
        return parameter

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Make the module a plain one, so that passes need no other process."""
        yield

    def gather(self, layer: nn.Module) -> None:
        """Let a layer have its parameters in the backward pass."""

    def settle(self) -> None:
        """Forget gathered parameters, which may be from before a step."""

    def replica(self, stepped: Sequence[Tensor]) -> Sequence[Tensor]:
        """Of the tensors that the optimizer steps on, those that are equal on all processes."""
        return stepped

    def share(self, total: Tensor, stepped: Tensor) -> Tensor:
        """The process's part of the sum of all totals; without sharding, its total as it is."""
        return total


class Sharded(Sharding):
    """Parameters that `fully_shard` has spread over all processes of a run."""

    spread = True

    def __init__(self, module: nn.Module, trained: Sequence[nn.Parameter], count: int) -> None:
        self._units: list[Any] = [unit for unit in module.modules() if is_unit(unit)]
        names = {p: name for name, p in module.named_parameters()}
        for p in trained:
            _check_placement(names[p], p, count)
        gathered = _gathered_parameters(module, self._units)
        self._whole = {p: gathered[name] for p, name in names.items()}
        for p in trained:
            _check_gathered(names[p], p, self._whole[p])
        super().__init__([self._whole[p] for p in trained])
        self._unit_of = {
            layer: unit for unit in self._units for layer in unit.modules()
        }  # for nested units the inner one comes last

    def computed_with(self, parameter: nn.Parameter) -> nn.Parameter:
        return self._whole.get(parameter, parameter)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        kept = {unit: unit._forward_pre_hooks.copy() for unit in self._units}
        for unit in self._units:
            unit.unshard()
        for unit in self._units:
            for number, hook in kept[unit].items():
                if _is_of_torch(hook):
                    del unit._forward_pre_hooks[number]
        try:
            yield
        finally:
            for unit, hooks in kept.items():
                unit._forward_pre_hooks.clear()
                unit._forward_pre_hooks.update(hooks)
            self.settle()

    def gather(self, layer: nn.Module) -> None:
        unit = self._unit_of.get(layer)
        if unit is not None:
            unit.unshard()

    def settle(self) -> None:
        for unit in self._units:
            unit.reshard()

    def replica(self, stepped: Sequence[Any]) -> Sequence[Tensor]:
        alike = [p for p in stepped if p.placements[0].is_replicate()]
        return [torch.tensor(check_sums(alike))] if alike else []  # compared often, so only sums

    def share(self, total: Tensor, stepped: Any) -> Tensor:
        from torch.distributed.tensor import DTensor, Partial

        mesh = stepped.device_mesh
        summed = DTensor.from_local(total, mesh, [Partial("sum")], run_check=False)
        return summed.redistribute(mesh, stepped.placements)


def sharding_of(module: nn.Module, trained: Sequence[nn.Parameter], count: int) -> Sharding:
    """How a module's parameters are spread over the `count` processes of a run."""
    if not any(is_unit(layer) for layer in module.modules()):
        for name, p in module.named_parameters():
            if is_spread(p):
                raise ParameterError(
                    f"parameter {name!r} is a DTensor that fully_shard has not made, such as one "
                    "of tensor parallelism: a process would hold a part of an example's gradient "
                    "and could not clip it as a whole. Use fully_shard, which gathers parameters."
                )
        return Sharding(trained)
    return Sharded(module, trained, count)


def is_spread(tensor: object) -> bool:
    """Whether a tensor is a DTensor, of which this process may have a part."""
    return hasattr(tensor, "placements")


def is_unit(layer: nn.Module) -> bool:
    """Whether `fully_shard` was called on a layer."""
    return any(kind.__name__ == "FSDPModule" and _is_of_torch(kind) for kind in type(layer).mro())


def kind_of(layer: nn.Module) -> type[nn.Module]:
    """The original type of a layer: `fully_shard` changes it."""
    kind = type(layer)
    if not is_unit(layer):
        return kind
    return next(k for k in kind.mro()[1:] if issubclass(k, nn.Module) and not _is_of_torch(k))


def _is_of_torch(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith(FSDP)


def _check_placement(name: str, p: Any, count: int) -> None:
    """Refuse a parameter that is not cut along its first dimension, once, over all processes."""
    if not is_spread(p):
        raise ParameterError(
            f"parameter {name!r} is trained but not sharded, while others are (ignored_params, or "
            "a layer outside of fully_shard). Call fully_shard on the whole module too, or freeze "
            "the parameter."
        )
    mesh, placements = p.device_mesh, p.placements
    whole = mesh.ndim == 1 and (placements[0].is_shard(0) or placements[0].is_replicate())
    if not whole or "Strided" in type(placements[0]).__name__:
        raise ParameterError(
            f"parameter {name!r} has the placements {tuple(placements)}: noise and sums are made "
            "for parameters that are sharded over dimension 0, on a mesh of one dimension. Use "
            "fully_shard with such a mesh and without shard_placement_fn or tensor parallelism."
        )
    if mesh.size() != count:
        raise ParameterError(
            f"parameter {name!r} is sharded over {mesh.size()} processes, but the run has {count}: "
            "each group would make a release of its own. Use a mesh of all processes, and pass "
            "distributed=True to make_private."
        )


def _check_gathered(name: str, p: Any, found: nn.Parameter) -> None:
    """Refuse parameters that layers get in another form than the optimizer."""
    if found is p:
        raise ParameterError(
            f"parameter {name!r} is a DTensor that fully_shard does not gather: put it into the "
            "module for which fully_shard is called."
        )
    if (found.dtype, found.device.type) != (p.dtype, p.device.type):
        raise ParameterError(
            f"parameter {name!r} is {p.dtype} on {p.device.type} while sharded but {found.dtype} "
            f"on {found.device.type} while gathered (MixedPrecisionPolicy, CPUOffloadPolicy), so "
            "gradients could not be compared. Leave the policy out; torch.autocast computes in "
            "bfloat16."
        )
    if p.dtype not in (torch.float32, torch.float64):
        raise ParameterError(
            f"parameter {name!r} is {p.dtype}, and sharded parameters cannot have master copies. "
            "Keep them in float32, and compute in bfloat16 with torch.autocast."
        )


def _gathered_parameters(module: nn.Module, units: Sequence[Any]) -> dict[str, nn.Parameter]:
    """The tensors that parameters become when they are gathered, which are always the same ones."""
    found = dict(module.named_parameters())
    for unit in units:
        unit.unshard()
        present = module.named_parameters()
        found |= {name: p for name, p in present if not is_spread(p)}
        unit.reshard()  # one after another: all of them might not fit into memory
    return found
