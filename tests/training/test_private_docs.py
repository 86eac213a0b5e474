"""Claim: what the pages about training show is what the software does."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("opacus")

PAGES = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def blocks_of(page: str, count: int) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(found) == count
    return found


def run(*blocks: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    return names


def test_training(capsys):
    run(*blocks_of("training.md", 3))
    assert "-DP, certified by" in capsys.readouterr().out


def test_tools(capsys, monkeypatch):
    """With somebody's writer in the place of TensorBoard's, which is not installed."""
    written = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

    board = ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, board.__name__, board)
    names = run(*blocks_of("tools.md", 3))
    said = capsys.readouterr().err
    page = (PAGES / "tools.md").read_text(encoding="utf-8")
    for line in re.findall(r"^    (mmcc: .*)$", page, flags=re.MULTILINE):
        exact, _, rest = re.split(r"(loss [\d.]+|\.\.\.)", line)
        assert exact in said
        assert rest in said
    names["to_tensorboard"](names["told"][0])
    assert sorted(name for name, _, _ in written) == [
        "run/epsilon",
        "run/epsilon_if_ended_here",
        "run/loss",
    ]
    assert {step for _, _, step in written} == {1}


@pytest.mark.filterwarnings("ignore:Secure RNG turned off", "ignore:Optimal order is the")
def test_from_opacus(capsys):
    """Both scripts run, take as many steps, and mean the same noise up to Opacus's tolerance."""
    theirs, ours = map(run, blocks_of("from-opacus.md", 2))
    said = capsys.readouterr()
    peer, own = theirs["optimizer"], ours["optimizer"]
    assert own.finished
    assert own.guarantee.epsilon <= 3.0
    ((_, rate, steps),) = theirs["engine"].accountant.history
    assert (steps, rate) == (own.mechanism.steps, own.mechanism.sampling.probability)
    assert peer.expected_batch_size == own.mechanism.expected_batch_size
    assert 0 <= peer.noise_multiplier / own.mechanism.sigma - 1 < 5e-3
    assert str(own.guarantee) in said.out
    page = (PAGES / "from-opacus.md").read_text(encoding="utf-8")
    for number in (peer.noise_multiplier, own.mechanism.sigma):
        assert f"{number:.4f}" in page
    assert f"epsilon {math.ceil(own.guarantee.epsilon * 1e4) / 1e4:.4f}." in page


def test_another_strategy_is_two_words():
    """As the page says of correlated noise, and of `poisson_sampling=False`."""
    _, script = blocks_of("from-opacus.md", 2)
    strategy, sampling = '"identity"', '"poisson"'
    assert strategy in script
    assert sampling in script
    start = script.partition("for epoch")[0]
    for words in (
        ("banded-toeplitz:5", "cyclic-poisson:5"),
        ("identity", "shuffle"),
    ):
        changed = start.replace(strategy, repr(words[0])).replace(sampling, repr(words[1]))
        assert run(changed)["optimizer"].guarantee.epsilon <= 3.0
