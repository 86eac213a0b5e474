"""Claim: whatever `begin` returned is in the ledger, and every line is whole, killed or not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cases.ledger_writers import GUARANTEE, STAGES

from mmcc.ledger import Ledger

TESTS = Path(__file__).parents[1]

if sys.platform == "win32":
    pytest.skip("needs POSIX file locks", allow_module_level=True)


def writers(mode: str, file: Path, *numbers: int) -> dict:
    command = [sys.executable, "-m", "cases.ledger_writers", mode, str(file), *map(str, numbers)]
    done = subprocess.run(
        command, cwd=TESTS, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def runs_by_plain_json(file: Path) -> list[str]:
    """The runs that began, read without any code of the ledger."""
    lines = file.read_text(encoding="ascii").split("\n")
    assert lines.pop() == ""
    return [line["run"] for line in map(json.loads, lines) if line["kind"] == "begin"]


def test_fifty_random_kills_of_three_writers_lose_nothing(tmp_path):
    file = tmp_path / "ledger.jsonl"
    seen = writers("random", file, 50, 7)
    assert seen["kills"] == 150
    assert seen["lost"] == 0
    assert len(seen["kept"]) >= 50  # the writers did write
    assert seen["left_over"] >= 1  # and some kills hit a write before its rename
    begun = runs_by_plain_json(file)
    assert len(begun) == len(set(begun))
    assert set(seen["kept"]) <= set(begun)
    total = Ledger(file).total("d")
    assert total.epsilon == 0.25 * len(begun)
    assert total.states["no_end"] >= 1


def test_a_kill_at_each_stage_leaves_the_line_or_nothing(tmp_path):
    file = tmp_path / "ledger.jsonl"
    seen = writers("stages", file)
    there = {stage: 0 if stage in STAGES[:5] else 1 for stage in STAGES}
    assert seen["seen"] == {stage: [-signal.SIGKILL, there[stage]] for stage in STAGES}
    assert set(seen["kept"]) <= set(runs_by_plain_json(file))
    assert len(Ledger(file).history().runs) == len(STAGES) + sum(there.values())


def test_writers_at_the_same_time_do_not_overwrite_each_other(tmp_path):
    file = tmp_path / "ledger.jsonl"
    seen = writers("together", file, 4, 8)
    assert len(set(seen["kept"])) == 32
    assert sorted(runs_by_plain_json(file)) == sorted(seen["kept"])
    assert Ledger(file).total("d").states == {"ended": 32, "stopped": 0, "no_end": 0}


def test_a_link_to_a_ledger_stays_a_link_and_the_mode_is_kept(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "ledger.jsonl", tmp_path / "ledger.jsonl"
    link.symlink_to(target)
    what = {"data": "d", "mechanism": "m", "guarantee": GUARANTEE, "steps": 4, "fingerprint": "f"}
    Ledger(link).begin(**what)
    os.chmod(target, 0o640)
    Ledger(link).begin(**what)
    assert link.is_symlink()
    assert len(Ledger(target).history().runs) == 2
    assert target.stat().st_mode & 0o777 == 0o640
