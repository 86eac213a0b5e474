"""Claim: the LoRA example learns within its target, trains adapters, and writes its report."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("jinja2")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("transformers")
pytest.importorskip("peft")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import lora as example  # noqa: E402

import mmcc  # noqa: E402
from mmcc import sampling, strategies  # noqa: E402
from mmcc.accounting._guarantee import rounded_up  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
]


PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")


def entropy_of_letters(passages: torch.Tensor) -> float:
    """The least loss of a guess that looks at no letter before, in nats."""
    counts = passages.flatten().bincount().double()
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * shares.log()).sum())


def test_it_learns_within_its_target_and_reports(tmp_path, capsys):
    setting, page, folder = example.QUICK, tmp_path / "report.md", tmp_path / "adapters"
    adapted, passages = example.prepared(setting)
    counts = [p.numel() for p in adapted.parameters() if p.requires_grad]
    assert f"(rank 8, {sum(counts)} of {adapted.num_parameters()} parameters)" in PAGE
    result = example.main(setting, page, folder)
    assert result.loss < entropy_of_letters(passages) < math.log(len(example.LETTERS))
    assert result.loss < result.loss_before - 1
    # The guarantee again, from what the setting says: 1800 passages, 9 batches an epoch.
    exact = mmcc.epsilon(
        strategies.banded_toeplitz(18, 4),
        sampling.CyclicPoisson(4 / 9, 4),
        sigma=result.guarantee.sigma,
        delta=setting.delta,
    )
    assert exact.epsilon <= result.guarantee.epsilon <= setting.epsilon
    said = capsys.readouterr().out
    assert str(result.guarantee) in said
    assert f"loss {result.loss_before:.3f} before, {result.loss:.3f} after" in said
    written = page.read_text(encoding="utf-8")
    assert f"All 18 steps: ε ≤ {rounded_up(result.guarantee.epsilon)} " in written
    assert "one passage of 32 tokens" in written
    kept = json.loads((folder / "adapter_config.json").read_text())
    assert kept["r"] == setting.rank
    assert sorted(file.name for file in tmp_path.iterdir()) == ["adapters", "report.md"]


def test_the_words_of_the_command_line(monkeypatch):
    line = ["lora.py", "--quick", "--epochs", "3", "--report", "here.md", "--model", "some/model"]
    monkeypatch.setattr(sys, "argv", line)
    setting, page, folder = example.asked()
    assert setting == replace(example.QUICK, epochs=3, model="some/model")
    assert (page, folder) == (Path("here.md"), None)
