"""Claim: the study trains what is accounted, by stated rules, and goes on where it was stopped."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("matplotlib")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import accuracy_study as study  # noqa: E402
import fashion_mnist  # noqa: E402
from cases.idx import write_images  # noqa: E402

from mmcc import sampling  # noqa: E402
from mmcc.training import make_private  # noqa: E402

TINY = replace(study.QUICK, steps=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def data(folder):
    return study.prepared(fashion_mnist.images(folder, 256))


@pytest.fixture(scope="module", autouse=True)
def tiny():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "QUICK", TINY)
        yield


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """A study that nothing has interrupted."""
    out = tmp_path_factory.mktemp("whole")
    assert run(folder, out) == 0
    return out


def lines_of(folder):
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def run(folder, out):
    return study.main(["--quick", "--data", str(folder), "--out", str(out)])


def test_all_that_was_found_is_printed_and_drawn(folder, whole, capsys):
    assert run(folder, whole) == 0
    printed = capsys.readouterr().out
    for name in study.MECHANISMS:
        assert f"| 4 | {name} |" in printed
    assert (whole / "accuracy.png").stat().st_size > 0
    lines = lines_of(whole)
    kinds = [line["kind"] for line in lines]
    assert kinds.count("run") == 3 * len(TINY.seeds)  # none is trained twice
    assert kinds.count("tuning") == 3 * len(TINY.rates)
    assert all(line["certified"] <= 4 for line in lines if line["kind"] == "noise")


def test_a_study_that_was_stopped_goes_on(folder, whole, tmp_path):
    text = (whole / "runs.jsonl").read_text()
    (tmp_path / "runs.jsonl").write_text(text[:-40])  # in the middle of a line
    assert run(folder, tmp_path) == 0
    before, after = lines_of(whole), lines_of(tmp_path)
    for line in (before[-1], after[-1]):
        line.pop("seconds")
    assert after == before


def test_learning_rates_are_the_best_on_public_images(whole):
    lines = lines_of(whole)
    for name in study.MECHANISMS:
        mine = [line for line in lines if line.get("mechanism") == name]
        tuned = {line["rate"]: line["accuracy"] for line in mine if line["kind"] == "tuning"}
        best = min(rate for rate in tuned if tuned[rate] == max(tuned.values()))
        assert {line["rate"] for line in mine if line["kind"] == "run"} == {best}


def test_another_setting_is_refused(folder, tmp_path, capsys):
    (tmp_path / "runs.jsonl").write_text('{"kind": "setting", "steps": 1}\n')
    assert run(folder, tmp_path) == 2
    assert "another setting" in capsys.readouterr().err


def test_private_public_and_test_images_are_apart(data):
    assert [len(part.labels) for part in (data.private, data.public, data.test)] == [171, 85, 64]
    norms = data.private.features.square().sum(dim=1)
    assert torch.allclose(norms, torch.full_like(norms, 2.0), atol=1e-5)


def test_features_know_no_data_but_the_public_images(folder, data):
    pictures = fashion_mnist.images(folder, 256)
    pixels, labels = pictures.train.tensors
    changed = torch.cat([pixels[:1] * 0 + 1, pixels[1:]])
    train = torch.utils.data.TensorDataset(changed, labels)
    other = study.prepared(replace(pictures, train=train))
    assert torch.equal(other.private.features[1:], data.private.features[1:])
    assert torch.equal(other.test.features, data.test.features)


@pytest.mark.parametrize("name", study.MECHANISMS)
def test_make_private_trains_the_same_model(data, name):
    made = study.mechanism_at(name, 4.0, TINY)
    scheme = sampling.Poisson(1 / TINY.epoch)
    ours = study.train(data.private, made, scheme, rate=4.0, seed=7)
    linear = torch.nn.Linear(data.private.features.shape[1], study.CLASSES, bias=False)
    torch.nn.init.zeros_(linear.weight)
    module, optimizer, loader = make_private(
        linear,
        torch.optim.SGD(linear.parameters(), lr=4.0),
        torch.utils.data.TensorDataset(data.private.features, data.private.labels),
        strategy=made.strategy,
        sampling=scheme,
        max_grad_norm=study.CLIP,
        sigma=made.guarantee.sigma,
        delta=TINY.delta,
        method=made.guarantee.method,
        clipping="ghost",
        seed=7,
        progress=False,
    )
    for features, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(features), labels).backward()
        optimizer.step()
    assert optimizer.finished
    assert optimizer.guarantee.epsilon == made.guarantee.epsilon <= 4
    assert ours.norm() > 0
    assert float((linear.weight.detach() - ours).norm()) <= 1e-4 * float(ours.norm())


def test_intervals_are_those_of_student():
    values = [0.80, 0.82, 0.81, 0.83, 0.84]
    mean, half = study.interval(values)
    assert mean == pytest.approx(0.82)
    assert half == pytest.approx(2.776445 * np.std(values, ddof=1) / math.sqrt(5), rel=1e-6)


def test_missing_images_are_one_sentence(tmp_path, capsys):
    assert study.main(["--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "dataset-fashion-mnist" in capsys.readouterr().err
