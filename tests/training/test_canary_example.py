"""Claim: the example of canaries audits a trained model, and catches one that has no noise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import canary_audit as example  # noqa: E402
from cases.idx import write_images  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
SMALL = ["--examples", "100", "--canaries", "300", "--epsilon", "1"]


def test_a_run_without_noise_is_above_its_certificate(tmp_path, capsys):
    words = ["--data", str(write_images(tmp_path)), *SMALL, "--without-noise"]
    words += ["--sampling", "balls-in-bins"]
    (found,) = example.main(words)["balls-in-bins"]
    assert 0.9 < found.epsilon <= 1 < found.epsilon_lower
    assert "balls-in-bins: 0 of 1 at or below the certificate" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("scheme", list(example.RUNS))
def test_a_run_with_its_noise_is_below_its_certificate(tmp_path, scheme):
    words = ["--data", str(write_images(tmp_path)), *SMALL, "--sampling", scheme]
    found = example.main(words)[scheme][0]
    assert found.passed
    assert found.epsilon_lower <= found.epsilon


def test_missing_data_is_one_sentence_with_a_remedy(tmp_path):
    with pytest.raises(SystemExit, match="dataset-fashion-mnist"):
        example.main(["--data", str(tmp_path)])
