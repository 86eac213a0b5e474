"""Noise over parameters that are spread over processes: what each of a group does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from mmcc import strategies
from mmcc.training import TorchNoiseStream

SHAPES = [(7, 5), (3,), (10, 2, 3), (1, 4)]
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float32]
STRATEGIES = {
    "blt": strategies.blt(9, 2),
    "tree": strategies.binary_tree(9),
    "bands": strategies.banded_toeplitz(9, 3),
    "dense": strategies.continual_counting(40),
}
STOPPED, STEPS = 3, 6


def parameters() -> list[torch.Tensor]:
    """The whole model."""
    return [torch.zeros(s, dtype=kind) for s, kind in zip(SHAPES, TYPES, strict=True)]


def stream(name: str, mesh: Any, placements: list[Any], seed: int) -> TorchNoiseStream:
    """The noise of the model, spread as FSDP spreads it; one parameter is on all processes."""
    like = [
        distribute_tensor(p, mesh, [Replicate()] * mesh.ndim if k == 1 else placements)
        for k, p in enumerate(parameters())
    ]
    return TorchNoiseStream(STRATEGIES[name], 1.5, like, seed)


def gathered(noise: list[torch.Tensor]) -> list[torch.Tensor]:
    """What all processes have together."""
    assert all(isinstance(part, DTensor) for part in noise)
    return [part.full_tensor() for part in noise]


def spread(folder: Path) -> dict[str, Any]:
    """All steps, and a checkpoint on the way; on a mesh of two dimensions where there are four."""
    found: dict[str, Any] = {}
    count = dist.get_world_size()
    meshes = {"line": ((count,), [Shard(0)])}
    if count == 4:
        meshes |= {"hybrid": ((2, 2), [Replicate(), Shard(0)]), "twice": ((2, 2), [Shard(0)] * 2)}
    for kind, (sizes, placements) in meshes.items():
        mesh = init_device_mesh("cpu", sizes)
        for name in STRATEGIES:
            noises = stream(name, mesh, placements, 11)
            for step in range(STEPS):
                if step == STOPPED and kind == "line":
                    checkpoint.save({"noise": noises}, checkpoint_id=folder / f"noise of {name}")
                found[f"{kind} {name} {step}"] = gathered(next(noises))
    return found


def resumed_spread(folder: Path) -> dict[str, Any]:
    """The steps after the checkpoint, on as many processes as there are."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    found = {}
    for name in STRATEGIES:
        noises = stream(name, mesh, [Shard(0)], 12)
        checkpoint.load({"noise": noises}, checkpoint_id=folder / f"noise of {name}")
        assert noises.position == STOPPED
        for step in range(STOPPED, STEPS):
            found[f"{name} {step}"] = gathered(next(noises))
    return found
