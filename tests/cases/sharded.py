"""Training with parameters sharded by `fully_shard`: what each process of a group does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils.data import TensorDataset

from cases.private import CLASSES, FEATURES, STEPS, backward, data, private
from mmcc import MmccError, strategies
from mmcc.sampling import Poisson, TruncatedPoisson
from mmcc.training import _checkpoint_shards as shards
from mmcc.training import load_checkpoint, save_checkpoint
from mmcc.training._randomness import KeystreamNormals

BANDS = [1.0, 0.6, 0.3]
TINY = 1e-9
WIDE, LONG = (100, 1000), 6
"""Numbers of a model that is all noise, and its steps."""


class Scale(nn.Module):
    """A layer that nobody has a rule for, so that it is taken apart with its parameters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given * self.factors.sin()


def layers() -> nn.Module:
    """Odd numbers of rows, fewer rows than processes, a block within the whole."""
    torch.manual_seed(3)
    block = nn.Sequential(nn.Linear(FEATURES, 7), nn.LayerNorm(7), nn.Tanh(), Scale(7))
    return nn.Sequential(block, nn.Linear(7, 1), nn.Linear(1, CLASSES)).float()


def frozen() -> nn.Module:
    """With a layer that is not trained."""
    module = layers()
    module[0][0].requires_grad_(False)
    return module


class Tied(nn.Module):
    """Tokens, a convolution, and a head that is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.tokens = nn.Embedding(5, 6)
        self.mixed = nn.Conv1d(6, 6, 2, padding=1)
        self.head = nn.Linear(6, 5, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        indices = given.abs().long().clamp(max=4)
        mixed = self.mixed(self.tokens(indices).mT).relu().mean(dim=2)
        return self.head(mixed)[:, :CLASSES].clone()  # as FSDP wants it


MODELS: dict[str, Callable[[], nn.Module]] = {"layers": layers, "frozen": frozen, "tied": Tied}


def numbers() -> TensorDataset:
    inputs, labels = data().tensors
    return TensorDataset(inputs.float(), labels)


def spread(module: nn.Module, **options: Any) -> nn.Module:
    """Over all processes there are; blocks and layers in units of their own."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if isinstance(module, nn.Sequential):
        for layer in module[:2]:
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(module, mesh=mesh, **options)


def copied(module: nn.Module) -> nn.Module:
    """The same with a copy on every process."""
    return replicate(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


CASES: dict[str, dict[str, Any]] = {
    "as a whole": {},
    "by layers": {"clipping": "per-layer"},
    "rare, automatic": {"clipping": "automatic", "sampling": Poisson(0.03)},
    "in chunks": {"physical_batch_size": 2},
    "padded": {"sampling": TruncatedPoisson(0.3, 8, 30), "strategy": strategies.identity(STEPS)},
    "tied": {"model": "tied"},
    "frozen": {"model": "frozen"},
    "frozen, few": {"model": "frozen", "sampling": Poisson(0.1)},
    "copied": {"spread": copied, "sigma": 1.0},
    "noise": {"sigma": 1.0, "strategy": strategies.binary_tree(STEPS)},
}


def case(
    model: str = "layers",
    *,
    sharded: bool,
    module: nn.Module | None = None,
    spread: Callable[[nn.Module], Any] = spread,
    **options: Any,
) -> Any:
    """A run, sharded or not; so much less noise than clipping that it is not seen."""
    module = MODELS[model]() if module is None else module
    given = {"strategy": strategies.toeplitz(BANDS, STEPS), "sigma": TINY, "clipping": "ghost"}
    if sharded:
        spread(module)
        given["distributed"] = True
    return private(module, numbers(), momentum=0.5, **given | options)


def whole(tensor: Any) -> torch.Tensor:
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return tensor.detach().clone()


def released(made: Any, at: Callable[[Any], None] = lambda _: None) -> list[torch.Tensor]:
    """What each step released, and in the end the parameters."""
    module, optimizer, loader = made
    found: list[torch.Tensor] = []
    for batch in loader:
        before = optimizer.position
        optimizer.zero_grad()
        backward(module, batch)
        optimizer.step()
        if optimizer.position > before:
            stepped = [p for group in optimizer.param_groups for p in group["params"]]
            found += [whole(p.grad) for p in stepped if p.requires_grad]
            at(optimizer)
    return found + [whole(p) for p in module.parameters()]


def sharded_cases(folder: Path) -> dict[str, Any]:
    return {name: released(case(**options, sharded=True)) for name, options in CASES.items()}


def sharded_settings(folder: Path) -> dict[str, Any]:
    """Settings of FSDP's own way with gradients, which has nothing to do here."""
    found = {}
    for name, settings in {
        "divided, kept whole": {"gradient_divide_factor": 7.0, "reshard_after_backward": False},
        "not added up": {"requires_gradient_sync": False, "reshard_after_forward": False},
    }.items():
        module: Any = layers()
        made = case(sharded=True, module=module)
        for setting, value in settings.items():
            getattr(module, f"set_{setting}")(value)
        found[name] = released(made)
        assert all(type(p).__name__ == "DTensor" for p in module.parameters())
    return found


def sharded_evaluation(folder: Path) -> Any:
    """Passes without gradients between steps, after which FSDP may leave weights gathered."""
    made = case(sharded=True)

    def look(_: Any) -> None:
        made[0].eval()
        with torch.no_grad():
            made[0](torch.ones(2, FEATURES))
        made[0].train()

    return released(made, look)


class Nothing(nn.Module):
    """So many numbers, with gradients that are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(WIDE[1], WIDE[0], bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return 0.0 * self.only(given)


def sharded_noise(folder: Path) -> dict[str, Any]:
    """Noise in units of sigma, a row a step; how many numbers this process has made a step."""
    asked = [0]
    real = KeystreamNormals.fill

    def fill(self: Any, row: int, out: Any, start: int = 0) -> None:
        asked[0] += len(out)
        real(self, row, out, start)

    sigma, clip = 1.7, 0.6
    module, optimizer, loader = private(
        spread(Nothing()),
        TensorDataset(torch.ones(30, WIDE[1])),
        strategy=strategies.toeplitz(BANDS, LONG),
        max_grad_norm=clip,
        sigma=sigma,
        distributed=True,
    )
    KeystreamNormals.fill = fill  # type: ignore[method-assign]
    rows = []
    try:
        for (inputs,) in loader:
            module(inputs).sum().backward()
            optimizer.step()
            rows += [whole(p.grad) for p in module.parameters()]
            optimizer.zero_grad()
    finally:
        KeystreamNormals.fill = real  # type: ignore[method-assign]
    scale = optimizer.expected_batch_size / (sigma * clip)
    return {"rows": torch.stack(rows).flatten(1) * scale, "made": asked[0] / LONG}


class Meeting(nn.Module):
    """Examples meet: each loses their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(FEATURES, CLASSES)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found = self.inside(given)
        return found - found.mean(dim=0) if len(found) else found


class Bypassed(nn.Module):
    """The weight of a layer is used beside the layer, in every pass or in later ones."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.inside, self.other = nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)
        self.after, self.passes = after, 0

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found = self.inside(given) + self.other(given)
        self.passes += self.training and torch.is_grad_enabled()
        return found + self.other.weight.sum(dim=1) * (self.passes > self.after)


def told(work: Callable[[], Any]) -> str:
    try:
        work()
    except MmccError as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing"


def sharded_refusals(folder: Path) -> dict[str, str]:
    count, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh("cpu", (count,))

    def making(change: Callable[[nn.Module], Any], **options: Any) -> Callable[[], Any]:
        def make() -> Any:
            module = layers()
            module = change(module) or module
            given = {"clipping": "ghost", "distributed": True} | options
            return private(module, numbers(), **given)

        return make

    def by_columns(_: nn.Module) -> nn.Module:
        module = nn.Linear(FEATURES, FEATURES)
        return fully_shard(module, mesh=mesh, shard_placement_fn=lambda p: Shard(p.dim() - 1))

    def in_two_dimensions(module: nn.Module) -> None:
        names = ("copies", "shards")
        fully_shard(module, mesh=init_device_mesh("cpu", (1, count), mesh_dim_names=names))

    def without_head(module: nn.Module) -> None:
        for layer in module[:2]:
            fully_shard(layer, mesh=mesh)

    def beside(module: nn.Module) -> None:
        """A DTensor that nobody gathers."""
        for layer in module[:2]:
            fully_shard(layer, mesh=mesh)
        weight = distribute_tensor(module[2].weight.detach(), mesh, [Shard(0)])
        module[2].weight = nn.Parameter(weight)
        module[2].bias = nn.Parameter(
            distribute_tensor(module[2].bias.detach(), mesh, [Replicate()])
        )

    def by_tensors(module: nn.Module) -> None:
        parallelize_module(module[1], mesh, ColwiseParallel())

    found = {
        "by columns": told(making(by_columns)),
        "two dimensions": told(making(in_two_dimensions)),
        "without head": told(making(without_head)),
        "beside": told(making(beside)),
        "tensors": told(making(by_tensors)),
        "mixed": told(
            making(lambda m: spread(m, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)))
        ),
        "16 bits": told(making(lambda m: spread(m.bfloat16()))),
        "hooks": told(making(spread, clipping="flat", grad_sample_mode="hooks")),
        "functorch": told(making(spread, clipping="flat", grad_sample_mode="functorch")),
        "old": told(
            making(
                lambda m: torch.distributed.fsdp.FullyShardedDataParallel(
                    m, device_id=torch.device("cpu")
                )
            )
        ),
        "no rule": told(
            lambda: case(module=nn.Sequential(nn.Linear(FEATURES, 3), Scale(3)), sharded=True)
        ),
        "alone": told(making(spread, distributed=False)),
        "meeting": told(lambda: released(case(module=Meeting(), sharded=True))),
        "bypassed": told(lambda: released(case(module=Bypassed(-1), sharded=True))),
        "bypassed later": told(lambda: released(case(module=Bypassed(4), sharded=True))),
    }
    if hasattr(torch, "cuda") and torch.cuda.is_available():
        found["offloaded"] = told(making(lambda m: spread(m, offload_policy=CPUOffloadPolicy())))
    made = case(sharded=True)
    found["lone save"] = told(
        lambda: (
            save_checkpoint(folder / "lone", *made)
            if rank == 0
            else made[1].run.meet("optimizer.step")
        )
    )
    found["lone file"] = str((folder / "lone").exists())
    return found


def resuming(folder: Path, file: str, at: Callable[[Any], None]) -> Any:
    """Train to the end with a checkpoint after each step."""
    path = folder / file
    made = case(sharded=True, sigma=1.0, strategy=strategies.blt(STEPS, 2), sampling=Poisson(0.2))
    if path.exists():
        assert load_checkpoint(path, *made) == {"note": "kept"}
    else:
        save_checkpoint(path, *made, extra={"note": "kept"})

    def after(optimizer: Any) -> None:
        at(optimizer)
        save_checkpoint(path, *made, extra={"note": "kept"})

    start = made[1].position
    return {"start": start, "released": released(made, after)}


def sharded_whole(folder: Path) -> Any:
    return resuming(folder, "whole", lambda _: None)


def sharded_taken_up(folder: Path) -> Any:
    return resuming(folder, "broken", lambda _: None)


def sharded_killed(folder: Path) -> Any:
    """The last process is gone after a step whose checkpoint is not written."""

    def at(optimizer: Any) -> None:
        if dist.get_rank() == dist.get_world_size() - 1 and optimizer.position == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    return resuming(folder, "broken", at)


def sharded_killed_saving(folder: Path) -> Any:
    """Process 0 is gone when all shards are written, and the file that names them is not."""
    written = [0]
    real = shards.digest

    def digest(path: Path) -> str:
        written[0] += 1
        if written[0] == 5:  # before the first step, and after three
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path)

    shards.digest = digest
    return resuming(folder, "broken", lambda _: None)


def sharded_stopped(folder: Path) -> Any:
    """A checkpoint after three steps, and the rest."""
    made = case(sharded=True, sigma=1.0, strategy=strategies.blt(STEPS, 2))

    def at(optimizer: Any) -> None:
        if optimizer.position == 3:
            save_checkpoint(folder / "stopped", *made)

    return released(made, at)
