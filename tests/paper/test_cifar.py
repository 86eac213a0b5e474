"""Claim: the CIFAR-10 study reads the published images alone, and trains what it accounts for."""

from __future__ import annotations

import hashlib
import pickle
from math import exp
from statistics import NormalDist

import numpy as np
import pytest

from mmcc.training import NoiseStream
from paper import cifar_data, learning
from paper.page import FIGURES
from paper.records import Table, read_table
from paper.study import MissingPartError

FEW = 20


@pytest.fixture
def images(monkeypatch):
    """A few pictures in place of 10,000."""
    monkeypatch.setattr(cifar_data, "IMAGES", FEW)
    drawn = np.random.default_rng(0)
    return cifar_data.Images(
        drawn.integers(0, 256, (FEW, 3, 32, 32)).astype(np.uint8),
        drawn.integers(0, 10, FEW).astype(np.uint8),
    )


def published(monkeypatch, name: str, content: bytes) -> None:
    """As if this were the content that was published."""
    monkeypatch.setitem(cifar_data.SHA1, name, hashlib.sha1(content).hexdigest())
    monkeypatch.setitem(cifar_data.MD5, name, hashlib.md5(content).hexdigest())


def test_both_versions_hold_the_same_pictures(images, tmp_path, monkeypatch):
    pickled = {b"data": images.pixels.reshape(FEW, -1), b"labels": images.labels.tolist()}
    versions = {
        "cifar-10-batches-bin": (".bin", cifar_data.binary_file(images)),
        "cifar-10-batches-py": ("", pickle.dumps(pickled, protocol=4)),
    }
    for folder, (ending, content) in versions.items():
        (tmp_path / folder / folder).mkdir(parents=True)
        for name in (*cifar_data.TRAIN, *cifar_data.TEST):
            (tmp_path / folder / folder / f"{name}{ending}").write_bytes(content)
            published(monkeypatch, name, content)
        train, test = cifar_data.read(tmp_path / folder)
        assert (len(train), len(test)) == (5 * FEW, FEW)
        assert np.array_equal(test.pixels, images.pixels)
        assert np.array_equal(train.labels, np.tile(images.labels, 5))
    red = versions["cifar-10-batches-bin"][1][1:1025]
    assert np.array_equal(np.frombuffer(red, np.uint8).reshape(32, 32), images.pixels[0, 0])


def test_files_that_are_not_the_published_ones_are_refused(images, tmp_path):
    for name in (*cifar_data.TRAIN, *cifar_data.TEST):
        (tmp_path / f"{name}.bin").write_bytes(cifar_data.binary_file(images))
    with pytest.raises(MissingPartError, match=r"data_batch_1 is not the published file"):
        cifar_data.read(tmp_path)
    (tmp_path / "data_batch_1.bin").unlink()
    with pytest.raises(MissingPartError, match=r"cannot read data_batch_1\.bin"):
        cifar_data.read(tmp_path)


def test_no_images_says_where_they_come_from(tmp_path):
    with pytest.raises(MissingPartError, match=r"python -m paper\.fetch_cifar10"):
        cifar_data.read(tmp_path)


class Harmful:
    def __reduce__(self):
        return print, ("this ran",)


def test_a_pickle_runs_nothing_even_with_the_right_checksum(tmp_path, monkeypatch, capsys):
    content = pickle.dumps({b"data": Harmful(), b"labels": []}, protocol=4)
    for name in (*cifar_data.TRAIN, *cifar_data.TEST):
        published(monkeypatch, name, content)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(MissingPartError, match="print"):
        cifar_data.read(tmp_path)
    assert capsys.readouterr().out == ""


def test_without_torch_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "find_spec", lambda name: None)
    with pytest.raises(MissingPartError, match=r"pip install 'mmcc\[train\]'"):
        learning.cifar10(tmp_path, quick=True)


def test_it_trains_the_mechanism_that_it_accounts_for(images, tmp_path, monkeypatch):
    """Twelve steps on pictures that can be told apart: with hardly any noise they are."""
    torch = pytest.importorskip("torch")
    from paper import cifar_training

    monkeypatch.setattr(learning, "STEPS", 12)
    asked = []
    private = cifar_training.make_private

    def watched(*things, **settings):
        asked.append(settings)
        return private(*things, **settings)

    monkeypatch.setattr(cifar_training, "make_private", watched)
    labels = np.arange(600, dtype=np.uint8) % 10
    pixels = np.zeros((600, 3, 32, 32), np.uint8)
    for label in range(10):
        pixels[labels == label, label % 3, :, 3 * label : 3 * label + 3] = 255
    pictures = cifar_data.Images(pixels, labels)
    monkeypatch.setattr(learning, "_images", lambda data: (pictures, pictures))
    monkeypatch.setattr(learning, "RATE", 0.5)
    steps = []
    point = {"strategy": learning.TREE, "sigma": 35.5, "trained": 12, "seed": 0}
    learning._accuracy(point, 0.05, "", lambda work, done: steps.append(done))
    assert steps == list(range(1, 13))
    assert (asked[0]["strategy"].steps, asked[0]["sigma"]) == (12, 35.5)
    assert asked[0]["sampling"].probability == 0.5
    assert asked[0]["max_grad_norm"] == 1.0
    assert "decoder" not in asked[0]
    assert NoiseStream(asked[0]["strategy"], 35.5, 1, seed=0).decoder == "honaker"
    quiet = learning._accuracy({**point, "sigma": 1e-3}, 0.5, "", None)
    assert quiet > 0.2
    size = sum(weights.numel() for weights in cifar_training.network().parameters())
    assert size == 58_506
    assert torch.is_grad_enabled()


def test_the_learning_rate_falls_at_the_end():
    pytest.importorskip("torch")
    from paper.cifar_training import Recipe

    recipe = Recipe(rate=1.0, cooldown=0.25, last=0.0)
    assert [recipe.factor(step, 100) for step in (0, 75, 80, 99, 100)] == pytest.approx(
        [1, 1, 0.8, 0.04, 0]
    )


def nodes_used(steps: int, leaves: int, first: int) -> float:
    """Norm of C u for a tree over each block of so many leaves, u every hundredth step."""
    counts: dict[tuple[int, int], int] = {}
    for step in range(first, steps, 100):
        for level in range(leaves.bit_length()):
            node = step >> level
            if (node + 1) << level <= steps:  # complete by the last step
                counts[level, node] = counts.get((level, node), 0) + 1
    return sum(count**2 for count in counts.values()) ** 0.5


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Of one Gaussian with variance 1 against itself moved."""
    phi = NormalDist().cdf
    return phi(shift / 2 - epsilon / shift) - exp(epsilon) * phi(-shift / 2 - epsilon / shift)


@pytest.mark.parametrize(("name", "leaves"), [(learning.TREE, 1024), (learning.RESTARTED, 128)])
def test_the_fixed_order_is_its_exact_sensitivity(name, leaves):
    norm = max(nodes_used(2000, leaves, first) for first in range(100))
    rows = read_table(FIGURES / "cifar10.csv").where(strategy=name).rows
    assert len(rows) > 10
    for row in rows:
        delta = gaussian_delta(norm / row["sigma"], row["fixed_order"])
        assert delta == pytest.approx(1e-5, rel=1e-3)


@pytest.mark.parametrize("name", [learning.TREE, learning.RESTARTED])
def test_the_committed_runs_are_enough_to_compare(name):
    """Three epsilons, three seeds each, and accuracy that falls with the noise."""
    found = list(learning.runs(read_table(FIGURES / "cifar10.csv"), name))
    assert [run.count for run in found] == [3, 3, 3]
    assert found[0].accuracy > found[1].accuracy > found[2].accuracy > 0.25
    for run in found:
        assert run.row["lower"] <= run.row["upper"] <= run.row["mmcc_reversed"]
        assert 0 < run.spread < 0.05


def test_runs_are_counted_noise_by_noise():
    def row(sigma, seed, accuracy, epsilon):
        point = {"strategy": learning.TREE, "sigma": sigma, "trained": 2000, "seed": seed}
        return {**point, "accuracy": accuracy, "upper": epsilon, "fixed_order": 1.0}

    table = Table((row(2.0, 0, 0.4, 3.0), row(2.0, 1, 0.6, 3.0), row(4.0, 0, 0.3, 0.5)))
    first, second = learning.runs(table, learning.TREE)
    assert (first.row["sigma"], first.accuracy, first.count) == pytest.approx((2.0, 0.5, 2))
    assert first.spread == pytest.approx(0.02**0.5)
    assert (second.row["sigma"], second.count) == (4.0, 1)
    assert second.words() == "30.0 % (one run)"
    assert learning.better_from(table, learning.TREE, "upper")["sigma"] == 4.0
    assert learning.better_from(table, learning.TREE, "fixed_order") is None
