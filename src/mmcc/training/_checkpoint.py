"""Checkpoints: a run in one file, written whole or not at all, and taken up again bit by bit.

In: the optimizer of a run, which knows its module.  Out: a file, and beside it a folder where
parameters are sharded (`mmcc.training._checkpoint_shards`), with parameters, the state of the
optimizer inside, noise, keys, position, global random generators and the fingerprint of the
mechanism.
How the file is written and read: `_checkpoint_file`.

The file holds the keys of noise and sampling: it is as secret as the data.  It is created readable
for its owner only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import AbstractGradSampleModule

from mmcc.errors import ParameterError, harmless, whole
from mmcc.training._checkpoint_file import (
    FORMAT,
    MASTERS,
    MOST_SAID,
    SHARDS,
    CheckpointError,
    check_plain,
    read,
    write,
)
from mmcc.training._loader import PrivateLoader
from mmcc.training._optimizer import PrivateOptimizer
from mmcc.training._peers import LOADING, SAVING, Peers
from mmcc.training._run import TrainingRun

WORDS = 624
"""Words in the state of numpy's global generator."""


def save_checkpoint(
    path: str | Path,
    run: PrivateOptimizer | AbstractGradSampleModule,
    optimizer: PrivateOptimizer | None = None,
    loader: PrivateLoader | None = None,
    extra: Any = None,
) -> None:
    """Write a run to a file, between two steps or before the first.

    `run` is the optimizer that make_private returned.  Module, optimizer and loader in a row are
    the same run; parts of different runs are refused.  All processes of a distributed run call it;
    process 0 writes.  Where parameters are sharded, each writes its own to a folder beside the
    file, which names it.

    `extra` is handed back by `load_checkpoint`: numbers, text, tensors, and lists, tuples and dicts
    of them, such as a learning-rate schedule's `state_dict()`.
    """
    saved = _the_optimizer(run, optimizer, loader)
    training, peers = saved.run, saved.run.peers
    training.check_between_steps("a checkpoint")
    training.meet(SAVING)
    training.record.enter()
    with peers.agreeing():
        own = _random_state()
    generators = peers.every(own)
    with peers.agreeing():
        content = _content(saved, generators, extra)
    if training.sharding.spread:
        _write_sharded(_path(path), content, peers)
        return
    with peers.agreeing():
        if peers.rank == 0:
            write(_path(path), content)


def load_checkpoint(
    path: str | Path,
    run: PrivateOptimizer | AbstractGradSampleModule,
    optimizer: PrivateOptimizer | None = None,
    loader: PrivateLoader | None = None,
) -> Any:
    """Take up the run of a file; returns the `extra` that was saved with it.

    `run` is the optimizer of a `make_private` with the same mechanism, as for `save_checkpoint`;
    its seed does not matter, for the keys come from the file.  Another mechanism is refused.  All
    processes of a distributed run call it, and find the same file; there may be more or fewer of
    them than before.
    """
    loaded = _the_optimizer(run, optimizer, loader)
    path = _path(path)
    training, peers = loaded.run, loaded.run.peers
    training.meet(LOADING)
    with peers.agreeing():
        content, digest = read(path)
        _check_same(content, training, path)
    peers.same({"the digest of the checkpoint": digest}, "Give all of them the same file.")
    content = _with_shards(content, training, path)
    with training.taken_up(), peers.agreeing():
        _take_up(content, loaded, path)
    if training.finished:
        training.end()
    loaded.zero_grad()
    return content["extra"]


def _write_sharded(path: Path, content: dict[str, Any], peers: Peers) -> None:
    """All processes write their shards, and then process 0 the file that says where they are."""
    from mmcc.training import _checkpoint_shards as shards  # takes a second

    plain, tensors = shards.taken_apart(content)
    name = peers.every(shards.new_name(path))[0]
    folder = path.with_name(name)
    with peers.agreeing():
        if peers.rank == 0:
            check_plain(plain, "the checkpoint")
            shards.make(folder)
    shards.save(tensors, folder)
    with peers.agreeing():
        if peers.rank == 0:
            write(path, plain | {SHARDS: {"folder": name, "digest": shards.digest(folder)}})
            shards.remove_others(path, name)


def _with_shards(content: dict[str, Any], run: TrainingRun, path: Path) -> dict[str, Any]:
    """The content with the tensors that are in a folder."""
    named = content.get(SHARDS)
    if named is None and not run.sharding.spread:
        return content
    from mmcc.training import _checkpoint_shards as shards  # takes a second

    with run.peers.agreeing():
        if named is None:
            raise CheckpointError(
                f"{path.name!r} is of a run whose parameters were not sharded: take it up without "
                "fully_shard."
            )
        folder = shards.folder_of(path, named.get("folder"))
        if run.peers.rank == 0 and shards.digest(folder) != named.get("digest"):
            raise CheckpointError(
                f"the folder {folder.name!r} is damaged (its digest does not match): use an older "
                "checkpoint."
            )
    return shards.put_together(content, folder, run.masters.stepped[0])


def _the_optimizer(*parts: object) -> PrivateOptimizer:
    """The optimizer among the parts of a run, which must be of one."""
    given = [part for part in parts if part is not None]
    found = next((part for part in given if isinstance(part, PrivateOptimizer)), None)
    if found is None:
        raise CheckpointError("a checkpoint takes the optimizer that make_private returned.")
    if any(getattr(part, "run", None) is not found.run for part in given):
        raise CheckpointError(
            "these come from different runs, or not from make_private: pass the optimizer that it "
            "returned."
        )
    return found


def _content(
    optimizer: PrivateOptimizer, generators: list[dict[str, Any]], extra: Any
) -> dict[str, Any]:
    run = optimizer.run
    masters = run.masters.state()
    return {
        **({MASTERS: masters} if masters else {}),
        "format": FORMAT,
        "fingerprint": run.mechanism.fingerprint(),
        "module": dict(run.watch.module.state_dict()),
        "optimizer": optimizer.original_optimizer.state_dict(),
        "noise": run.noise.state_dict() if run.sharding.spread else run.noise.state(),
        "participants": run.participants.state(),
        "layout": {"digest": run.layout},
        "ledger": {"run": run.record.name},
        "random": dict(enumerate(generators)),
        "extra": extra,
    }


def _check_same(content: Mapping[str, Any], run: TrainingRun, path: Path) -> None:
    """Refuse the checkpoint of another mechanism, and other noise for steps that were made."""
    differences = run.mechanism.differences(content["fingerprint"])
    if differences:
        raise CheckpointError(
            f"{path.name!r} belongs to another mechanism: {harmless('; '.join(differences))}. A "
            "run keeps the mechanism that was accounted; start a new one for another."
        )
    if content["layout"].get("digest") != run.layout:
        raise CheckpointError(
            f"{path.name!r} belongs to a module whose parameters have other names, shapes or "
            "types, or are in another order in the optimizer: its noise would go to others. Make "
            "module and optimizer as they were made for the run."
        )
    run.record.check(content["ledger"].get("run", ""))
    if run.position and run.noise.state()["key"] != content["noise"].get("key"):
        raise CheckpointError(
            f"this run has made {run.position} steps with noise of its own, and {path.name!r} has "
            "other noise for the same steps. Load a checkpoint before the first step."
        )


def _take_up(content: Mapping[str, Any], optimizer: PrivateOptimizer, path: Path) -> None:
    run = optimizer.run
    run.record.take_up(content["ledger"].get("run", ""))
    try:
        if SHARDS in content:
            run.noise.load_state_dict(content["noise"])
        else:
            run.noise.restore(content["noise"])
        run.participants.restore(content["participants"])
        run.watch.module.load_state_dict(content["module"])
        run.masters.load(content.get(MASTERS, {}))
        optimizer.original_optimizer.load_state_dict(content["optimizer"])
        if len(content["random"]) == run.peers.count:  # else nobody has a predecessor
            _restore_random(content["random"][run.peers.rank])
    except Exception as problem:  # whatever torch trips over in what a file says
        said = " ".join(str(problem).split())[:MOST_SAID].rstrip(".")
        raise CheckpointError(
            f"{path.name!r} does not fit: {said}. Make module and optimizer as they were made for "
            "the run."
        ) from problem


def _path(path: str | Path) -> Path:
    if not isinstance(path, (str, Path)) or not str(path):
        raise CheckpointError(f"a checkpoint is a file, got {path!r}.")
    return Path(path)


def _random_state() -> dict[str, Any]:
    """Global generators: dropout and random transforms draw from them."""
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002 (the one that others use)
    if numpy["bit_generator"] != "MT19937":
        raise CheckpointError(
            f"numpy's global generator is {numpy['bit_generator']}, which a checkpoint cannot "
            "hold; leave the global one as it is and use generators of your own."
        )
    version, words, cached = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [
            torch.from_numpy(numpy["state"]["key"].astype(np.int64)),
            int(numpy["state"]["pos"]),
            int(numpy["has_gauss"]),
            float(numpy["gauss"]),
        ],
        "python": [version, list(words), cached],
    }


def _restore_random(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    key, position, cached_normal, normal = state["numpy"]
    if tuple(key.shape) != (WORDS,):
        raise ParameterError(f"the state of numpy's generator has {WORDS} words.")
    position = whole("the position of numpy's generator", position, 0, WORDS)  # numpy trusts it
    kept = ("MT19937", key.numpy().astype(np.uint32), position, cached_normal, normal)
    np.random.set_state(kept)  # noqa: NPY002
    version, words, cached = state["python"]
    random.setstate((version, tuple(words), cached))
