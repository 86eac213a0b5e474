"""accelerate: `prepare` of a module, an optimizer and a loader made by `make_private`.

    python examples/with_accelerate.py
    accelerate launch --num_processes 4 examples/with_accelerate.py

In: points in a plane, in two classes.  Out: what the run guarantees, and how many points it
classifies correctly.
The loop is accelerate's own.  With several processes each takes its part of every batch, and there
is one release with one noise.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from mmcc import Guarantee
from mmcc.training import ProgressLine, make_private

EXAMPLES, BATCH_SIZE = 2000, 200
EPSILON, DELTA = 2.0, 1e-5


@dataclass(frozen=True)
class Result:
    """The result; accuracies are on other points than those of the training."""

    guarantee: Guarantee
    accuracy_before: float
    accuracy: float


def points(count: int, seed: int) -> TensorDataset:
    """Two rings, of radius 1 and 2, with some noise."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.arange(count) % 2
    angles = 2 * torch.pi * torch.rand(count, generator=generator)
    radii = 1.0 + kinds + 0.15 * torch.randn(count, generator=generator)
    places = torch.stack([angles.cos(), angles.sin()], dim=1) * radii[:, None]
    return TensorDataset(places, kinds)


@torch.no_grad()
def accuracy(module: nn.Module, data: TensorDataset, device: torch.device) -> float:
    """Share of the points classified correctly."""
    places, kinds = data.tensors
    found: Tensor = module(places.to(device)).argmax(dim=1).cpu() == kinds
    return float(found.double().mean())


def main(epochs: int = 10) -> Result:
    """Train, and print the guarantee."""
    # Opacus hooks a first layer whose inputs need no gradient: torch's warning is harmless.
    warnings.filterwarnings("ignore", message="Full backward hook")
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)).to(accelerator.device)
    module, optimizer, loader = make_private(
        network,
        torch.optim.SGD(network.parameters(), lr=2.0),
        DataLoader(points(EXAMPLES, seed=1), batch_size=BATCH_SIZE, shuffle=True),
        strategy="identity",  # DP-SGD
        sampling="poisson",
        epochs=epochs,
        max_grad_norm=1.0,
        epsilon=EPSILON,
        delta=DELTA,
        distributed=accelerator.num_processes > 1,
    )
    module, optimizer, loader = accelerator.prepare(module, optimizer, loader)
    others = points(EXAMPLES, seed=2)
    before = accuracy(network, others, accelerator.device)
    with ProgressLine(optimizer) as line:
        for _ in range(epochs):
            for places, kinds in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(module(places), kinds)
                accelerator.backward(loss)
                optimizer.step()
                line(loss)
    result = Result(optimizer.guarantee, before, accuracy(network, others, accelerator.device))
    accelerator.print(f"{result.guarantee}.")
    accelerator.print(f"accuracy {result.accuracy_before:.3f} before, {result.accuracy:.3f} after")
    return result


if __name__ == "__main__":
    main()
