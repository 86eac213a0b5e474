"""Claim: whatever is read, only declared errors come out, in bounded time and memory.

And nothing named in a file is ever run.  docs/fuzzing.md says what is real and what is a stub.
"""

from __future__ import annotations

import io
import pickle
from importlib import import_module, util

import numpy as np
import pytest
from fuzz import canary
from fuzz.drive import CORPUS, FailedError, Format, fed, run

FORMATS = ("matrices", "ledgers", "checkpoints", "words")
FEW = {"matrices": 1500, "ledgers": 1000, "checkpoints": 200, "words": 400}
"""Inputs of the small run; a few seconds each."""


def of(name: str) -> Format:
    if name == "checkpoints":
        pytest.importorskip("torch")
    format: Format = import_module(f"fuzz.{name}").FORMAT
    return format


@pytest.mark.parametrize("name", FORMATS)
def test_inputs_of_one_seed(name):
    tally = run(of(name), FEW[name], seed=2024, stop_after=60)
    assert not tally.failures, [str(failure)[:200] for failure in tally.failures]
    assert tally.accepted > 0.02 * tally.inputs  # the damage reaches more than the first check
    assert tally.accepted < 0.9 * tally.inputs


@pytest.mark.parametrize("name", FORMATS)
def test_inputs_that_once_failed(name):
    format = of(name)
    kept = format.corpus()
    assert kept, "the corpus is in the repository"
    with format.around():
        for path in kept:
            fed(format, path.read_bytes())


def test_the_corpus_is_small():
    assert sum(path.stat().st_size for path in CORPUS.rglob("*.bin")) < 200_000


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

    held = []
    assert "ZeroDivisionError" in judged(lambda _: 1 / 0)
    assert "SystemExit" in judged(lambda _: exit(2))
    assert "processor time" in judged(busy)
    assert "was run" in judged(lambda _: canary.sing())
    assert "warning" in judged(lambda _: np.array([1e300]).astype(np.float32).any())
    assert "memory grew" in judged(lambda _: held.append(bytearray(2**30 // 4)))


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
    import zipfile

    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("mmcc.npy", array)
        members.writestr("other", evil)
    return [b"npy\n" + evil, b"npy\n" + array, b"npz\n" + evil, b"npz\n" + archive.getvalue()]


def _in_checkpoints(evil, checkpoints):
    import zipfile

    whole = checkpoints.payload(0)
    archive = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(archive, "w") as new:
        for entry in old.infolist():
            held = evil if entry.filename.endswith("data.pkl") else old.read(entry)
            new.writestr(zipfile.ZipInfo(entry.filename), held)
    return [checkpoints.sealed(evil), checkpoints.sealed(archive.getvalue()), evil]
