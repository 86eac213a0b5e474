"""What correlated noise costs in training: time of a step with noise against the same without.

    python benchmarks/training_overhead.py [--network dense|convolutional] [--rounds 5]

Networks of 550 000 parameters, batches of 256, per-example gradients by Opacus, one thread unless
--threads says otherwise.  In every round each strategy makes one step, one after another, so that
other load on the machine affects all alike.  The time of each step inside `add_noise` (drawing,
correlating and adding) is measured separately; the overhead is its ratio to the rest of the same
step: the median over the rounds, and the ratio of the sums (trees draw more at some steps than at
others).  The batch is loaded before the clock starts.

A second table shows what it costs to inspect gradients (`mmcc.training._watch`): steps with and
without it in turn, for several batch sizes, and the share of a run of 1024 steps, in which the
first three batches and one in a hundred of the others are inspected.  The checksums by which
writes to the module are detected are computed in every step, and have a column of their own.

Memory: bytes of all tensors that exist because of the noise stream between two steps, plus the
vector handed out, as multiples of a parameter vector; compared with what `stream.memory` promises.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from mmcc import strategies
from mmcc.sampling import CyclicPoisson
from mmcc.strategies import Strategy
from mmcc.training import TorchNoiseStream, make_private
from mmcc.training import _watch as watching

BATCH = 256
STEPS = 1024
GROUPS = 2
LIMIT = 0.10
CHECKS_LIMIT = 0.03


def dense() -> nn.Module:
    """540 490 parameters, and little arithmetic for each: the hard case for the noise."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 530),
        nn.ReLU(),
        nn.Linear(530, 230),
        nn.ReLU(),
        nn.Linear(230, 10),
    )


def convolutional() -> nn.Module:
    """550 570 parameters: the usual network of private CIFAR-10."""
    layers: list[nn.Module] = []
    for channels, width in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.Tanh()]
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(128 * 16, 128), nn.Tanh(), nn.Linear(128, 10)]
    return nn.Sequential(*layers)


NETWORKS = {"dense": (dense, (1, 28, 28)), "convolutional": (convolutional, (3, 32, 32))}


def compared() -> dict[str, Strategy]:
    """All strategies that are timed."""
    counting = strategies.continual_counting(STEPS).coefficients
    found: dict[str, Strategy] = {
        "identity": strategies.identity(STEPS),
        "tree": strategies.binary_tree(STEPS),
        "tree_restart, height 6": strategies.tree_restart(STEPS, 6),
    }
    for bands in (4, 16):
        found[f"{bands} bands"] = strategies.toeplitz(counting[:bands], STEPS)
    for buffers in (1, 2, 3, 4):
        found[f"BLT, {buffers} buffers"] = strategies.blt(STEPS, buffers)
    return found


@dataclass
class Timed:
    """A private run whose noise is timed separately."""

    strategy: Strategy
    network: str
    batch: int = BATCH
    noise: list[float] = field(default_factory=list)
    rest: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        make, shape = NETWORKS[self.network]
        generator = torch.Generator().manual_seed(0)
        count = self.batch * GROUPS
        data = TensorDataset(
            torch.randn(count, *shape, generator=generator),
            torch.randint(10, (count,), generator=generator),
        )
        network = make()
        self.module, self.optimizer, self.loader = make_private(
            network,
            torch.optim.SGD(network.parameters(), lr=0.01),
            data,
            strategy=self.strategy,
            sampling=CyclicPoisson(1.0, GROUPS),  # exactly `batch` examples a step
            max_grad_norm=1.0,
            sigma=1.0,
            delta=1e-5,
            seed=0,
        )
        self.batches = iter(self.loader)
        self._inside = 0.0
        add = self.optimizer.add_noise

        def timed() -> None:
            begun = time.perf_counter()
            add()
            self._inside = time.perf_counter() - begun

        self.optimizer.add_noise = timed

    def step(self) -> None:
        pixels, labels = next(self.batches)
        begun = time.perf_counter()
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.module(pixels), labels).backward()
        self.optimizer.step()
        whole = time.perf_counter() - begun
        self.noise.append(self._inside)
        self.rest.append(whole - self._inside)

    def overheads(self) -> tuple[float, float]:
        noise, rest = self.noise[1:], self.rest[1:]  # the first step warms up
        ratios = [part / other for part, other in zip(noise, rest, strict=True)]
        return statistics.median(ratios), sum(noise) / sum(rest)


class Checked(Timed):
    """A private run in which any step can be made one of those that are inspected."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._watch = self.module.watch
        self.digests: list[float] = []
        contents = self._watch.contents
        for name in ("mark", "changed"):
            setattr(contents, name, self._clocked(getattr(contents, name)))

    def _clocked(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*arguments: Any) -> Any:
            begun = time.perf_counter()
            done = work(*arguments)
            self.digests[-1] += time.perf_counter() - begun
            return done

        return clocked

    def seconds(self, close: bool, thorough: bool) -> float:
        self._watch._passes = watching.FIRST
        self._watch._due = watching.FIRST if close and thorough else 0
        watching.SELDOM = 1 if close else 10**9
        self.digests.append(0.0)
        self.step()
        return self.noise[-1] + self.rest[-1]


def print_checks(network: str, rounds: int) -> None:
    """Print the cost of inspecting gradients, and its share of a run."""
    print("\n| batch | step (ms) | first batches | others | of a run | sums of bits |")
    print("|---|---|---|---|---|---|")
    seldom, worst = watching.SELDOM, 0.0
    for batch in (BATCH, 32, 8):
        run = Checked(strategies.identity(STEPS), network, batch)
        run.seconds(True, True)
        ratios: dict[bool, list[float]] = {True: [], False: []}
        plain = []
        for _ in range(rounds):
            for thorough, found in ratios.items():
                plain.append(run.seconds(False, False))
                found.append(run.seconds(True, thorough) / plain[-1] - 1)
        first, other = (statistics.median(ratios[thorough]) for thorough in (True, False))
        step = statistics.median(plain)
        bits = statistics.median(run.digests) / step
        share = watching.FIRST / STEPS * first + other / seldom
        worst = max(worst, share)
        print(
            f"| {batch} | {1e3 * step:.0f} | +{100 * first:.0f} % | +{100 * other:.0f} % "
            f"| {100 * share:.2f} % | {100 * bits:.2f} % |"
        )
    watching.SELDOM = seldom
    verdict = "below" if worst < CHECKS_LIMIT else "NOT below"
    print(f"\nlargest share of a run {100 * worst:.2f} %: {verdict} 3 %")


def tensor_bytes() -> int:
    """Bytes of all live tensors, each storage counted once."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some objects warn when they are inspected
        storages = {
            t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
            for t in gc.get_objects()
            if type(t) in (torch.Tensor, nn.Parameter)
        }
    return sum(storages.values())


def held_vectors(strategy: Strategy, network: nn.Module) -> tuple[float, int]:
    """Vectors that a stream and its latest output really occupy, and how many it promises."""
    parameters = list(network.parameters())
    size = sum(p.numel() * p.element_size() for p in parameters)
    before = tensor_bytes()
    stream = TorchNoiseStream(strategy, 1.0, parameters, 0)
    for _ in range(33):
        latest = next(stream)
    after = tensor_bytes()
    del latest
    return (after - before) / size, stream.memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, default="dense")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message="Full backward hook")
    network = NETWORKS[options.network][0]()
    count = sum(p.numel() for p in network.parameters())
    held = {name: held_vectors(strategy, network) for name, strategy in compared().items()}
    runs = {name: Timed(strategy, options.network) for name, strategy in compared().items()}
    for _ in range(options.rounds + 1):
        for run in runs.values():
            run.step()
    print(
        f"{options.network}, {count} parameters, batch {BATCH}, {options.threads} thread(s), "
        f"median of {options.rounds} rounds\n"
    )
    print(
        "| strategy | step without noise (ms) | noise (ms) | overhead, median | of the sums "
        "| vectors held | promised |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, run in runs.items():
        rest, noise = (1e3 * statistics.median(times[1:]) for times in (run.rest, run.noise))
        median, total = run.overheads()
        print(
            f"| {name} | {rest:.0f} | {noise:.1f} | {100 * median:.1f} % | {100 * total:.1f} % "
            f"| {held[name][0]:.2f} | {held[name][1]} |"
        )
    worst = max(max(run.overheads()) for run in runs.values())
    print(
        f"\nlargest overhead {100 * worst:.1f} %: {'below' if worst < LIMIT else 'NOT below'} 10 %"
    )
    print_checks(options.network, options.rounds)


if __name__ == "__main__":
    main()
