"""Canaries: a coin decides which half is trained on; then they are guessed from what was released.

    python examples/canary_audit.py                        # one run of each scheme, some minutes
    python examples/canary_audit.py --runs 50              # the figures of docs/audit.md
    python examples/canary_audit.py --without-noise        # a broken run, which is caught

In: the idx files of FashionMNIST, as fashion_mnist.py reads them.  Out: for each run the lower
bounds on epsilon beside the certificate; at the end how many runs had them below it and above 0.
Canaries are images along directions in which real images vary least, each orthogonal to all others
but one, so their gradients are easy to tell from all the rest.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from fashion_mnist import DEBIAN, images
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import mmcc
from mmcc import sampling, strategies
from mmcc.audit import CanaryAudit, GradientScores, audit_canaries
from mmcc.sampling import Scheme
from mmcc.strategies import Strategy
from mmcc.training import Canaries, TorchNoiseStream, make_private

STEPS = 40
RUNS: dict[str, tuple[Strategy, Scheme]] = {
    "poisson": (strategies.identity(STEPS), sampling.Poisson(1 / 5)),
    "balls-in-bins": (strategies.banded_toeplitz(STEPS, 5), sampling.BallsInBins(5)),
}
LABELS = 2
"""This many canaries have the same picture."""


@dataclass(frozen=True)
class Setting:
    """What all runs have in common."""

    examples: int = 2000
    canaries: int = 1000
    epsilon: float = 4.0
    delta: float = 1e-5
    confidence: float = 0.95
    learning_rate: float = 0.5
    guesses: tuple[int, int] | None = None
    """Canaries guessed to be in the data and to be left out; planned by default."""
    noise: bool = True
    """Whether the noise that the certificate is for is added."""


def network() -> nn.Module:
    """Logistic regression, 7840 parameters: gradients differ as much as images or labels do."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False))


def canaries_for(data: TensorDataset, count: int) -> TensorDataset:
    """The last principal directions of the images, as bright as an image, with several labels."""
    shape = data.tensors[0].shape[1:]
    directions = torch.linalg.svd(data.tensors[0].flatten(1), full_matrices=True).Vh.flip(0)
    pictures = directions[: -(-count // LABELS)] * data.tensors[0][0].numel() ** 0.5
    labels = torch.arange(LABELS).repeat_interleave(len(pictures))[:count]
    return TensorDataset(pictures.repeat(LABELS, 1)[:count].reshape(count, *shape), labels)


def audited(
    name: str, data: TensorDataset, setting: Setting, guarantee: mmcc.Guarantee, seed: int
) -> CanaryAudit:
    """Train once, with canaries whose coins nobody looks at, and guess them."""
    strategy, scheme = RUNS[name]
    canaries = Canaries(data, canaries_for(data, setting.canaries))
    torch.manual_seed(seed)
    model = network()
    watching = copy.deepcopy(model)
    with noise_as_in(setting):
        module, optimizer, loader = make_private(
            model,
            torch.optim.SGD(model.parameters(), lr=setting.learning_rate),
            canaries,
            strategy=strategy,
            sampling=scheme,
            max_grad_norm=1.0,
            sigma=guarantee.sigma,
            delta=setting.delta,
        )
        loss = nn.functional.cross_entropy
        scores = GradientScores(watching, optimizer, canaries, loss, chunk=250)
        while not optimizer.finished:
            for inputs, labels in loader:
                optimizer.zero_grad()
                loss(module(inputs), labels).backward()
                optimizer.step()
    return audit_canaries(
        scores.scores(),
        canaries.included,
        guarantee,
        guesses=setting.guesses,
        confidence=setting.confidence,
    )


@contextmanager
def noise_as_in(setting: Setting) -> Iterator[None]:
    """Remove the noise inside the stream of training: a fault that no certificate knows about."""
    if setting.noise:
        yield
        return
    real = TorchNoiseStream.__next__

    def silent(stream: TorchNoiseStream) -> list[Tensor]:
        return [torch.zeros_like(part) for part in real(stream)]

    with mock.patch.object(TorchNoiseStream, "__next__", silent):
        yield


def summary(found: Sequence[CanaryAudit]) -> str:
    """How many runs had their bounds where they belong."""
    lower = [one.epsilon_lower for one in found]
    below = sum(one.epsilon_lower <= one.epsilon for one in found)
    positive = sum(bound > 0 for bound in lower)
    return (
        f"{below} of {len(found)} at or below the certificate, {positive} above 0; from "
        f"{min(lower):.3f} to {max(lower):.3f}, median {statistics.median(lower):.3f}"
    )


def main(arguments: Sequence[str] | None = None) -> dict[str, list[CanaryAudit]]:
    """Audit runs of each scheme, and print what was found."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, default=DEBIAN, help="folder with the idx files")
    parser.add_argument("--sampling", choices=RUNS, action="append", help="default: all")
    parser.add_argument("--runs", type=int, default=1, help="of each scheme; default 1")
    parser.add_argument("--canaries", type=int, default=Setting.canaries)
    parser.add_argument("--examples", type=int, default=Setting.examples)
    parser.add_argument("--epsilon", type=float, default=Setting.epsilon)
    parser.add_argument(
        "--guesses", type=int, nargs=2, metavar=("IN", "OUT"), help="default: planned"
    )
    parser.add_argument("--seed", type=int, default=0, help="of images and parameters")
    parser.add_argument("--without-noise", action="store_true", help="leave the noise out")
    given = parser.parse_args(arguments)
    setting = Setting(
        examples=given.examples,
        canaries=given.canaries,
        epsilon=given.epsilon,
        guesses=given.guesses and (given.guesses[0], given.guesses[1]),
        noise=not given.without_noise,
    )
    try:
        data = images(given.data, setting.examples).train
    except mmcc.MmccError as problem:
        sys.exit(f"canary_audit.py: {problem}")
    # Opacus hooks a first layer whose inputs need no gradient: torch's warning is harmless.
    warnings.filterwarnings("ignore", message="Full backward hook")
    found: dict[str, list[CanaryAudit]] = {}
    for name in given.sampling or RUNS:
        strategy, scheme = RUNS[name]
        guarantee = mmcc.sigma(strategy, scheme, epsilon=setting.epsilon, delta=setting.delta)
        print(f"{guarantee}")
        found[name] = []
        for seed in range(given.seed, given.seed + given.runs):
            found[name].append(audited(name, data, setting, guarantee, seed))
            print(f"{name}, run {seed}: {found[name][-1]}", flush=True)
        print(f"{name}: {summary(found[name])}", flush=True)
    return found


if __name__ == "__main__":
    main()
