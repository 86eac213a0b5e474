"""Claim: whatever is read, only declared errors come out, in bounded time and memory.

And nothing named in a file is ever run.  docs/fuzzing.md says what is real and what is a stub.
"""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from importlib import import_module, util

import numpy as np
import pytest
from cases.ledgers import guarantee
from fuzz import canary
from fuzz.drive import CORPUS, FailedError, Format, fed, run

from mmcc import MmccError, strategies
from mmcc.errors import StrategyError
from mmcc.ledger import Ledger, Planned

FORMATS = ("matrices", "ledgers", "checkpoints", "words")
FEW = {"matrices": 800, "ledgers": 500, "checkpoints": 100, "words": 250}
"""Inputs of the small run; a second or two each."""


def of(name: str) -> Format:
    if name == "checkpoints":
        pytest.importorskip("torch")
    format: Format = import_module(f"fuzz.{name}").FORMAT
    return format


@pytest.mark.parametrize("name", FORMATS)
def test_inputs_of_one_seed(name):
    tally = run(of(name), FEW[name], seed=2024)
    assert not tally.failures, [str(failure)[:200] for failure in tally.failures]
    assert tally.accepted > 0.02 * tally.inputs  # the damage reaches more than the first check
    assert tally.accepted < 0.9 * tally.inputs


@pytest.mark.parametrize("name", FORMATS)
def test_inputs_that_once_failed(name):
    """And what a person would try; those that are right to be accepted are listed beside them."""
    format = of(name)
    kept = format.corpus()
    assert kept, "the corpus is in the repository"
    with format.around():
        accepted = [path.stem for path in kept if fed(format, path.read_bytes())[0]]
    assert accepted == (CORPUS / name / "accepted.txt").read_text().split()


def test_the_corpus_is_small():
    assert sum(path.stat().st_size for path in CORPUS.rglob("*.bin")) < 250_000


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_hundred_thousand_inputs(name):
    tally = run(of(name), 100_000, seed=1)
    assert not tally.failures, [str(failure)[:200] for failure in tally.failures]


@pytest.mark.parametrize("name", FORMATS)
def test_an_input_can_be_made_again(name):
    """What a report says about an input holds for whoever looks at it."""
    format = of(name)
    assert [format.input(3, n) for n in range(20)] == [format.input(3, n) for n in range(20)]
    assert len({format.input(3, n) for n in range(20)}) > 10


# --------------------------------------------------------------------------- declared limits


def test_a_file_is_as_large_as_the_matrix_in_memory(tmp_path, monkeypatch):
    """Small types become eight times as large."""
    monkeypatch.setattr("mmcc.strategies._files.MAX_DENSE_BYTES", 1000)
    np.save(tmp_path / "m.npy", np.tri(12, dtype=np.int8))
    (tmp_path / "m.csv").write_text("\n".join(",".join("1" * 12) for _ in range(12)))
    for name in ("m.npy", "m.csv"):
        with pytest.raises(StrategyError, match="larger than"):
            strategies.load(tmp_path / name)
    np.save(tmp_path / "m.npy", np.tri(11, dtype=np.int8))
    assert strategies.load(tmp_path / "m.npy").steps == 11


def test_numbers_with_thousands_of_digits_are_refused_in_one_line():
    for make in (strategies.identity, lambda n: strategies.tree_restart(8, n)):
        with pytest.raises(MmccError) as caught:
            make(10**5000)
        assert len(str(caught.value)) < 500


def test_an_inverse_with_too_many_bands():
    with pytest.raises(StrategyError, match="fewer bands"):
        strategies.banded_inverse(10**7, 10**4)
    assert strategies.banded_inverse(1000, 1000).inverse_bands == 1000


@pytest.mark.parametrize("epsilon", [5e-324, 1e-310, 1e-300, 1e-30, 1e-17, 1e-8])
def test_a_plan_with_next_to_no_epsilon(tmp_path, epsilon):
    """What is composed is not below the exact curve of the pair, and not far above its sum."""
    ledger = Ledger(tmp_path / "l")
    ledger.declare([Planned("m", "f", guarantee(epsilon, 1e-6))], data="d")
    assert epsilon <= ledger.total("d").epsilon < epsilon * (1 + 1e-9) + 1e-12
    assert ledger.total("d", delta=1e-3).epsilon >= 0


# ------------------------------------------------------------------ what counts as a failure


def judged(feed) -> str:
    with pytest.raises(FailedError) as caught:
        fed(Format("none", lambda _: b"", feed, lambda: None), b"")
    return str(caught.value)


def test_every_kind_of_failure_is_found(monkeypatch):
    monkeypatch.setattr("fuzz.drive.SECONDS", 0.2)
    monkeypatch.setattr("fuzz.drive.BYTES", 2**25)

    def busy(_):
        while True:
            pass

    assert "ZeroDivisionError" in judged(lambda _: 1 / 0)
    assert "SystemExit" in judged(lambda _: sys.exit(2))
    assert "processor time" in judged(busy)
    assert "was run" in judged(lambda _: canary.sing())
    assert "warning" in judged(lambda _: np.array([1e300]).astype(np.float32).any())
    peaks = iter((0, 2**30))
    monkeypatch.setattr("fuzz.drive._peak", lambda: next(peaks))
    assert "memory grew" in judged(lambda _: True)


def test_the_canary_is_heard_where_files_are_unpickled():
    """Control: the pickles of the targets do run code, if somebody lets them."""
    canary.calls.clear()
    assert pickle.loads(canary.PICKLES[0]) == "sung"
    assert canary.calls
    canary.calls.clear()
    header = b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': False, 'shape': (), }"
    file = header.ljust(79) + b"\n" + canary.PICKLES[0]
    np.lib.format.read_array(io.BytesIO(file), allow_pickle=True)
    assert canary.calls
    canary.calls.clear()


@pytest.mark.skipif(util.find_spec("torch") is None, reason="checkpoints need torch")
def test_nothing_named_in_a_file_is_run():
    """Every pickle, in every place where a loader could come across it."""
    import fuzz.checkpoints as checkpoints
    import fuzz.matrices as matrices

    for name, wrap in (("matrices", _in_matrices), ("checkpoints", _in_checkpoints)):
        format = of(name)
        with format.around():
            for evil in canary.PICKLES:
                for content in wrap(evil, checkpoints if name == "checkpoints" else matrices):
                    accepted, _ = fed(format, content)  # fails if the canary sings
                    assert not accepted


def _in_matrices(evil, _):
    header = b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': False, 'shape': (), }"
    array = header.ljust(79) + b"\n" + evil
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("mmcc.npy", array)
        members.writestr("other", evil)
    return [b"npy\n" + evil, b"npy\n" + array, b"npz\n" + evil, b"npz\n" + archive.getvalue()]


def _in_checkpoints(evil, checkpoints):
    whole = checkpoints.payload(0)
    archive = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(archive, "w") as new:
        for entry in old.infolist():
            held = evil if entry.filename.endswith("data.pkl") else old.read(entry)
            new.writestr(zipfile.ZipInfo(entry.filename), held)
    return [checkpoints.sealed(evil), checkpoints.sealed(archive.getvalue()), evil]
