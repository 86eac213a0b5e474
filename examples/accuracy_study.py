"""Accuracy of DP-SGD, bands and a tuned BLT on FashionMNIST, at the same certified guarantees.

    python examples/accuracy_study.py --out study           # minutes of a core; goes on if stopped
    python examples/accuracy_study.py --out quick --quick   # seconds

In: the idx files of FashionMNIST.  Out: runs.jsonl, a line for each training run, and accuracy.png
in a folder; on stdout a table of test accuracies with 95 % confidence intervals.

A linear model on fixed wavelet features: two thirds of the training images are private, the others
are declared public, scale the features and choose the learning rates, at the same batch and noise.
Per-example gradients have closed forms, so that a step is a millisecond: batches are drawn by
`Participants` and noise by `TorchNoiseStream`, the two that `make_private` puts together; a test
trains by that as well and compares.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fashion_mnist import DEBIAN, Images, images
from scipy import special
from torch import Tensor

import mmcc
from mmcc import sampling, strategies, utility
from mmcc.design import TunedBlt
from mmcc.strategies import Strategy
from mmcc.training import Participants, TorchNoiseStream

CLASSES, CLIP = 10, 1.0
ROUNDED = 1e-5
"""Norms are taken to be larger by this part, which pays for single precision."""
TUNING_SEED = 0
MECHANISMS = ("DP-SGD", "bands", "BLT")
Line = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What all mechanisms have in common."""

    images: int = 60000
    """Training images that are used; the last third of them is public."""
    epoch: int = 100
    """An example takes part in a step with probability one in this."""
    steps: int = 2000
    delta: float = 1e-5
    epsilons: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    rates: tuple[float, ...] = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
    """Learning rates to choose from."""
    widths: tuple[int, ...] = (4, 8, 16, 32)
    """Bands to choose from, by their certified error."""


QUICK = Setting(
    images=6000, epoch=20, steps=60, epsilons=(4.0,), seeds=(1, 2), rates=(4.0, 16.0), widths=(4,)
)


@dataclass(frozen=True)
class Examples:
    """Features, a row each, and labels."""

    features: Tensor
    labels: Tensor

    def part(self, start: int, stop: int) -> Examples:
        """Some of them."""
        return Examples(self.features[start:stop], self.labels[start:stop])


@dataclass(frozen=True)
class Data:
    """Who is protected, who is not, and who is only asked at the end."""

    private: Examples
    public: Examples
    test: Examples


@dataclass(frozen=True)
class Mechanism:
    """A strategy at the noise that is certified for a target."""

    name: str
    epsilon: float
    strategy: Strategy
    guarantee: mmcc.Guarantee

    @property
    def error(self) -> float:
        """Root mean squared error of prefix sums, in clip norms."""
        return utility.rmse(self.strategy, self.guarantee.sigma)


def wavelets(pixels: Tensor) -> Tensor:
    """Moduli of Gabor wavelets, two scales and eight directions, averaged over 7 x 7 squares.

    Nothing in them comes from data.  The image itself, averaged, is the ninth of nine kinds.
    """
    maps = [pixels]
    for spread, wave, size in ((1.2, 2.0, 7), (2.4, 1.0, 13)):
        filters = _gabor(spread, wave, size)
        found = torch.nn.functional.conv2d(pixels, filters, padding=size // 2)
        maps.append((found[:, 0::2].square() + found[:, 1::2].square()).sqrt())
    return torch.nn.functional.avg_pool2d(torch.cat(maps, 1), 4).flatten(1)


def _gabor(spread: float, wave: float, size: int, directions: int = 8) -> Tensor:
    """Even and odd filters of norm 1 in turn, one pair for each direction; the even sum to 0."""
    places = torch.arange(size, dtype=torch.float32) - size // 2
    y, x = torch.meshgrid(places, places, indexing="ij")
    bell = torch.exp(-(x.square() + y.square()) / (2 * spread**2))
    filters = []
    for direction in range(directions):
        angle = math.pi * direction / directions
        along = wave * (x * math.cos(angle) + y * math.sin(angle))
        even = bell * torch.cos(along)
        even = even - bell * (even.sum() / bell.sum())
        odd = bell * torch.sin(along)
        filters += [even / even.norm(), odd / odd.norm()]
    return torch.stack(filters).unsqueeze(1)


def prepared(pictures: Images) -> Data:
    """Features scaled by what the public images say, of norm 1, beside a constant 1."""

    def raw(pixels: Tensor) -> Tensor:
        return torch.cat([wavelets(part) for part in pixels.split(500)])

    (pixels, labels), (test_pixels, test_labels) = pictures.train.tensors, pictures.test.tensors
    found = raw(pixels)
    known = len(found) - len(found) // 3
    mean, deviation = found[known:].mean(dim=0), found[known:].std(dim=0) + 1e-3

    def scaled(features: Tensor) -> Tensor:
        standard = torch.nn.functional.normalize((features - mean) / deviation)
        return torch.cat([standard, torch.ones(len(standard), 1)], dim=1)

    train = Examples(scaled(found), labels)
    test = Examples(scaled(raw(test_pixels)), test_labels)
    return Data(train.part(0, known), train.part(known, len(labels)), test)


def train(
    examples: Examples, mechanism: Mechanism, scheme: sampling.Poisson, rate: float, seed: int
) -> Tensor:
    """The weights of a linear model after all steps of SGD, clipped and with correlated noise.

    The gradient of an example is (its probabilities - its label) times its features, transposed,
    so that its norm is the product of theirs.
    """
    steps = mechanism.strategy.steps
    weight = torch.zeros(CLASSES, examples.features.shape[1])
    noise = TorchNoiseStream(mechanism.strategy, mechanism.guarantee.sigma, [weight], seed)
    participants = Participants(scheme, steps, len(examples.labels), seed)
    for step in range(steps):
        members = torch.from_numpy(participants.at(step).copy())
        features, labels = examples.features[members], examples.labels[members]
        wrong = torch.softmax(features @ weight.T, dim=1)
        wrong[torch.arange(len(labels)), labels] -= 1
        norms = wrong.norm(dim=1) * features.norm(dim=1) * (1 + ROUNDED)
        wrong *= (CLIP / norms).clamp(max=1).unsqueeze(1)
        released = wrong.T @ features + CLIP * next(noise)[0]
        weight -= rate / participants.expected * released
    return weight


def accuracy(weight: Tensor, examples: Examples) -> float:
    """Share of the examples with the right label."""
    right = (examples.features @ weight.T).argmax(dim=1) == examples.labels
    return float(right.double().mean())


def mechanism_at(name: str, epsilon: float, setting: Setting) -> Mechanism:
    """The strategy of that name, made for the target where it can be, at its certified noise."""
    scheme, steps = sampling.Poisson(1 / setting.epoch), setting.steps

    def certified(strategy: Strategy) -> Mechanism:
        method = "reveal" if strategy.correlated else "tight"  # "tight" takes minutes for nothing
        found = mmcc.sigma(strategy, scheme, epsilon=epsilon, delta=setting.delta, method=method)
        return Mechanism(name, epsilon, strategy, found)

    if name == "BLT":
        return certified(TunedBlt(steps).tune(scheme, epsilon, setting.delta, "reveal"))
    if name == "bands":
        counting = strategies.continual_counting(steps).coefficients
        every = [strategies.toeplitz(counting[:width], steps) for width in setting.widths]
        return min(map(certified, every), key=lambda one: one.error)
    return certified(strategies.identity(steps))


@dataclass(frozen=True)
class Study:
    """Runs of one setting, kept in a file line by line: what is there is not computed again."""

    setting: Setting
    file: Path
    tell: Callable[[str], None]

    def lines(self) -> list[Line]:
        """What is known; half a line, left by an interruption, is forgotten."""
        content = self.file.read_text() if self.file.exists() else ""
        whole = content[: content.rfind("\n") + 1]
        if whole != content:
            self.file.write_text(whole)
        found: list[Line] = [json.loads(line) for line in whole.splitlines()]
        setting = json.loads(json.dumps(asdict(self.setting)))
        if not found:
            self._append({"kind": "setting", **setting})
        elif found[0] != {"kind": "setting", **setting}:
            raise mmcc.MmccError(
                f"{str(self.file)!r} is of another setting; choose another folder with --out."
            )
        return found[1:]

    def run(self, data: Data) -> list[Line]:
        """Everything that is missing, and then all of it."""
        for epsilon in self.setting.epsilons:
            for name in MECHANISMS:
                self._mechanism(name, epsilon, data)
        return self.lines()

    def _mechanism(self, name: str, epsilon: float, data: Data) -> None:
        """Noise, learning rate and runs of one mechanism at one target."""
        what = {"mechanism": name, "epsilon": epsilon}
        known = [line for line in self.lines() if what.items() <= line.items()]
        runs = [line["seed"] for line in known if line["kind"] == "run"]
        if set(runs) >= set(self.setting.seeds):
            return
        self.tell(f"{name} at epsilon {epsilon:g}: noise")
        made = mechanism_at(name, epsilon, self.setting)
        if not any(line["kind"] == "noise" for line in known):
            self._append({"kind": "noise", **what, **_facts(made)})
        tuned = {line["rate"]: line["accuracy"] for line in known if line["kind"] == "tuning"}
        for rate in self.setting.rates:
            if rate not in tuned:
                self.tell(f"{name} at epsilon {epsilon:g}: learning rate {rate:g}")
                tuned[rate] = self._tuning(made, rate, data.public)
                line = {"kind": "tuning", **what, "rate": rate, "accuracy": tuned[rate]}
                self._append(line)
        rate = max(tuned, key=lambda one: (tuned[one], -one))
        scheme = sampling.Poisson(1 / self.setting.epoch)
        for seed in self.setting.seeds:
            if seed not in runs:
                self.tell(f"{name} at epsilon {epsilon:g}: seed {seed}")
                start = time.process_time()
                found = accuracy(train(data.private, made, scheme, rate, seed), data.test)
                seconds = round(time.process_time() - start, 2)
                line = {**what, "seed": seed, "rate": rate, "accuracy": found, "seconds": seconds}
                self._append({"kind": "run", **line})

    def _tuning(self, made: Mechanism, rate: float, public: Examples) -> float:
        """Accuracy on a fifth of the public images, trained on the others.

        The expected batch is that of the private runs, and so is the noise.
        """
        taught = 4 * len(public.labels) // 5
        batch = 2 * len(public.labels) / self.setting.epoch
        scheme = sampling.Poisson(batch / taught)
        weight = train(public.part(0, taught), made, scheme, rate, TUNING_SEED)
        return accuracy(weight, public.part(taught, len(public.labels)))

    def _append(self, line: Line) -> None:
        with self.file.open("a") as opened:
            opened.write(json.dumps(line) + "\n")


def _facts(made: Mechanism) -> Line:
    found = made.guarantee
    return {
        "strategy": found.strategy,
        "sigma": found.sigma,
        "certified": found.epsilon,
        "method": found.method,
        "error": made.error,
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the 95 % confidence interval by Student's t."""
    count = len(values)
    quantile = float(special.stdtrit(count - 1, 0.975))
    return float(np.mean(values)), quantile * float(np.std(values, ddof=1)) / math.sqrt(count)


@dataclass(frozen=True)
class Row:
    """What one mechanism reached at one target."""

    mechanism: str
    epsilon: float
    noise: Line
    rate: float
    accuracies: tuple[float, ...]
    """In the order of the seeds."""


def rows(lines: Sequence[Line], setting: Setting) -> Iterator[Row]:
    """One for each target and mechanism."""
    for epsilon in setting.epsilons:
        for name in MECHANISMS:
            what = {"mechanism": name, "epsilon": epsilon}
            mine = [line for line in lines if what.items() <= line.items()]
            runs = sorted((x for x in mine if x["kind"] == "run"), key=lambda x: x["seed"])
            noise = next(line for line in mine if line["kind"] == "noise")
            reached = tuple(run["accuracy"] for run in runs)
            yield Row(name, epsilon, noise, runs[0]["rate"], reached)


def table(found: Sequence[Row]) -> str:
    """Markdown; the last column is the mean of the differences between runs of the same seed."""
    lines = [
        "| epsilon | mechanism | strategy | sigma | prefix error | learning rate | accuracy | "
        "less DP-SGD's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        plain = next(r for r in found if (r.mechanism, r.epsilon) == ("DP-SGD", row.epsilon))
        mean, half = interval(row.accuracies)
        apart, unsure = interval(np.subtract(row.accuracies, plain.accuracies).tolist())
        beside = f"{100 * apart:+.2f} ± {100 * unsure:.2f}" if row is not plain else ""
        lines.append(
            f"| {row.epsilon:g} | {row.mechanism} | {row.noise['strategy']} "
            f"| {row.noise['sigma']:.4f} | {row.noise['error']:.2f} | {row.rate:g} "
            f"| {100 * mean:.2f} ± {100 * half:.2f} % | {beside} |"
        )
    return "\n".join(lines)


def draw(found: Sequence[Row], setting: Setting, file: Path) -> None:
    """Accuracy against epsilon, with intervals, in the house style."""
    from mmcc._picture import COLOURS, MARKERS, house_style, picture, set_log

    with house_style():
        figure, axes = picture(6.4, 3.6)
        for place, name in enumerate(MECHANISMS):
            mine = [row for row in found if row.mechanism == name]
            # Side by side, so that bars do not hide each other.
            x = [row.epsilon * 1.03 ** (place - 1) for row in mine]
            means, halves = 100 * np.transpose([interval(row.accuracies) for row in mine])
            style: Line = {"color": COLOURS[place], "marker": MARKERS[place], "label": name}
            axes.errorbar(x, means, yerr=halves, capsize=2.5, **style)
        set_log(axes, "x", (min(setting.epsilons), max(setting.epsilons)), setting.epsilons)
        axes.set_xlabel(f"epsilon at delta = {setting.delta:g}, certified")
        axes.set_ylabel("test accuracy (%)")
        axes.legend()
        figure.write(file)


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("accuracy-study"), help="folder for files")
    parser.add_argument("--data", type=Path, default=DEBIAN, help="folder with the idx files")
    parser.add_argument("--images", type=int, help="training images that are used")
    parser.add_argument("--rates", type=float, nargs="+", help="learning rates to choose from")
    parser.add_argument("--quick", action="store_true", help="seconds, and too few steps to learn")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run what is missing, and print the table."""
    options = arguments(words)
    setting = QUICK if options.quick else Setting()
    if options.images is not None:
        setting = replace(setting, images=options.images)
    if options.rates is not None:
        setting = replace(setting, rates=tuple(options.rates))
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        study = Study(
            setting, options.out / "runs.jsonl", lambda what: print(what, file=sys.stderr)
        )
        study.lines()  # refused now and not after the features are computed
        lines = study.run(prepared(images(options.data, setting.images)))
    except (mmcc.MmccError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    found = list(rows(lines, setting))
    print(table(found))
    try:
        draw(found, setting, options.out / "accuracy.png")
    except ImportError:
        print("no figure was drawn: pip install 'mmcc[plot]'", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
