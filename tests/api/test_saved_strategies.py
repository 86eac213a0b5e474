"""Claim: a saved strategy comes back as the same kind of object; anything else is refused."""

from __future__ import annotations

import json
import pickle
import zipfile

import numpy as np
import pytest

import mmcc
from mmcc import strategies
from mmcc.errors import StrategyError
from mmcc.strategies._records import digest_of

MAKERS = {
    "identity": lambda: strategies.identity(7),
    "counting": lambda: strategies.continual_counting(9),
    "toeplitz": lambda: strategies.toeplitz([1.0, 0.0, 0.25], 9),
    "toeplitz of a billion steps": lambda: strategies.toeplitz([1.0, 0.5], 10**9),
    "tree": lambda: strategies.binary_tree(13),
    "restart": lambda: strategies.tree_restart(13, 2),
    "dense": lambda: strategies.dense([[1.0, 0.0], [0.5, 1.0], [1.0, 1.0]]),
    "not adaptive": lambda: strategies.dense([[1.0, 1.0], [1.0, 0.0]], adaptive=False),
    "optimal": lambda: strategies.optimal(6),
    "banded": lambda: strategies.banded(9, 3),
    "banded_toeplitz": lambda: strategies.banded_toeplitz(9, 3),
    "banded_inverse": lambda: strategies.banded_inverse(9, 3),
    "blt": lambda: strategies.blt(9),
    "blt, two buffers": lambda: strategies.blt(9, 2, objective="max"),
    "blt, given": lambda: strategies.blt(9, decay=[0.9, 0.5], scale=[0.1, 0.2]),
    "one step": lambda: strategies.banded(1, 1),
}


@pytest.mark.parametrize("name", MAKERS)
def test_there_and_back(name, tmp_path):
    made = MAKERS[name]()
    strategies.save(made, tmp_path / "c.npz")
    found = strategies.load(tmp_path / "c.npz")
    assert type(found) is type(made)
    assert repr(found) == repr(made)
    assert found.adaptive == made.adaptive
    assert getattr(found, "provenance", None) == getattr(made, "provenance", None)
    for attribute in ("coefficients", "decay", "scale", "inverse", "bands"):
        if hasattr(made, attribute):
            np.testing.assert_array_equal(getattr(found, attribute), getattr(made, attribute))
    if made.steps < 1000:
        np.testing.assert_array_equal(found.to_dense(), made.to_dense())
    again = pickle.loads(pickle.dumps(made))  # as for executors
    assert repr(again) == repr(made)


def test_what_made_it_is_kept(tmp_path):
    strategies.save(strategies.banded(12, 3), str(tmp_path / "c.npz"))
    made = strategies.load(tmp_path / "c.npz").provenance
    assert (made.constructor, dict(made.arguments)) == ("banded", {"steps": 12, "bands": 3})
    assert made.objective == "mean"
    assert 1 < made.reached < 3
    assert made.version == mmcc.__version__
    assert str(made) == "banded(12, 3)"


def test_the_file_holds_no_pickles(tmp_path):
    strategies.save(strategies.optimal(4), tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz", allow_pickle=False) as archive:
        record = json.loads(str(archive["mmcc"]))
        assert archive["matrix"].shape == (4, 4)
    assert record["provenance"]["constructor"] == "optimal"
    assert record["provenance"]["version"] == mmcc.__version__


def test_a_plain_matrix_still_works(tmp_path):
    np.savez(tmp_path / "c.npz", np.eye(3))
    assert type(strategies.load(tmp_path / "c.npz")) is strategies.Dense


def test_adaptive(tmp_path):
    strategies.save(strategies.optimal(4), tmp_path / "dense.npz")
    found = strategies.load(tmp_path / "dense.npz", adaptive=False)
    assert not found.adaptive
    assert "adaptive=False" in repr(found)
    strategies.save(MAKERS["not adaptive"](), tmp_path / "fixed.npz")
    assert not strategies.load(tmp_path / "fixed.npz", adaptive=True).adaptive
    strategies.save(strategies.identity(4), tmp_path / "identity.npz")
    with pytest.raises(StrategyError, match="causal"):
        strategies.load(tmp_path / "identity.npz", adaptive=False)


# ------------------------------------------------------------------------------------- refused


def parts(path) -> tuple[dict, dict]:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "mmcc"}
        return json.loads(str(archive["mmcc"])), arrays


def rewritten(path, record, arrays, *, digest: bool) -> None:
    if digest:
        record["digest"] = digest_of(record, arrays)
    np.savez(path, mmcc=np.array(json.dumps(record)), **arrays)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "c.npz"
    strategies.save(strategies.blt(20, decay=[0.9], scale=[0.3]), path)
    return path


CHANGES = {
    "scale": lambda record, arrays: arrays.update(scale=np.array([0.1])),
    "more arrays": lambda record, arrays: arrays.update(other=np.ones(2)),
    "fewer arrays": lambda record, arrays: arrays.pop("scale"),
    "steps": lambda record, arrays: record["facts"].update(steps=21),
    "constructor": lambda record, arrays: record["provenance"].update(constructor="optimal"),
    "version": lambda record, arrays: record["provenance"].update(version="9.9.9"),
    "kind": lambda record, arrays: record.update(kind="identity"),
    "digest": lambda record, arrays: record.update(digest="0" * 64),
    "no digest": lambda record, arrays: record.pop("digest"),
    "more entries": lambda record, arrays: record.update(extra=1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_file_is_refused(saved, name):
    record, arrays = parts(saved)
    CHANGES[name](record, arrays)
    rewritten(saved, record, arrays, digest=False)
    with pytest.raises(StrategyError, match="not a strategy as saved"):
        strategies.load(saved)


FORGERIES = {
    "growing noise": lambda record, arrays: arrays.update(scale=np.array([0.95])),
    "negative": lambda record, arrays: arrays.update(scale=np.array([-0.3])),
    "nan": lambda record, arrays: arrays.update(decay=np.array([np.nan])),
    "two shapes": lambda record, arrays: arrays.update(decay=np.array([0.5, 0.6])),
    "no list": lambda record, arrays: arrays.update(decay=np.array(0.5), scale=np.array(0.5)),
    "steps 10^12": lambda record, arrays: record["facts"].update(steps=10**12),
    "another maker": lambda record, arrays: record["provenance"].update(constructor="optimal"),
    "steps 0": lambda record, arrays: record["facts"].update(steps=0),
    "steps 1.5": lambda record, arrays: record["facts"].update(steps=1.5),
    "steps true": lambda record, arrays: record["facts"].update(steps=True),
    "steps text": lambda record, arrays: record["facts"].update(steps="20"),
    "facts": lambda record, arrays: record.update(facts=[1, 2]),
    "kind": lambda record, arrays: record.update(kind="chain"),
    "kind list": lambda record, arrays: record.update(kind=["blt"]),
    "format": lambda record, arrays: record.update(format=2),
    "constructor": lambda record, arrays: record["provenance"].update(constructor="evil"),
    "constructor list": lambda record, arrays: record["provenance"].update(constructor=[]),
    "arguments": lambda record, arrays: record["provenance"].update(arguments=[["a", [1]]]),
    "arguments text": lambda record, arrays: record["provenance"].update(arguments="abc"),
    "reached": lambda record, arrays: record["provenance"].update(reached="small"),
    "reached nan": lambda record, arrays: record["provenance"].update(reached=float("nan")),
    "no provenance": lambda record, arrays: record.update(provenance=None),
    "half a provenance": lambda record, arrays: record["provenance"].pop("version"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_numbers_are_checked_even_if_the_digest_fits(saved, name):
    record, arrays = parts(saved)
    FORGERIES[name](record, arrays)
    rewritten(saved, record, arrays, digest=True)
    with pytest.raises(StrategyError):
        strategies.load(saved)


def test_a_forged_size_is_refused_before_it_takes_memory(tmp_path):
    path = tmp_path / "c.npz"
    strategies.save(strategies.banded(4, 1), path)
    record, arrays = parts(path)
    arrays.update(diagonals=np.ones((10**6, 1)))
    rewritten(path, record, arrays, digest=True)
    with pytest.raises(StrategyError, match="steps"):
        strategies.load(path)


def test_a_forged_number_of_buffers_is_no_single_buffer(saved):
    """Two buffers under the record of one: accounted as two."""
    record, arrays = parts(saved)
    arrays.update(decay=np.array([0.5, 0.9]), scale=np.array([0.1, 0.2]))
    rewritten(saved, record, arrays, digest=True)
    assert type(strategies.load(saved)) is strategies.BufferedToeplitz


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", '"mmcc"', "[" * 100_000])
def test_records_that_are_none(tmp_path, text):
    np.savez(tmp_path / "c.npz", mmcc=np.array(text), matrix=np.eye(2))
    with pytest.raises(StrategyError, match=r"c\.npz"):
        strategies.load(tmp_path / "c.npz")


@pytest.mark.parametrize("record", [np.ones(3), np.array(["a", "b"]), np.array(b"{}")])
def test_records_of_another_type(tmp_path, record):
    np.savez(tmp_path / "c.npz", mmcc=record, matrix=np.eye(2))
    with pytest.raises(StrategyError, match="record"):
        strategies.load(tmp_path / "c.npz")


def test_a_pickled_record_is_never_opened(tmp_path):
    np.savez(tmp_path / "c.npz", mmcc=np.array({"kind": "blt"}, dtype=object))
    with pytest.raises(StrategyError):
        strategies.load(tmp_path / "c.npz")


def test_an_archive_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("mmcc.strategies._files.MAX_DENSE_BYTES", 10_000)
    np.savez_compressed(tmp_path / "c.npz", np.zeros((100, 100)))
    assert (tmp_path / "c.npz").stat().st_size < 10_000
    with pytest.raises(StrategyError, match="larger than"):
        strategies.load(tmp_path / "c.npz")


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.9, 0.99])
def test_truncated(saved, keep):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(StrategyError):
        strategies.load(saved)


def test_a_missing_member(saved, tmp_path):
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(tmp_path / "d.npz", "w") as new:
        new.writestr("mmcc.npy", old.read("mmcc.npy"))
    with pytest.raises(StrategyError, match="changed"):
        strategies.load(tmp_path / "d.npz")


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(StrategyError, match="only a strategy"):
        strategies.save(np.eye(2), tmp_path / "c.npz")
    with pytest.raises(StrategyError, match=r"\.npz"):
        strategies.save(strategies.identity(2), tmp_path / "c.npy")
    with pytest.raises(StrategyError, match="path"):
        strategies.save(strategies.identity(2), 3)
    with pytest.raises(StrategyError, match="cannot write"):
        strategies.save(strategies.identity(2), tmp_path / "nowhere" / "c.npz")

    class Own(strategies.Dense):
        pass

    with pytest.raises(StrategyError, match="to_dense"):
        strategies.save(Own(np.eye(2)), tmp_path / "c.npz")
