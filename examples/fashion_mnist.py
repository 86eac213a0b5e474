"""FashionMNIST: a small network, trained with correlated noise at equal certified epsilon.

    python examples/fashion_mnist.py                       # all four strategies, some minutes
    python examples/fashion_mnist.py --quick               # fewer steps, below a minute
    python examples/fashion_mnist.py --strategy blt --epsilon 4 --checkpoint run

In: the idx files of FashionMNIST.  Out: a table with the accuracy on the test images, the certified
epsilon, the noise, and what was assumed.
The learning rate was chosen on the same data by eye; that choice is not part of the guarantee.
"""

from __future__ import annotations

import argparse
import gzip
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import mmcc
from mmcc import sampling, strategies, utility
from mmcc.design import TunedBlt
from mmcc.sampling import Scheme
from mmcc.strategies import Strategy
from mmcc.training import load_checkpoint, make_private, save_checkpoint

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
BANDS = 8
HEIGHT = 6
TUNED = (sampling.Poisson, sampling.CyclicPoisson, sampling.BallsInBins)
"""Schemes with certified amplification, for which a BLT can be searched."""
SAVED_EVERY = 50
"""Steps between two checkpoints."""


@dataclass(frozen=True)
class Setting:
    """What all strategies have in common."""

    steps: int = 480
    batch: int = 1024
    examples: int = 60000
    """How many of the training images are used: the first ones."""
    epsilon: float = 2.0
    delta: float = 1e-5
    scheme: str = "poisson"
    learning_rate: float = 4.0
    momentum: float = 0.0
    clip: float = 1.0
    search: bool = True
    """Whether the BLT is searched for this target, or the one found for the defaults is used."""


QUICK = replace(Setting(), steps=40, batch=512, examples=10000, search=False)


@dataclass(frozen=True)
class Images:
    """Training and test images in [-1, 1], with their labels."""

    train: TensorDataset
    test: TensorDataset


@dataclass(frozen=True)
class Result:
    """One trained model, as a line of the table."""

    name: str
    network: nn.Module
    accuracy: float
    guarantee: mmcc.Guarantee
    error: float
    """Root mean squared error of the prefix sums, in units of the clip norm."""
    seconds: float
    """Seconds of calibration and training."""


def small_network() -> nn.Module:
    """21 802 parameters; strides and no pooling, as per-example gradients cost time per pixel."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=3, padding=1),
        nn.Tanh(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def images(folder: Path, examples: int) -> Images:
    """Read the four idx files of a folder, gzipped or plain, keeping `examples` training images."""

    def part(name: str, count: int | None = None) -> TensorDataset:
        pixels = torch.from_numpy(_idx(folder, f"{name}-images-idx3-ubyte", 3))
        labels = torch.from_numpy(_idx(folder, f"{name}-labels-idx1-ubyte", 1))
        if len(pixels) != len(labels):
            raise mmcc.MmccError(
                f"{len(pixels)} {name} images have {len(labels)} labels; download both files again."
            )
        scaled = pixels[:count].float().unsqueeze(1) / 127.5 - 1
        return TensorDataset(scaled, labels[:count].long())

    return Images(part("train", examples), part("t10k"))


def _idx(folder: Path, name: str, dimensions: int) -> np.ndarray:
    """An idx file of bytes: two zeros, type 8, the number of sizes, the sizes, the bytes."""
    packed, plain = folder / f"{name}.gz", folder / name
    try:
        content = gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
    except FileNotFoundError:
        raise mmcc.MmccError(
            f"no {name}(.gz) in {str(folder)!r}: install Debian's dataset-fashion-mnist, or put "
            "the four idx files of FashionMNIST in a folder and pass it with --data."
        ) from None
    start = 4 + 4 * dimensions
    sizes = np.frombuffer(content[4:start], ">u4").astype(int)
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) - start != sizes.prod():
        raise mmcc.MmccError(f"{name} in {str(folder)!r} is not a whole idx file; get it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(sizes).copy()


def sampling_scheme(setting: Setting, examples: int) -> Scheme:
    """Each scheme at the same expected batch size."""
    rate = setting.batch / examples
    epoch = examples // setting.batch
    makers: dict[str, Callable[[], Scheme]] = {
        "poisson": lambda: sampling.Poisson(rate),
        "cyclic-poisson": lambda: sampling.CyclicPoisson(rate * BANDS, BANDS),
        "min-separation": lambda: sampling.MinSeparation(rate / (1 - rate * (BANDS - 1)), BANDS),
        "balls-in-bins": lambda: sampling.BallsInBins(epoch),
        "shuffle": lambda: sampling.Shuffle(epoch),
    }
    return makers[setting.scheme]()


def identity(setting: Setting, _: Scheme) -> Strategy:
    """Independent noise: DP-SGD."""
    return strategies.identity(setting.steps)


def tree(setting: Setting, _: Scheme) -> Strategy:
    """Binary trees one after another: in a single tree an example would touch too many nodes."""
    return strategies.tree_restart(setting.steps, HEIGHT)


def banded(setting: Setting, scheme: Scheme) -> Strategy:
    """Few bands: the best ones if a row has one participation at most, else smaller ones."""
    if isinstance(scheme, sampling.Poisson):
        return strategies.toeplitz(strategies.continual_counting(BANDS).coefficients, setting.steps)
    return strategies.banded_toeplitz(setting.steps, BANDS)


def blt(setting: Setting, scheme: Scheme) -> Strategy:
    """One buffer, with decay and scale for this scheme and target."""
    if setting.search and isinstance(scheme, TUNED):
        return TunedBlt(setting.steps).tune(scheme, setting.epsilon, setting.delta)
    return strategies.blt(setting.steps, decay=[0.884], scale=[0.154])


STRATEGIES: dict[str, Callable[[Setting, Scheme], Strategy]] = {
    "identity": identity,
    "tree": tree,
    "banded": banded,
    "blt": blt,
}


def train(
    name: str,
    setting: Setting,
    data: Images,
    *,
    seed: int | None = None,
    checkpoint: Path | None = None,
    announce: Callable[[str, int], None] | None = None,
) -> Result:
    """Train one model; `announce` is told what is being done, and how many steps are done."""
    begun = time.perf_counter()
    if seed is not None:
        torch.manual_seed(seed)
    tell = announce or _silent
    tell("calibrates", 0)
    scheme = sampling_scheme(setting, len(data.train))
    strategy = STRATEGIES[name](setting, scheme)
    network = small_network()
    module, optimizer, loader = make_private(
        network,
        torch.optim.SGD(network.parameters(), lr=setting.learning_rate, momentum=setting.momentum),
        data.train,
        strategy=strategy,
        sampling=scheme,
        max_grad_norm=setting.clip,
        epsilon=setting.epsilon,
        delta=setting.delta,
        seed=seed,
        physical_batch_size=256,
        steps_per_epoch=min(SAVED_EVERY, setting.steps),
        progress=False,  # there already is a bar
    )
    if checkpoint is not None and checkpoint.exists():
        load_checkpoint(checkpoint, optimizer)
    while not optimizer.finished:
        if checkpoint is not None:
            save_checkpoint(checkpoint, optimizer)
        for pixels, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(pixels), labels).backward()
            optimizer.step()
            tell("trains", optimizer.position)
    if checkpoint is not None:
        save_checkpoint(checkpoint, optimizer)
    error = utility.rmse(strategy, optimizer.guarantee.sigma)
    seconds = time.perf_counter() - begun
    right = accuracy(network, data.test)
    return Result(name, network, right, optimizer.guarantee, error, seconds)


def _silent(what: str, done: int) -> None:
    """Ignore the progress."""


@torch.no_grad()
def accuracy(network: nn.Module, data: TensorDataset) -> float:
    """Share of the images with the right label."""
    pixels, labels = data.tensors
    right: Tensor = network(pixels).argmax(dim=1) == labels
    return float(right.double().mean())


def shown(results: list[Result], setting: Setting, console: Console) -> None:
    """The table, and below it what its numbers assume."""
    table = Table(
        title=f"FashionMNIST: {setting.steps} steps, expected batch {setting.batch} of "
        f"{setting.examples}, delta {setting.delta:g}"
    )
    table.add_column("strategy")
    table.add_column("sampling", no_wrap=True)
    for column in ("accuracy", "epsilon", "sigma", "prefix error", "seconds"):
        table.add_column(column, justify="right")
    for result in results:
        found = result.guarantee
        table.add_row(
            result.name,
            setting.scheme,
            f"{100 * result.accuracy:.1f} %",
            f"{math.ceil(1e4 * found.epsilon) / 1e4:.4f}",  # a bound is never rounded down
            f"{found.sigma:.4g}",
            f"{result.error:.4g}",
            f"{result.seconds:.0f}",
        )
    console.print(table)
    for result in results:
        console.print(f"{result.name}: {result.guarantee}.", highlight=False)
    console.print(
        "sigma: noise in units of the clip norm.  prefix error: root mean squared error of the "
        "sums of gradients up to each step, in the same units.\nA guarantee is for one run.  "
        "Several runs on the same data compose, and so does a learning rate chosen by looking.",
        highlight=False,
    )


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DEBIAN, help="folder with the idx files")
    parser.add_argument(
        "--strategy", choices=STRATEGIES, action="append", help="may be repeated; default: all"
    )
    parser.add_argument(
        "--sampling",
        default="poisson",
        choices=["poisson", "cyclic-poisson", "min-separation", "balls-in-bins", "shuffle"],
    )
    parser.add_argument("--epsilon", type=float, help=f"default {Setting.epsilon}")
    parser.add_argument("--delta", type=float, help=f"default {Setting.delta}")
    parser.add_argument("--steps", type=int, help=f"default {Setting.steps}")
    parser.add_argument("--batch", type=int, help=f"expected size; default {Setting.batch}")
    parser.add_argument("--learning-rate", type=float, help=f"default {Setting.learning_rate}")
    parser.add_argument("--momentum", type=float, help=f"default {Setting.momentum}")
    parser.add_argument(
        "--seed", type=int, help="repeats a run; void guarantee against anyone who knows it"
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="secret folder: runs are saved there and resumed"
    )
    parser.add_argument("--quick", action="store_true", help="under a minute, and less accurate")
    return parser.parse_args(words)


def chosen(options: argparse.Namespace) -> Setting:
    """The defaults, with the changes of the command line."""
    names = ("epsilon", "delta", "steps", "batch", "learning_rate", "momentum")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return replace(QUICK if options.quick else Setting(), scheme=options.sampling, **given)


def main(words: list[str] | None = None) -> int:
    """Train what was asked for, with a progress bar, and print the table."""
    # Opacus hooks a first layer whose inputs need no gradient: torch's warning is harmless.
    warnings.filterwarnings("ignore", message="Full backward hook")
    options = arguments(words)
    setting = chosen(options)
    console = Console()
    columns = (
        TextColumn("{task.description:<20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    results = []
    try:
        data = images(options.data, setting.examples)
        if options.checkpoint is not None:
            options.checkpoint.mkdir(parents=True, exist_ok=True)
        with Progress(*columns, console=Console(stderr=True)) as bar:
            for name in options.strategy or STRATEGIES:
                task = bar.add_task(name, total=setting.steps)

                def announce(what: str, done: int, name: str = name, task: object = task) -> None:
                    bar.update(task, description=f"{name} {what}", completed=done)

                file = options.checkpoint and options.checkpoint / f"{name}.checkpoint"
                results.append(
                    train(
                        name, setting, data, seed=options.seed, checkpoint=file, announce=announce
                    )
                )
    except (mmcc.MmccError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    shown(results, setting, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
