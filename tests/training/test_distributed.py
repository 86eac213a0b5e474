"""Claim: two processes make the run that one makes: its batches, one noise, equal parameters.

And a process that dies ends the run of all with a clear error, and the run can be resumed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
if not torch.distributed.is_available():
    pytest.skip("torch has no distributed package", allow_module_level=True)

from cases import peers, spread  # noqa: E402
from cases.peers import CASES, LONG, SCHEMES, STRATEGIES  # noqa: E402
from cases.private import parameters, train  # noqa: E402

from mmcc.ledger import Ledger  # noqa: E402
from mmcc.strategies._decoders import decoder_matrix  # noqa: E402
from mmcc.training import (  # noqa: E402
    Participants,
    TorchNoiseStream,
    load_checkpoint,
    save_checkpoint,
)
from mmcc.training._distributed import Stance  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

SCENARIOS = (
    "cases",
    "shards",
    "noise",
    "mixed",
    "start",
    "plain",
    "grown",
    "ledger",
    "accelerated",
    "refusals",
)
COORDINATES = peers.WIDE[0] * peers.WIDE[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, nursery):
    """What two processes left that went through all scenarios."""
    folder = tmp_path_factory.mktemp("pair")
    made = peers.case(**CASES["tree usual 2 float64"], steps_per_epoch=3)
    train(*made)
    save_checkpoint(folder / "alone", *made)
    nursery.results(folder, 2, *SCENARIOS)
    return folder


@pytest.fixture
def pair(folder):
    return lambda scenario: peers.results(folder, scenario)


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_those_of_one_process(pair, name):
    made = peers.case(**CASES[name])
    train(*made)
    close = {"float64": 1e-12, "float32": 1e-6, "bfloat16": 2e-2}[CASES[name]["dtype"]]
    first, second = (found[name] for found in pair("cases"))
    for alone, one, other in zip(parameters(made[0]), first, second, strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, alone, rtol=close, atol=close)


def test_accelerate_leaves_the_run_of_two_processes_as_it_is(pair):
    for found, usual in zip(pair("accelerated"), pair("cases"), strict=True):
        assert found["same"]
        assert found["count"] == 2
        assert all(map(torch.equal, found["parameters"], usual[peers.ACCELERATED]))


def test_a_run_of_two_processes_is_in_its_ledger_once(pair, folder):
    (run,) = Ledger(folder / "runs.jsonl").history().runs.values()
    assert (run.resumed, run.position) == (1, peers.STEPS)
    assert [found["name"] for found in pair("ledger")] == [run.begin.run] * 2


def test_models_that_differ_after_the_last_step_are_noticed(pair):
    assert all("differ from those of process 0" in found["apart"] for found in pair("ledger"))


@pytest.mark.parametrize("physical", [None, 2])
@pytest.mark.parametrize("name", SCHEMES)
def test_parts_make_up_the_batch_of_the_scheme(pair, name, physical):
    found = [one[f"{name} {physical}"] for one in pair("shards")]
    first, second = found
    drawn = Participants(SCHEMES[name], LONG, 30, 11)
    for step in range(LONG):
        one, other = first["steps"][step], second["steps"][step]
        assert sorted(one + other) == drawn.at(step).tolist()  # so that none is in both
        assert 0 <= len(one) - len(other) <= 1
    if physical:
        assert max(first["chunks"] + second["chunks"]) == physical
        largest = [
            max(map(len, parts)) for parts in zip(first["steps"], second["steps"], strict=True)
        ]
        assert [len(one["chunks"]) for one in found] == [
            sum(max(1, -(-n // 2)) for n in largest)
        ] * 2
    else:
        assert len(first["chunks"]) == len(second["chunks"]) == LONG


def test_some_parts_were_empty():
    """Else the cases above would not show what they do with one."""
    drawn = Participants(peers.SAMPLINGS["rare"], STRATEGIES["tree"].steps, 30, 11)
    sizes = [drawn.at(step).size for step in range(drawn.steps)]
    assert 0 in sizes
    assert 1 in sizes


@pytest.mark.parametrize("seed", [4, None])
@pytest.mark.parametrize("name", peers.strategies_of_three())
def test_there_is_one_noise_with_the_accounted_covariance(pair, name, seed):
    """10^5 coordinates: entries of the covariance are off by at most 9 standard errors."""
    first, second = (found[f"{name} {seed}"] for found in pair("noise"))
    assert torch.equal(first, second)
    decoder = decoder_matrix(peers.strategies_of_three()[name])
    accounted = decoder @ decoder.T
    found = first.numpy() @ first.numpy().T / COORDINATES
    spread = np.sqrt(np.diag(accounted))
    assert (np.abs(found - accounted) <= 0.04 * np.outer(spread, spread)).all()


def test_noise_is_that_of_one_process_with_the_seed(pair):
    for name, strategy in peers.strategies_of_three().items():
        alone = peers.moves(strategy, 4)
        torch.testing.assert_close(pair("noise")[0][f"{name} 4"], alone, rtol=0, atol=1e-6)


def test_noise_without_a_seed_is_another_each_time(pair):
    found = pair("noise")[0]
    assert not torch.allclose(found["identity None"][0], found["identity 4"][0])
    assert not torch.allclose(found["identity None"][0], found["bands None"][0])


def test_sums_keep_types_and_shapes(pair):
    for small, large in pair("mixed"):
        assert (small.dtype, large.dtype) == (torch.float32, torch.float64)
        assert torch.equal(small, 3.0 * torch.arange(6).view(2, 3).t())
        assert large.item() == 3 * (1 + 2.0**-40)


@pytest.mark.parametrize("position", [0, 1, 65535, 65536, 2**40 + 12345])
@pytest.mark.parametrize("replica", [0, 1, 2**64 - 1, 0x0123456789ABCDEF])
def test_where_a_process_stands_survives_single_precision(position, replica):
    stance = Stance(2, position, replica)
    sent = torch.tensor(stance.numbers(), dtype=torch.float32) + 0.0
    assert Stance.of(sent.tolist()) == stance


def test_all_start_with_the_parameters_of_the_first(pair):
    first, second = pair("start")
    torch.manual_seed(100)
    expected = parameters(torch.nn.Linear(peers.FEATURES, peers.CLASSES).double())
    for one, other, truth in zip(first, second, expected, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, truth)


def test_one_process_goes_on_with_the_run_of_two(pair, folder):
    made = peers.case(**CASES["tree usual 2 float64"])
    load_checkpoint(folder / "plain", *made)
    assert made[1].position == 3
    train(*made)
    for alone, both in zip(parameters(made[0]), pair("plain")[0], strict=True):
        torch.testing.assert_close(alone, both, rtol=1e-12, atol=1e-12)


def test_two_processes_go_on_with_the_run_of_one(pair):
    made = peers.case(**CASES["tree usual 2 float64"])
    train(*made)
    first, second = pair("grown")
    for alone, one, other in zip(parameters(made[0]), first, second, strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("sigma", "do not agree: sigma is 1.0 on process 0 and 2.0 on process 1"),
        ("steps", "do not agree: strategy is identity"),
        ("bands", "do not agree: strategy is toeplitz.*digest.*and toeplitz.*digest"),
        ("physical", "physical_batch_size is 5 on process 0 and 6 on process 1"),
        ("generator", "generator is philox on process 0 and chacha on process 1"),
        ("data", "examples is 30 on process 0 and 31 on process 1"),
        ("model", "number of trained parameters is 15 on process 0 and 20 on process 1"),
        ("names", "do not agree: the digest of the module's layout"),
        ("other file", "do not agree: the digest of the checkpoint"),
        ("learning rate", "at step 1 the parameters of process 1 differ from those of process 0"),
        (
            "lone save",
            "process 0 is in save_checkpoint at step 0 and process 1 in optimizer.step at step 0",
        ),
        ("learning rate, again", "restart all of them from the last checkpoint"),
    ],
)
def test_what_is_not_the_same_is_refused_by_both(pair, what, message):
    first, second = (found[what] for found in pair("refusals"))
    assert first == second
    assert first.startswith("RunError: ")
    assert re.search(message, first)


def test_what_fails_on_one_fails_on_both(pair):
    first, second = pair("refusals")
    assert second["wrong on one"].startswith("ParameterError: sigma must lie in")
    assert first["wrong on one"].startswith("RunError: process 1 failed, and so do all: sigma must")
    assert second["missing file"].startswith("CheckpointError: cannot read")
    assert first["missing file"].startswith(
        "RunError: process 1 failed, and so do all: cannot read"
    )
    assert first["unwritable"].startswith("CheckpointError: cannot write")
    assert second["unwritable"].startswith(
        "RunError: process 0 failed, and so do all: cannot write"
    )
    for found in (first, second):
        assert found["wrong on all"].startswith("ParameterError: seed must be")
        assert "pass the plain module, with distributed=True" in found["wrapped"]
        assert "Pass distributed=True on all of them" in found["not said"]
        assert found["position"] == str(peers.STEPS)  # the group is none the worse for it
        assert found["lone file"] == "False"


def test_a_group_is_needed():
    with pytest.raises(ValueError, match="distributed=True needs a process group"):
        peers.private(distributed=True)


def check_ends(ends, victim: int) -> None:
    """Soon after one was killed all others are done, and say why."""
    assert ends[victim]["status"] == -signal.SIGKILL
    for rank, end in enumerate(ends):
        if rank != victim:
            assert end["status"] == 1
            assert "RunError: a process of the group is gone" in end["said"]
            assert end["time"] - ends[victim]["time"] < peers.PATIENCE / 3


def check_resumed_run(nursery, folder, count: int, scenario: str, victim: int) -> None:
    """Dropout, momentum and chunks: all of it goes on as if nothing had happened."""
    check_ends(nursery.group(folder, count, scenario), victim)
    resumed = nursery.results(folder, count, "taken_up")
    truth = nursery.results(folder, count, "uninterrupted")
    for found in resumed:
        assert all(map(torch.equal, found, truth[0]))


def test_a_killed_process_ends_the_other_and_both_go_on(nursery, tmp_path):
    check_resumed_run(nursery, tmp_path, 2, "killed", 1)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_the_first_is_killed_while_the_others_wait(nursery, tmp_path, count):
    check_resumed_run(nursery, tmp_path, count, "killed_first", 0)


@pytest.mark.slow
def test_one_of_three_is_killed(nursery, tmp_path):
    check_resumed_run(nursery, tmp_path, 3, "killed", 2)


@pytest.mark.slow
def test_a_killed_process_with_workers_ends_the_other(nursery, tmp_path):
    check_ends(nursery.group(tmp_path, 2, "killed_with_workers"), 1)


@pytest.mark.slow
def test_a_process_that_is_stuck_is_not_waited_for_longer_than_the_group_says(nursery, tmp_path):
    first, second = nursery.group(tmp_path, 2, "stuck")
    for end in (first, second):
        assert end["status"] == 1
        assert "RunError: a process of the group is gone, or did not answer in time" in end["said"]
    assert second["time"] - first["time"] > peers.SHORT / 2


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 4])
def test_any_number_of_processes(nursery, tmp_path, count):
    found = nursery.results(tmp_path, count, "cases")
    for name, options in CASES.items():
        made = peers.case(**options)
        train(*made)
        close = 1e-12 if options["dtype"] == "float64" else 1e-6
        for one in found:
            for alone, own, first in zip(
                parameters(made[0]), one[name], found[0][name], strict=True
            ):
                assert torch.equal(own, first)
                torch.testing.assert_close(own, alone, rtol=close, atol=close)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "strategy"), [(1, "binary_tree(64)"), (2, "blt(64, ")])
def test_scripts_of_the_docs_run_under_torchrun(tmp_path, place, strategy):
    page = Path(__file__).parents[2] / "docs" / "distributed.md"
    script = page.read_text().split("```python\n")[place].split("```")[0]
    (tmp_path / "train.py").write_text(script)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    path = os.pathsep.join(part for part in sys.path if part)
    for _ in range(2):  # the second time there is a checkpoint, of the end
        done = subprocess.run(
            [*launcher, "train.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=peers.LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("64 (")
        assert done.stdout.count(strategy) == 1


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_noise_over_processes_and_on_another_number_of_them(count, nursery, tmp_path):
    """DTensors as FSDP2 has them, and checkpoints of torch.distributed."""
    before = nursery.results(tmp_path, count, "spread")
    after = nursery.results(tmp_path, 6 // count, "resumed_spread")
    for name, strategy in spread.STRATEGIES.items():
        whole = TorchNoiseStream(strategy, 1.5, spread.parameters(), 11)
        for step in range(spread.STEPS):
            expected = next(whole)
            found = [
                found[key] for found in before for key in found if key.endswith(f" {name} {step}")
            ]
            if step >= spread.STOPPED:
                found += [found[f"{name} {step}"] for found in after]
            assert len(found) >= count
            for tensors in found:
                assert all(torch.equal(*pair) for pair in zip(tensors, expected, strict=True))
