"""Claim: a run taken up from a file is the run that was saved, and no other run takes it up."""

from __future__ import annotations

import io
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases.samples import sampled

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import (  # noqa: E402
    CLASSES,
    FEATURES,
    STEPS,
    backward,
    data,
    parameters,
    private,
    train,
)
from torch import nn  # noqa: E402

from mmcc import MmccError, strategies  # noqa: E402
from mmcc.sampling import (  # noqa: E402
    BallsInBins,
    CyclicPoisson,
    MinSeparation,
    Poisson,
    RandomAllocation,
    Shuffle,
)
from mmcc.training import load_checkpoint, save_checkpoint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

STRATEGIES = [
    strategies.identity(STEPS),
    strategies.toeplitz([1.0, 0.6, 0.3], STEPS),
    strategies.continual_counting(STEPS),
    strategies.banded_inverse(STEPS, 3),
    strategies.banded(STEPS, 3),
    strategies.blt(STEPS, decay=[0.9, 0.4], scale=[0.3, 0.2]),
    strategies.binary_tree(STEPS),
]


def network() -> nn.Module:
    torch.manual_seed(8)
    layers = nn.Linear(FEATURES, 6), nn.Dropout(0.4), nn.Linear(6, CLASSES)
    return nn.Sequential(*layers).double()


def steps(run, count: int) -> None:
    """So many steps, with a loop that is left."""
    module, optimizer, loader = run
    end = optimizer.position + count
    while optimizer.position < end:
        for batch in loader:
            optimizer.zero_grad()
            backward(module, batch)
            optimizer.step()
            if optimizer.position == end:
                break


def to_the_end(run) -> None:
    while not run[1].finished:
        train(*run)


def resumed_equals_whole(path: Path, after: int, **options) -> None:
    options.setdefault("momentum", 0.9)
    whole = private(network(), **options)
    to_the_end(whole)
    first = private(network(), **options)
    steps(first, after)
    save_checkpoint(path, *first)
    second = private(network(), **{**options, "seed": None})
    torch.manual_seed(99)
    load_checkpoint(path, *second)
    assert second[1].position == after
    to_the_end(second)
    assert all(map(torch.equal, parameters(second[0]), parameters(whole[0])))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_every_strategy_goes_on(tmp_path, strategy):
    resumed_equals_whole(tmp_path / "run", 4, strategy=strategy)


@pytest.mark.parametrize(
    ("scheme", "length"),
    [
        (CyclicPoisson(0.8, 3), STEPS),
        (MinSeparation(0.6, 3), STEPS),
        (BallsInBins(4), 8),
        (RandomAllocation(4, 2), 8),
        (Shuffle(4), 8),
    ],
    ids=repr,
)
def test_every_scheme_goes_on(tmp_path, scheme, length):
    strategy = strategies.identity(length)
    resumed_equals_whole(tmp_path / "run", 3, strategy=strategy, sampling=scheme)


@pytest.mark.parametrize(
    ("after", "mode"), sampled([0, 1, STEPS - 1], ["hooks", "functorch", "ew", "ghost"], strength=1)
)
def test_every_moment_and_mode(tmp_path, after, mode):
    resumed_equals_whole(
        tmp_path / "run", after, grad_sample_mode=mode, physical_batch_size=3, steps_per_epoch=4
    )


def test_stopped_in_the_middle_of_a_logical_batch(tmp_path):
    options = {"sampling": Poisson(1.0), "physical_batch_size": 7, "momentum": 0.9}
    whole = private(network(), **options)
    train(*whole)
    module, optimizer, loader = first = private(network(), **options)
    steps(first, 2)
    save_checkpoint(tmp_path / "run", *first)
    for place, batch in enumerate(loader):
        optimizer.zero_grad()
        backward(module, batch)
        optimizer.step()
        if place == 2:
            break  # three of five chunks
    assert optimizer.position == 2
    for again in (first, private(network(), **{**options, "seed": None})):
        load_checkpoint(tmp_path / "run", *again)
        train(*again)
        assert all(map(torch.equal, parameters(again[0]), parameters(whole[0])))


class Masked(nn.Module):
    """A buffer that training does not change."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64))

    def forward(self, inputs):
        return inputs * self.mask


def test_constant_buffers_are_no_hindrance(tmp_path):
    def masked() -> nn.Module:
        return nn.Sequential(Masked(), network())

    whole = private(masked())
    to_the_end(whole)
    first = private(masked())
    steps(first, 2)
    save_checkpoint(tmp_path / "run", *first)
    second = private(masked())
    load_checkpoint(tmp_path / "run", *second)
    to_the_end(second)
    assert all(map(torch.equal, parameters(second[0]), parameters(whole[0])))


def test_buffers_and_frozen_parameters_come_with_the_checkpoint(tmp_path):
    """What was there before the load is no measure of what may be there after it."""

    def masked(mask: list[float], frozen: float) -> nn.Module:
        module = nn.Sequential(Masked(), nn.Linear(FEATURES, FEATURES).double(), network())
        module[0].mask.copy_(torch.tensor(mask))
        nn.init.constant_(module[1].weight, frozen)
        nn.init.constant_(module[1].bias, frozen)
        module[1].requires_grad_(False)
        return module

    whole = private(masked([1.0, 0.0, 1.0, 1.0], 0.5))
    to_the_end(whole)
    first = private(masked([1.0, 0.0, 1.0, 1.0], 0.5))
    steps(first, 2)
    save_checkpoint(tmp_path / "run", first[1])
    second = private(masked([0.0, 0.0, 2.0, 3.0], 0.1))
    batches = iter(second[2])
    next(batches)  # the content is noted, and void after the load
    load_checkpoint(tmp_path / "run", second[1])
    to_the_end(second)
    assert all(map(torch.equal, parameters(second[0]), parameters(whole[0])))


def test_the_optimizer_alone_is_the_run(tmp_path):
    whole = private(network(), momentum=0.9)
    to_the_end(whole)
    first = private(network(), momentum=0.9)
    steps(first, 3)
    save_checkpoint(tmp_path / "alone", first[1], extra="three")
    save_checkpoint(tmp_path / "parts", *first, extra="three")
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "parts").read_bytes()
    second = private(network(), momentum=0.9, seed=None)
    assert load_checkpoint(tmp_path / "alone", second[1]) == "three"
    to_the_end(second)
    assert all(map(torch.equal, parameters(second[0]), parameters(whole[0])))


def test_extra_is_handed_back(tmp_path):
    run = private()
    extra = {"schedule": {"rate": 0.1, "steps": [1, 2]}, "best": torch.ones(2), "name": "x"}
    save_checkpoint(tmp_path / "run", *run, extra=extra)
    found = load_checkpoint(tmp_path / "run", *private())
    assert found.pop("best").tolist() == [1.0, 1.0]
    del extra["best"]
    assert found == extra


def test_finished_run_can_be_loaded(tmp_path):
    run = private()
    train(*run)
    save_checkpoint(tmp_path / "run", *run)
    again = private()
    load_checkpoint(tmp_path / "run", *again)
    assert again[1].finished
    assert all(map(torch.equal, parameters(run[0]), parameters(again[0])))


def test_guarantee_is_that_of_the_whole_run_after_a_resume(tmp_path):
    run = private()
    steps(run, 3)
    save_checkpoint(tmp_path / "run", *run)
    again = private()
    load_checkpoint(tmp_path / "run", *again)
    assert again[1].guarantee.epsilon == private()[1].guarantee.epsilon


# ---------------------------------------------------------------- other runs


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("strategy", {"strategy": strategies.toeplitz([1.0, 0.2], STEPS)}),
        ("strategy", {"strategy": strategies.toeplitz([1.0, 0.1 + 2**-54], STEPS)}),
        ("strategy", {"strategy": strategies.toeplitz([1.0, 0.1], STEPS + 1)}),
        ("strategy", {"stop_after": 5}),
        ("strategy", {"strategy": strategies.blt(STEPS, decay=[0.9], scale=[0.1])}),
        ("sampling", {"sampling": Poisson(0.31)}),
        ("sampling", {"sampling": CyclicPoisson(0.3, 1)}),
        ("sigma", {"sigma": 1.0 + 2**-52}),
        ("examples", {"dataset": data(31)}),
        ("max_grad_norm", {"max_grad_norm": 1.1}),
        ("loss_reduction", {"loss_reduction": "sum"}),
    ],
)
def test_another_mechanism_is_refused_and_named(tmp_path, field, change):
    given = {"strategy": strategies.toeplitz([1.0, 0.1], STEPS)}
    save_checkpoint(tmp_path / "run", *private(**given))
    other = private(**{**given, **change})
    with pytest.raises(
        MmccError, match=rf"belongs to another mechanism: .*\b{field} was"
    ) as caught:
        load_checkpoint(tmp_path / "run", *other)
    assert str(caught.value).count(" was ") == 2  # one difference, and "that was accounted"
    assert other[1].position == 0


def test_another_decoder_is_refused(tmp_path):
    tree = strategies.binary_tree(STEPS)
    save_checkpoint(tmp_path / "run", *private(strategy=tree, decoder="online"))
    with pytest.raises(MmccError, match="decoder was online and is honaker"):
        load_checkpoint(tmp_path / "run", *private(strategy=tree))


def test_another_module_is_refused(tmp_path):
    save_checkpoint(tmp_path / "run", *private())
    with pytest.raises(MmccError, match="other names, shapes or types"):
        load_checkpoint(tmp_path / "run", *private(network()))


def test_a_load_that_fails_on_its_way_makes_the_run_void(tmp_path, monkeypatch):
    save_checkpoint(tmp_path / "run", *private())
    other = private()

    def failing(state):
        raise RuntimeError("no room")

    monkeypatch.setattr(other[0]._module, "load_state_dict", failing)
    with pytest.raises(MmccError, match="does not fit"):
        load_checkpoint(tmp_path / "run", *other)
    with pytest.raises(MmccError, match="Call make_private again"):
        train(*other)
    with pytest.raises(MmccError, match="Call make_private again"):
        save_checkpoint(tmp_path / "other", *other)


def test_second_noise_for_the_same_steps_is_refused(tmp_path):
    saved = private()
    save_checkpoint(tmp_path / "run", *saved)
    other = private(seed=12)
    steps(other, 2)
    with pytest.raises(MmccError, match="2 steps with its own noise"):
        load_checkpoint(tmp_path / "run", *other)
    steps(saved, 2)
    load_checkpoint(tmp_path / "run", *saved)  # its own noise again
    assert saved[1].position == 0


def test_pieces_of_different_runs_are_refused(tmp_path):
    first, second = private(), private()
    for mixed in (
        (second[0], *first[1:]),
        (*first[:2], second[2]),
        (first[0]._module, *first[1:]),
        (first[0], first[1].original_optimizer, first[2]),
        first[:1],
        first[2:],
        (first[1].original_optimizer,),
        (first,),
    ):
        with pytest.raises(MmccError, match=r"different runs|make_private"):
            save_checkpoint(tmp_path / "run", *mixed)
        with pytest.raises(MmccError, match=r"different runs|make_private"):
            load_checkpoint(tmp_path / "run", *mixed)


def test_loop_that_began_before_a_load_ends(tmp_path):
    run = private()
    save_checkpoint(tmp_path / "run", *run)
    batches = iter(run[2])
    next(batches)
    load_checkpoint(tmp_path / "run", *run)
    with pytest.raises(MmccError, match="one loop at a time"):
        next(batches)


# ---------------------------------------------------------------- when


def test_no_checkpoint_within_a_step(tmp_path):
    module, optimizer, loader = run = private(sampling=Poisson(1.0), physical_batch_size=10)
    for place, batch in enumerate(loader):
        with pytest.raises(MmccError, match="a checkpoint belongs between two steps"):
            save_checkpoint(tmp_path / "run", *run)
        backward(module, batch)
        optimizer.step()
        optimizer.zero_grad()
        if place == 2:
            save_checkpoint(tmp_path / "run", *run)
            break
        with pytest.raises(MmccError, match="a checkpoint belongs between two steps"):
            save_checkpoint(tmp_path / "run", *run)
    save_checkpoint(tmp_path / "run", *run)


# ---------------------------------------------------------------- files


def refused(path: Path, match: str) -> None:
    with pytest.raises(MmccError, match=match) as caught:
        load_checkpoint(path, *private())
    assert "\n" not in str(caught.value)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "run"
    save_checkpoint(path, *private())
    content = path.read_bytes()
    generator = np.random.default_rng(4)
    for length in (0, 1, 10, 40, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        refused(path, "is not an mmcc checkpoint|damaged or truncated")
    for place in generator.integers(len(content), size=20):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        refused(path, "is not an mmcc checkpoint|damaged or truncated")
    for garbage in (b"", b"hello", generator.bytes(1000), content + b"x"):
        path.write_bytes(garbage)
        refused(path, "is not an mmcc checkpoint|damaged or truncated")
    refused(tmp_path / "nothing", "cannot read .*No such file")
    refused(tmp_path, "cannot read .*directory")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("owned",)


def test_no_code_is_run_from_a_file(tmp_path, monkeypatch):
    import hashlib

    from mmcc.training._checkpoint_file import MAGIC

    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    torch.save({"format": 1, "extra": Evil()}, buffer)
    for payload in (buffer.getvalue(), pickle.dumps(Evil())):
        Path("run").write_bytes(MAGIC + hashlib.sha256(payload).digest() + payload)
        refused(Path("run"), "does not have the entries of a checkpoint")
    assert not Path("owned").exists()


@pytest.mark.parametrize(
    "extra", [object(), {"a": [np.float64(1.0)]}, np.zeros(2), {"f": len}, {"s": {1, 2}}]
)
def test_what_could_not_be_read_again_is_not_written(tmp_path, extra):
    path = tmp_path / "run"
    run = private()
    save_checkpoint(path, *run, extra=1)
    before = path.read_bytes()
    with pytest.raises(MmccError, match=r"\['extra'\].* is a .*, which a file without code"):
        save_checkpoint(path, *run, extra=extra)
    assert path.read_bytes() == before


def test_file_is_for_its_owner_only_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "run"
    save_checkpoint(path, *private())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["run"]


def test_place_that_cannot_be_written(tmp_path):
    for path in (tmp_path / "no" / "run", ""):
        with pytest.raises(MmccError, match=r"cannot write|a checkpoint needs the path of a file"):
            save_checkpoint(path, *private())


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch, failing):
    path = tmp_path / "run"
    run = private()
    save_checkpoint(path, *run, extra="old")

    def fails(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fails)
        with pytest.raises(MmccError, match=r"cannot write .*No space left"):
            save_checkpoint(path, *run, extra="new")
    assert load_checkpoint(path, *private()) == "old"


def test_parameters_are_not_shared_with_the_file(tmp_path):
    """What is saved is what was there, not what comes after."""
    run = private()
    before = parameters(run[0])
    save_checkpoint(tmp_path / "run", *run)
    train(*run)
    load_checkpoint(tmp_path / "run", *run)
    assert all(map(torch.equal, parameters(run[0]), before))


# ---------------------------------------------------------------- kills


def after_kills(folder: Path, *counts: int) -> tuple[str, str, int]:
    command = [sys.executable, "-m", "cases.killed_runs", str(folder), *map(str, counts)]
    tests = Path(__file__).parents[1]
    run = subprocess.run(command, cwd=tests, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    whole, broken, kills = run.stdout.split()
    return whole, broken, int(kills)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_killed_at_every_kind_of_moment(tmp_path):
    whole, broken, kills = after_kills(tmp_path, 12, 1, 0)
    assert kills == 8
    assert whole == broken


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_killed_fifty_times_and_more(tmp_path):
    whole, broken, kills = after_kills(tmp_path, 400, 5, 25)
    assert kills >= 50
    assert whole == broken
