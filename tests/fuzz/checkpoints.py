"""Checkpoints: damaged, and sealed again so that the damage is reached.

A file that is accepted leaves a run that has the mechanism, the guarantee and the parameters' types
it was made with, makes finite noise for its next step, and can be saved.  A file that is refused
before anything was taken up leaves the run as it was.
"""

from __future__ import annotations

import hashlib
import io
import random
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases.private import private, train

from fuzz.canary import PICKLES
from fuzz.drive import Format
from fuzz.mutate import VALUES, mutated_bytes, mutated_tree
from mmcc import strategies
from mmcc.errors import MmccError
from mmcc.report import of_checkpoint
from mmcc.training import load_checkpoint, save_checkpoint

MAGIC = b"mmcc checkpoint\n"
TENSORS = (
    *(torch.zeros(()), torch.tensor(float("nan")), torch.ones(2), torch.empty(0), torch.ones(2, 3)),
    *(
        torch.ones(2, 15),
        torch.ones(2, 15, dtype=torch.float64),
        torch.ones(3, 4, dtype=torch.int8),
    ),
    *(torch.ones(3, 4, dtype=torch.complex64), torch.ones(2, 15, dtype=torch.complex128)),
    *(torch.ones(3, dtype=torch.bool), torch.zeros(5056, dtype=torch.uint8), torch.ones(624)),
    *(torch.zeros(1).expand(10**6, 10**6), torch.eye(3).to_sparse(), torch.ones(3, 4).half()),
    *(torch.full((2, 15), float("inf"), dtype=torch.float64), torch.nn.Parameter(torch.ones(3, 4))),
    *(torch.full((624,), -1), torch.full((624,), 2**40), torch.Size([2]), torch.float32),
)
PARTS = (
    *("", "", "noise", "noise", "optimizer", "random", "module", "participants", "ledger"),
    *("fingerprint", "fingerprint"),
)
CALLS = ("Poisson({[]: 1})", "identity({[]: 1}) with digest 0", "Poisson(-'x')", "blt(7, 2, 3, 4)")
REPORTED = 4
"""One input in so many, chosen by its checksum, is reported as well."""

_folder: Path = Path()
_fresh: list[Any] = []


def run() -> tuple[Any, Any, Any]:
    """Module, optimizer and loader of a run that has kept noise and momentum."""
    return private(strategy=strategies.toeplitz([1.0, 0.5, 0.25], 7), momentum=0.9)


@cache
def seeds() -> tuple[dict[str, Any], ...]:
    """Checkpoints before the first step and after the last, without their digests."""
    found = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about hooks
        path = Path(folder) / "c"
        for trained in (False, True):
            made = run()
            if trained:
                train(*made)
            save_checkpoint(path, *made, extra={"epoch": 1})
            content = torch.load(io.BytesIO(path.read_bytes()[48:]), weights_only=True)
            found += [content, {**content, "random": {}}, {**content, "random": {}}]
    return tuple(found)


@cache
def payload(place: int) -> bytes:
    """A seed as torch writes it."""
    return packed(seeds()[place])


def packed(content: Any) -> bytes:
    """As torch writes it."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def sealed(content: bytes) -> bytes:
    """A file whose digest is right, whatever it holds."""
    return MAGIC + hashlib.sha256(content).digest() + content


def make(rng: random.Random) -> bytes:
    """A checkpoint, damaged."""
    place, kind = rng.randrange(len(seeds())), rng.randrange(20)
    if kind <= 11:
        tree, values = seeds()[place], VALUES + TENSORS
        part = rng.choice(PARTS)
        if part == "fingerprint":
            values += CALLS
        if part:
            changed = {**tree, part: mutated_tree(rng, tree[part], values)}
        else:
            changed = mutated_tree(rng, tree, values)
        try:
            return sealed(packed(changed))
        except Exception:  # torch cannot write that
            return sealed(payload(place))
    if kind <= 13:
        return sealed(mutated_bytes(rng, payload(place)))
    if kind <= 17:
        return sealed(_repacked(rng, payload(place)))
    if kind == 18:
        return sealed(rng.choice((*PICKLES, b"", b"PK\x05\x06" + bytes(18), b"ustar", b"x" * 100)))
    return mutated_bytes(rng, sealed(payload(place)))


def _repacked(rng: random.Random, content: bytes) -> bytes:
    """The same archive with one member changed, compressed, doubled or left out."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    chosen = 0 if rng.random() < 0.8 else rng.randrange(len(members))
    buffer = io.BytesIO()
    kind = rng.randrange(8)
    with zipfile.ZipFile(buffer, "w") as archive:
        for place, (name, held) in enumerate(members):
            how = zipfile.ZIP_STORED
            if place == chosen:
                if kind == 0:
                    continue
                if kind == 1:
                    held = rng.choice(PICKLES)
                elif kind == 2:
                    held = held[:-1] + rng.choice(PICKLES)[2:-1] + b"."
                elif kind == 3:
                    how = zipfile.ZIP_DEFLATED
                elif kind == 4:
                    held, how = held + bytes(10**6), zipfile.ZIP_DEFLATED
                else:
                    held = mutated_bytes(rng, held)
            archive.writestr(zipfile.ZipInfo(name), held, compress_type=how)
        if rng.random() < 0.1:
            archive.writestr(zipfile.ZipInfo("archive/constants.pkl"), rng.choice(PICKLES))
    return buffer.getvalue()


def feed(content: bytes) -> bool:
    """Take up the file with a run that has made no step."""
    path = _folder / "checkpoint"
    path.write_bytes(content)
    if zlib.crc32(content) % REPORTED == 0:
        _report(path)
    made = _fresh.pop() if _fresh else run()
    module, optimizer, _ = made
    own = optimizer.run
    before = own.mechanism
    try:
        load_checkpoint(path, *made)
    except MmccError as problem:
        _check_words(problem)
        if not own._void:
            assert own.position == 0
            _fresh.append(made)
        return False
    assert own.mechanism is before
    assert 0 <= own.position <= before.steps
    assert [p.dtype for p in module.parameters()] == [torch.float64] * 2
    np.random.standard_normal()  # noqa: NPY002
    random.random()
    torch.rand(1)
    save_checkpoint(path, *made)
    if not own.finished:
        noise = next(own.noise)
        assert [tuple(part.shape) for part in noise] == [(3, 4), (3,)]
        assert all(part.dtype == torch.float64 and part.isfinite().all() for part in noise)
        assert all(part.any() for part in noise)
    return True


def _report(path: Path) -> None:
    """A report of the run that the seeds are of, or one sentence."""
    try:
        found = of_checkpoint(path, delta=1e-5, method="unamplified", seconds=0.0)
    except MmccError as problem:
        _check_words(problem)
    else:
        assert found.strategy is not None
        assert found.claims[0].epsilon > 0


def _check_words(problem: MmccError) -> None:
    said = str(problem)
    assert said
    assert len(said.splitlines()) == 1, said
    assert len(said) < 10_000


@contextmanager
def around() -> Iterator[None]:
    """A folder for the file; the global generators get their states back."""
    global _folder
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        with tempfile.TemporaryDirectory() as folder:
            _folder = Path(folder)
            yield
    finally:
        _fresh.clear()
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


FORMAT = Format("checkpoints", make, feed, around)
