"""Checkpoints: a run in one file, written whole or not at all, and resumed bit for bit.

In: the optimizer of a run, which knows its module.  Out: a file with the parameters, the state of
the wrapped optimizer, noise, keys, position, global random generators and the fingerprint of the
mechanism; where parameters are sharded, also a folder beside it
(`mmcc.training._checkpoint_shards`).
How the file is written and read: `_checkpoint_file`.

The file holds the keys of noise and sampling: it is as secret as the data.  Only its owner may read
it.
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
    MAX_QUOTED,
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

    `run` is the optimizer that make_private returned.  (module, optimizer, loader) of one run is
    accepted too; parts of different runs are refused.  All processes of a distributed run call it;
    process 0 writes.  Where parameters are sharded, each process writes its own part to a folder
    beside the file, and the file names that folder.

    `extra` is returned by `load_checkpoint`: numbers, text, tensors, and lists, tuples and dicts
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
    """Resume the run of a file; returns the `extra` that was saved with it.

    `run` is the optimizer of a `make_private` with the same mechanism, as for `save_checkpoint`;
    its seed does not matter, because the keys come from the file.  Another mechanism is refused.
    All processes of a distributed run call it and must find the same file; there may be more or
    fewer of them than before.
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
    with training.restoring(), peers.agreeing():
        _restore(content, loaded, path)
    if training.finished:
        training.end()
    loaded.zero_grad()
    return content["extra"]


def _write_sharded(path: Path, content: dict[str, Any], peers: Peers) -> None:
    """All processes write their shards; then process 0 writes the file that names their folder."""
    from mmcc.training import _checkpoint_shards as shards  # takes a second

    plain, tensors = shards.take_apart(content)
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
    """The content, with the sharded tensors loaded from their folder."""
    named = content.get(SHARDS)
    if named is None and not run.sharding.spread:
        return content
    from mmcc.training import _checkpoint_shards as shards  # takes a second

    with run.peers.agreeing():
        if named is None:
            raise CheckpointError(
                f"{path.name!r} is of a run whose parameters were not sharded: resume it without "
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
    """The optimizer among the parts of a run, which must all belong to the same run."""
    given = [part for part in parts if part is not None]
    found = next((part for part in given if isinstance(part, PrivateOptimizer)), None)
    if found is None:
        raise CheckpointError("pass the optimizer that make_private returned.")
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
    """Refuse a checkpoint of another mechanism, or with other noise for steps already made."""
    differences = run.mechanism.differences(content["fingerprint"])
    if differences:
        raise CheckpointError(
            f"{path.name!r} belongs to another mechanism: {harmless('; '.join(differences))}. A "
            "run keeps the mechanism that was accounted; start a new one for another."
        )
    if content["layout"].get("digest") != run.layout:
        raise CheckpointError(
            f"{path.name!r} belongs to a module whose parameters have other names, shapes or "
            "types, or another order in the optimizer: its noise would go to the wrong parameters. "
            "Create module and optimizer as they were created for the run."
        )
    run.record.check(content["ledger"].get("run", ""))
    if run.position and run.noise.state()["key"] != content["noise"].get("key"):
        raise CheckpointError(
            f"this run has already made {run.position} steps with its own noise, and {path.name!r} "
            "has other noise for the same steps. Load a checkpoint before the first step."
        )


def _restore(content: Mapping[str, Any], optimizer: PrivateOptimizer, path: Path) -> None:
    run = optimizer.run
    run.record.resume(content["ledger"].get("run", ""))
    try:
        if SHARDS in content:
            run.noise.load_state_dict(content["noise"])
        else:
            run.noise.restore(content["noise"])
        run.participants.restore(content["participants"])
        run.watch.module.load_state_dict(content["module"])
        run.masters.load(content.get(MASTERS, {}))
        optimizer.original_optimizer.load_state_dict(content["optimizer"])
        if len(content["random"]) == run.peers.count:  # otherwise nobody has a predecessor
            _restore_random(content["random"][run.peers.rank])
    except Exception as problem:  # whatever torch raises on the content of a file
        said = " ".join(str(problem).split())[:MAX_QUOTED].rstrip(".")
        raise CheckpointError(
            f"{path.name!r} does not fit: {said}. Create module and optimizer as they were created "
            "for the run."
        ) from problem


def _path(path: str | Path) -> Path:
    if not isinstance(path, (str, Path)) or not str(path):
        raise CheckpointError(f"a checkpoint needs the path of a file, got {path!r}.")
    return Path(path)


def _random_state() -> dict[str, Any]:
    """The state of the global generators, from which dropout and random transforms draw."""
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002 (the one that others use)
    if numpy["bit_generator"] != "MT19937":
        raise CheckpointError(
            f"numpy's global generator is {numpy['bit_generator']}, which a checkpoint cannot "
            "store: leave the global one as it is and use generators of your own."
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
