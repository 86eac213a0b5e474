"""Claim: the example reads its data, trains what it says, and takes up what was stopped."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import fashion_mnist as example  # noqa: E402
from cases.idx import write_images  # noqa: E402
from cases.samples import first  # noqa: E402

import mmcc  # noqa: E402
from mmcc import sampling  # noqa: E402
from mmcc.training import Participants  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

SMALL = example.Setting(
    steps=8, batch=64, examples=256, epsilon=4.0, scheme="poisson", search=False
)


@pytest.fixture
def folder(tmp_path):
    return write_images(tmp_path)


def test_files_are_read_packed_and_plain(folder):
    data = example.images(folder, 200)
    pixels, labels = data.train.tensors
    assert pixels.shape == (200, 1, 28, 28)
    assert len(data.test) == 64
    assert labels.tolist() == [k % 10 for k in range(200)]
    assert pixels.min() >= -1
    assert pixels.max() <= 1
    stripes = pixels.mean(dim=(1, 3)).argmax(dim=1)
    assert stripes.tolist() == [2 * (k % 10) for k in range(200)]


def test_missing_data_is_one_sentence_with_a_remedy(tmp_path, capsys):
    assert example.main(["--data", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    assert "dataset-fashion-mnist" in said.err
    assert "--data" in said.err


def test_a_file_that_is_cut_off_is_refused(folder):
    file = folder / "train-labels-idx1-ubyte"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(mmcc.MmccError, match="not a whole idx file"):
        example.images(folder, 256)


@pytest.mark.parametrize(
    "scheme", ["poisson", "cyclic-poisson", "min-separation", "balls-in-bins", "shuffle"]
)
def test_batches_have_the_expected_size_under_every_scheme(scheme):
    setting = replace(example.Setting(), steps=200, batch=100, examples=5000, scheme=scheme)
    made = example.sampling_scheme(setting, 5000)
    participants = Participants(made, 200, 5000, 3)
    sizes = [participants.at(step).size for step in range(40, 200)]
    # A sum of 160 sizes of variance about 100: seven standard deviations are 7 sqrt(160 100).
    assert abs(sum(sizes) - 160 * 100) < 7 * (160 * 100) ** 0.5 + 160


@pytest.mark.parametrize("name", first(list(example.STRATEGIES), 2))
def test_every_strategy_keeps_its_target(folder, name):
    data = example.images(folder, 256)
    result = example.train(name, SMALL, data, seed=0)
    found = result.guarantee
    assert 0.9 * SMALL.epsilon < found.epsilon <= SMALL.epsilon
    assert found.delta == SMALL.delta
    assert found.strategy == repr(example.STRATEGIES[name](SMALL, sampling.Poisson(0.25)))
    assert found.sampling == repr(sampling.Poisson(0.25))
    assert found.adaptive
    torch.manual_seed(0)
    untrained = example.small_network()
    assert all(
        not torch.equal(p, q)
        for p, q in zip(result.network.parameters(), untrained.parameters(), strict=True)
    )


class StoppedError(Exception):
    pass


def test_a_run_that_was_stopped_goes_on_as_if_it_were_not(folder, monkeypatch):
    monkeypatch.setattr(example, "SAVED_EVERY", 3)
    data = example.images(folder, 256)
    file = folder / "run"
    setting = replace(SMALL, batch=16, scheme="cyclic-poisson")  # whose noise is found quickly

    def stop(what, done):
        if done == 5:
            raise StoppedError

    whole = example.train("banded", setting, data, seed=1)
    with pytest.raises(StoppedError):
        example.train("banded", setting, data, seed=1, checkpoint=file, announce=stop)
    resumed = example.train("banded", setting, data, seed=2, checkpoint=file)
    finished = example.train("banded", setting, data, seed=3, checkpoint=file)
    for p, q, r in zip(
        whole.network.parameters(),
        resumed.network.parameters(),
        finished.network.parameters(),
        strict=True,
    ):
        assert torch.equal(p, q)
        assert torch.equal(p, r)


@pytest.mark.slow
def test_quick_prints_all(capsys):
    if not example.DEBIAN.is_dir():
        pytest.skip("needs Debian's dataset-fashion-mnist")
    assert example.main(["--quick", "--seed", "0"]) == 0
    said = capsys.readouterr().out
    for word in (*example.STRATEGIES, "accuracy", "epsilon", "sigma", "certified by", "zero-out"):
        assert word in said
