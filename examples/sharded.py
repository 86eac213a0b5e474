"""FSDP2: a model whose parameters are sharded over processes, trained as one run.

    torchrun --nproc-per-node 2 examples/sharded.py run.checkpoint
    torchrun --nproc-per-node 4 examples/sharded.py run.checkpoint   # resumes, if it was stopped

In: sequences of letters, half of which repeat themselves.  Out: what the run guarantees, and how
many sequences it classifies correctly.
`fully_shard` comes first, then the optimizer, then `make_private`.  Every process makes the noise
of its own shards; a checkpoint is a file and a folder, and any number of processes can resume it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from mmcc import Guarantee, strategies
from mmcc.sampling import Poisson
from mmcc.training import load_checkpoint, make_private, save_checkpoint

EXAMPLES, LETTERS, LENGTH = 4000, 8, 12
STEPS, RATE, SIGMA = 60, 0.05, 2.0
WIDTH = 32
EVERY = 20
"""Steps between checkpoints."""


@dataclass(frozen=True)
class Result:
    """The result; accuracies are on other sequences than those of the training."""

    guarantee: Guarantee
    accuracy_before: float
    accuracy: float


class Block(nn.Module):
    """A residual layer, which is sharded as a unit of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, given: Tensor) -> Tensor:
        found: Tensor = given + self.narrow(self.wide(self.norm(given)).relu())
        return found


class Network(nn.Module):
    """Letters in their places, and what is in both halves."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.first = nn.Linear(LENGTH * WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.last = nn.Linear(WIDTH, 2)

    def forward(self, given: Tensor) -> Tensor:
        found = self.first(self.letters(given).flatten(1))
        for block in self.blocks:
            found = block(found)
        told: Tensor = self.last(found)
        return told


def sequences(count: int, seed: int) -> TensorDataset:
    """Of the second kind are those with more than their share of the first letters."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.arange(count) % 2
    letters = torch.randint(LETTERS, (count, LENGTH), generator=generator)
    low = torch.randint(LETTERS // 2, (count, LENGTH), generator=generator)
    moved = torch.rand(count, LENGTH, generator=generator) < 0.5 * kinds[:, None]
    return TensorDataset(torch.where(moved, low, letters), kinds)


@torch.no_grad()
def accuracy(module: nn.Module, data: TensorDataset) -> float:
    """Share of the sequences classified correctly; all processes must call it together."""
    letters, kinds = data.tensors
    return float((module(letters).argmax(dim=1) == kinds).double().mean())


def main(path: Path, steps: int = STEPS) -> Result:
    """Train from the beginning or from a checkpoint, and print the guarantee."""
    torch.manual_seed(0)  # the same model everywhere, of which each process keeps its part
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    network = Network()
    for block in network.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(network, mesh=mesh)
    module, optimizer, loader = make_private(
        network,
        torch.optim.Adam(network.parameters(), lr=3e-3),
        sequences(EXAMPLES, seed=1),
        strategy=strategies.banded_toeplitz(STEPS, 4).prefix(steps),
        sampling=Poisson(RATE),
        max_grad_norm=1.0,
        sigma=SIGMA,
        delta=1e-5,
        clipping="ghost",
        distributed=True,
    )
    others = sequences(EXAMPLES, seed=2)
    before = accuracy(network, others)
    if path.exists():
        load_checkpoint(path, optimizer)
    if not optimizer.finished:
        for letters, kinds in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(letters), kinds).backward()  # also for an empty part
            optimizer.step()
            if optimizer.position % EVERY == 0:
                save_checkpoint(path, optimizer)
        save_checkpoint(path, optimizer)
    result = Result(optimizer.guarantee, before, accuracy(network, others))
    if dist.get_rank() == 0:
        print(f"{result.guarantee}.")
        print(f"accuracy {result.accuracy_before:.3f} before, {result.accuracy:.3f} after")
    return result


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "run.checkpoint"))
    dist.destroy_process_group()
