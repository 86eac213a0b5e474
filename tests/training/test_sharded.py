"""Claim: a run whose parameters `fully_shard` has spread over processes is the run of one process.

What it releases is the same, its noise has the accounted law and is made shard by shard, its
checkpoints are taken up by any number of processes, and what would not be clipped is refused.
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
from scipy.linalg import toeplitz

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
if not torch.distributed.is_available():
    pytest.skip("torch has no distributed package", allow_module_level=True)

from cases import peers, sharded  # noqa: E402
from cases.private import STEPS  # noqa: E402
from oracles import clipping as oracle  # noqa: E402
from torch import nn  # noqa: E402

from mmcc import strategies  # noqa: E402
from mmcc.audit._noise_law import Moments, smallest  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import CheckpointError, Participants, load_checkpoint  # noqa: E402
from mmcc.training import _checkpoint_shards as shards  # noqa: E402

SCENARIOS = (
    "sharded_cases",
    "sharded_settings",
    "sharded_evaluation",
    "sharded_noise",
    "sharded_stopped",
    "sharded_refusals",
)
RARE = 1e-6
COUNTS = [2, pytest.param(4, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=COUNTS)
def group(request, nursery, tmp_path_factory):
    """What so many processes saw in all scenarios, and where they left it."""
    folder = tmp_path_factory.mktemp("sharded")
    nursery.results(folder, request.param, *SCENARIOS)
    return folder, request.param


@pytest.fixture
def found(group):
    return lambda scenario: peers.results(group[0], scenario, group[1])


def check_same(found, alone, close):
    assert len(found) == len(alone)
    for one, other in zip(found, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=close)


@pytest.mark.parametrize("name", sharded.CASES)
def test_released_gradients_are_those_of_one_process(found, name):
    alone = sharded.released(sharded.case(**sharded.CASES[name], sharded=False))
    assert max(float(tensor.abs().max()) for tensor in alone) > 0.1
    for one in found("sharded_cases"):
        check_same(one[name], alone, 1e-6)


def test_released_gradients_are_clipped_sums(found):
    """Of plain autograd, example by example, at the parameters that the steps before have left."""
    clip, rate = 1.0, 0.3
    module, (inputs, labels) = sharded.layers(), sharded.numbers().tensors
    drawn = Participants(Poisson(rate), STEPS, len(inputs), 11)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.5)
    steps = found("sharded_cases")[0]["as a whole"]
    count = len(list(module.parameters()))
    for step in range(STEPS):
        members = drawn.at(step).tolist()
        batch = {"inputs": inputs[members], "labels": labels[members]}

        def losses(module, batch):
            return nn.functional.cross_entropy(
                module(batch["inputs"]), batch["labels"], reduction="none"
            )

        expected = oracle.clipped_sum(oracle.alone(losses, module, batch), clip, 1e-6)
        own = steps[step * count : (step + 1) * count]
        torch.testing.assert_close(
            oracle.flat(own), expected / (rate * len(inputs)), rtol=0, atol=1e-6
        )
        for p, gradient in zip(module.parameters(), own, strict=True):
            p.grad = gradient
        optimizer.step()


def test_some_parts_were_empty():
    """Else the rare case would not show what processes do with one."""
    drawn = Participants(Poisson(0.03), STEPS, 30, 11)
    assert {0, 1} <= {drawn.at(step).size for step in range(STEPS)}


def test_settings_of_fsdp_make_no_difference(found):
    usual = found("sharded_cases")[0]["as a whole"]
    for one in found("sharded_settings"):
        for tensors in one.values():
            check_same(tensors, usual, 1e-6)


def test_evaluation_between_steps_makes_no_difference(found):
    usual = found("sharded_cases")[0]["as a whole"]
    for one in found("sharded_evaluation"):
        check_same(one, usual, 1e-6)


def test_noise_has_the_accounted_law(found):
    """10^5 coordinates over all shards, made white: the tests of the audit."""
    rows = found("sharded_noise")[0]["rows"].double().numpy()
    assert rows.shape == (sharded.LONG, 10**5)
    encoder = toeplitz(np.pad(sharded.BANDS, (0, sharded.LONG - 3)), np.zeros(sharded.LONG))
    moments = Moments(sharded.LONG)
    moments.add((encoder @ rows).T)
    p_values = [
        *moments.variances(),
        *moments.correlations(),
        moments.all_correlations(),
        moments.means(),
        *moments.between_neighbours(),
    ]
    assert smallest(np.array(p_values)) > RARE
    for other in found("sharded_noise")[1:]:
        assert np.array_equal(other["rows"].double().numpy(), rows)


def test_each_process_makes_its_part_of_the_noise(found, group):
    """Rows of a parameter are dealt out whole, so that shares differ by a row."""
    width, total = sharded.WIDE[1], np.prod(sharded.WIDE)
    made = [one["made"] for one in found("sharded_noise")]
    assert sum(made) == total
    assert all(abs(share - total / group[1]) <= width for share in made)


def test_a_plain_module_takes_up_a_sharded_run(found, group):
    made = sharded.case(sharded=False, sigma=1.0, strategy=strategies.blt(STEPS, 2))
    load_checkpoint(group[0] / "stopped", *made)
    assert made[1].position == 3
    rest = sharded.released(made)
    for one in found("sharded_stopped"):
        check_same(rest, one[-len(rest) :], 1e-6)


@pytest.mark.parametrize("damage", ["a bit", "gone", "code"])
def test_a_damaged_folder_is_refused(group, tmp_path, damage):
    made = sharded.case(sharded=False, sigma=1.0, strategy=strategies.blt(STEPS, 2))
    file = group[0] / "stopped"
    (folder,) = group[0].glob("stopped.shards-*")
    assert folder.stat().st_mode & 0o077 == 0
    (tmp_path / "stopped").write_bytes(file.read_bytes())
    copy = tmp_path / folder.name
    if damage != "gone":
        copy.mkdir()
        for part in folder.iterdir():
            (copy / part.name).write_bytes(part.read_bytes())
    if damage == "a bit":
        first = sorted(copy.iterdir())[-1]
        content = bytearray(first.read_bytes())
        content[len(content) // 2] ^= 1
        first.write_bytes(content)
    if damage == "code":
        (copy / ".metadata").write_bytes(b"cos\nsystem\n(S'touch " + b"x'\ntR.")
        with pytest.raises(CheckpointError, match="not allowed"):
            shards.put_together(
                {"a": {shards.NAME: "a", "shape": [1], "type": "float32", "dimension": 0}},
                copy,
                torch.zeros(1),
            )
        return
    with pytest.raises(CheckpointError, match="not beside it" if damage == "gone" else "damaged"):
        load_checkpoint(tmp_path / "stopped", *made)
    assert made[1].position == 0


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("by columns", r"ParameterError: parameter 'weight' has the placements .Shard.dim=1"),
        ("two dimensions", "on a mesh of one dimension"),
        ("without head", "parameter '2.weight' is trained but not sharded, while others are"),
        ("beside", "parameter '2.weight' is a DTensor that fully_shard does not gather"),
        ("tensors", "parameter '1.weight' is a DTensor that fully_shard has not made"),
        ("mixed", "torch.bfloat16 on cpu while gathered"),
        ("16 bits", "Keep them in float32, and compute in bfloat16 with torch.autocast"),
        ("hooks", "grad_sample_mode='hooks' stores per-example gradients"),
        ("functorch", "grad_sample_mode='functorch' stores per-example gradients"),
        ("old", "FullyShardedDataParallel, which joins parameters"),
        ("no rule", "a layer of type Scale, .* Call fully_shard on a larger part"),
        ("alone", "Pass distributed=True on all of them"),
        ("meeting", "RunError: examples interact in the module"),
        ("bypassed", "RunError: .*per-example gradients of parameter .other.weight."),
        # Or else, where the batch is one of those that are looked at closely, as what has changed.
        (
            "bypassed later",
            "RunError: (parameter 'other.weight' is used outside|examples interact)",
        ),
        ("lone save", "process 0 is in save_checkpoint at step 0 and process 1 in optimizer.step"),
        ("lone file", "False"),
    ],
)
def test_what_would_not_be_the_run_is_refused_by_all(found, what, message):
    for one in found("sharded_refusals"):
        assert re.search(message, one[what]), one[what]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "how"),
    [
        (2, 4, "sharded_killed"),
        (4, 2, "sharded_killed"),
        (4, 3, "sharded_killed_saving"),
        (3, 1, "sharded_killed_saving"),
    ],
)
def test_a_killed_process_and_another_number_of_them_lose_nothing(
    nursery, tmp_path, before, after, how
):
    ends = nursery.group(tmp_path, before, how)
    victim = 0 if how == "sharded_killed_saving" else before - 1
    assert [end["status"] for end in ends] == [
        -signal.SIGKILL if rank == victim else 1 for rank in range(before)
    ]
    folders = len(list(tmp_path.glob("broken.shards-*")))
    assert folders == (2 if how == "sharded_killed_saving" else 1)
    taken_up = nursery.results(tmp_path, after, "sharded_taken_up")
    (whole, *_) = nursery.results(tmp_path, before, "sharded_whole")
    for one in taken_up:
        assert one["start"] == 3
        check_same(one["released"], whole["released"][-len(one["released"]) :], 1e-6)
    assert len(list(tmp_path.glob("broken.shards-*"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_the_example_runs_under_torchrun(tmp_path, count):
    script = Path(__file__).parents[2] / "examples" / "sharded.py"
    path = os.pathsep.join(part for part in sys.path if part)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    for _ in range(2):  # the second time there is a checkpoint, of the end
        done = subprocess.run(
            [*launcher, f"--nproc-per-node={count}", str(script), str(tmp_path / "run")],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=peers.LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("certified by") == 1
