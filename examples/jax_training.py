"""FashionMNIST in JAX: jax_privacy's sampler, clipping and noise, and our certified epsilon.

    pip install 'mmcc[jax]'                     # Python 3.11 or newer
    python examples/jax_training.py             # two networks, 400 steps each
    python examples/jax_training.py --quick     # half a minute of one core

Two mechanisms at the same certified (epsilon, delta): independent noise with Poisson sampling
(DP-SGD), and bands with a pause after each participation (b-min-sep), for which jax_privacy has
Monte Carlo estimates but no bound.

In: the idx files of FashionMNIST.  Out: a table with the noise, its error and the accuracy on the
test images.  The learning rate was chosen by eye; that choice is not part of the guarantee.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy import batch_selection, clipping

import mmcc
from mmcc import strategies, utility
from mmcc.bridge import jax_privacy as bridge

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
BANDS = 8
HIDDEN = 64
ROUNDED_TO = 128
"""Batches are padded to multiples of this, so that few shapes are compiled."""


@dataclass(frozen=True)
class Setting:
    """What both mechanisms have in common."""

    steps: int = 400
    batch: int = 600
    examples: int = 60_000
    epsilon: float = 4.0
    delta: float = 1e-5
    learning_rate: float = 2.0
    clip: float = 1.0
    seed: int | None = None


QUICK = replace(Setting(), steps=60, batch=200, examples=10_000)


@dataclass(frozen=True)
class Result:
    """One trained network, as a line of the table."""

    name: str
    guarantee: mmcc.Guarantee
    error: float
    accuracy: float


def mechanisms(setting: Setting) -> dict[str, tuple[strategies.Strategy, Any]]:
    """Strategy and sampler, with the same expected batch."""
    rate = setting.batch / setting.examples
    poisson = batch_selection.CyclicPoissonSampling(rate, setting.steps)
    pause = batch_selection.BMinSepSampling(
        sampling_prob=rate / (1 - rate * (BANDS - 1)), iterations=setting.steps, min_sep=BANDS
    )
    return {
        "DP-SGD": (strategies.identity(setting.steps), poisson),
        f"{BANDS} bands, a pause": (strategies.banded_toeplitz(setting.steps, BANDS), pause),
    }


def images(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels in [-1, 1], one image a row, and labels."""
    pixels = _idx(folder / f"{name}-images-idx3-ubyte").astype(np.float32) / 127.5 - 1
    return pixels.reshape(len(pixels), -1), _idx(folder / f"{name}-labels-idx1-ubyte").astype(int)


def _idx(path: Path) -> np.ndarray:
    """An idx file of bytes, gzipped or plain."""
    packed = path.with_name(path.name + ".gz")
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    dimensions = content[3]
    sizes = np.frombuffer(content[4 : 4 + 4 * dimensions], ">u4").astype(int)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(sizes)


def network(seed: int) -> dict[str, jax.Array]:
    """One hidden layer."""
    first, second = jax.random.split(jax.random.key(seed))
    return {
        "first": jax.random.normal(first, (784, HIDDEN)) / 28,
        "bias": jnp.zeros(HIDDEN),
        "second": jax.random.normal(second, (HIDDEN, 10)) / 8,
        "offset": jnp.zeros(10),
    }


def scores(parameters: dict[str, jax.Array], pixels: jax.Array) -> jax.Array:
    """Scores of the ten classes, before the softmax."""
    hidden = jnp.tanh(pixels @ parameters["first"] + parameters["bias"])
    return hidden @ parameters["second"] + parameters["offset"]


def loss(parameters: dict[str, jax.Array], pixels: jax.Array, label: jax.Array) -> jax.Array:
    """The loss of one example, whose gradient is clipped."""
    return optax.softmax_cross_entropy_with_integer_labels(scores(parameters, pixels), label)


def train(name: str, setting: Setting, data: tuple[np.ndarray, np.ndarray], test: Any) -> Result:
    """Certify, sample, clip, add noise, step."""
    pixels, labels = (part[: setting.examples] for part in data)
    strategy, sampler = mechanisms(setting)[name]
    guarantee = mmcc.sigma(
        strategy, bridge.scheme_from(sampler), epsilon=setting.epsilon, delta=setting.delta
    )
    gradient = clipping.clipped_grad(
        loss,
        l2_clip_norm=setting.clip,
        batch_argnums=(1, 2),
        keep_batch_dim=False,
        normalize_by=setting.batch,  # public: never the size of the batch that was drawn
    )
    noise = bridge.privatizer(
        strategy, sigma=guarantee.sigma, sensitivity=gradient.sensitivity(), key=setting.seed
    )
    step = update(gradient, noise, setting.learning_rate)
    parameters = network(setting.seed or 0)
    state = noise.init(parameters)
    for batch in sampler.batch_iterator(len(pixels), setting.seed):
        # One more padded example, so that no batch is empty.
        chosen = batch_selection.pad_to_multiple_of(np.append(batch, -1), ROUNDED_TO)
        parameters, state = step(parameters, state, pixels[chosen], labels[chosen], chosen < 0)
    found = jnp.argmax(scores(parameters, jnp.asarray(test[0])), axis=1)
    accuracy = float(np.mean(np.asarray(found) == test[1]))
    return Result(name, guarantee, utility.rmse(strategy, guarantee.sigma), accuracy)


def update(gradient: Any, noise: Any, learning_rate: float) -> Callable[..., Any]:
    """One step; padded examples, whose index is -1, contribute nothing."""

    @jax.jit
    def step(parameters: Any, state: Any, pixels: Any, labels: Any, padding: Any) -> Any:
        clipped = gradient(parameters, pixels, labels, is_padding_example=padding)
        private, state = noise.update(clipped, state)
        moved = jax.tree.map(lambda old, move: old - learning_rate * move, parameters, private)
        return moved, state

    return step


def main(arguments: list[str] | None = None) -> int:
    """The table, or what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DEBIAN, help="folder with the idx files")
    parser.add_argument("--quick", action="store_true", help="fewer steps, 10,000 images")
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--seed", type=int, help="fixes batches and noise: only for tests")
    options = parser.parse_args(arguments)
    setting = replace(QUICK if options.quick else Setting(), seed=options.seed)
    if options.epsilon is not None:
        setting = replace(setting, epsilon=options.epsilon)
    try:
        data, test = images(options.data, "train"), images(options.data, "t10k")
    except FileNotFoundError as missing:
        print(
            f"{missing.filename} is missing: install Debian's dataset-fashion-mnist, or put the "
            "four idx files of FashionMNIST in a folder and pass it with --data.",
            file=sys.stderr,
        )
        return 2
    setting = replace(setting, examples=min(setting.examples, len(data[0])))
    print(f"epsilon {setting.epsilon:g} at delta {setting.delta:g}, certified")
    print(f"{'mechanism':18} {'sigma':>7} {'error':>7} {'accuracy':>9}")
    for name in mechanisms(setting):
        found = train(name, setting, data, test)
        assert found.guarantee.epsilon <= setting.epsilon
        sigma, error = found.guarantee.sigma, found.error
        print(f"{name:18} {sigma:7.4f} {error:7.2f} {found.accuracy:9.1%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
