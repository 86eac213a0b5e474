"""Claim: the example in JAX trains with jax_privacy's noise and our number, and says what it needs.

Needs the extra `jax` and Python 3.11: pip install -e '.[test-core,jax]'.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax_privacy", reason="needs pip install 'mmcc[jax]' and Python 3.11")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import jax_training as example
import numpy as np
from cases.idx import write_images

import mmcc
from mmcc.bridge import jax_privacy as bridge

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:optax")
PAGE = Path(__file__).parents[2] / "docs" / "from-jax-privacy.md"
SMALL = example.Setting(steps=40, batch=16, examples=256, epsilon=50.0, seed=1, learning_rate=1.0)


@pytest.fixture
def data(tmp_path):
    folder = write_images(tmp_path)
    return example.images(folder, "train"), example.images(folder, "t10k")


def test_it_learns_and_certifies(data):
    for name, (strategy, sampler) in example.mechanisms(SMALL).items():
        found = example.train(name, SMALL, *data)
        assert found.accuracy > 0.3  # of ten classes
        asked = {"sigma": found.guarantee.sigma, "delta": SMALL.delta}
        again = mmcc.epsilon(strategy, bridge.scheme_from(sampler), **asked)
        assert again.epsilon <= SMALL.epsilon


def test_missing_data_is_one_sentence_with_a_remedy(tmp_path, capsys):
    assert example.main(["--data", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "dataset-fashion-mnist" in said.err


def test_the_page_does_what_it_shows(capsys):
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(block, names)
    assert names["found"].epsilon <= 2.0
    assert np.isfinite(names["mean"]).all()
    assert "certified" in capsys.readouterr().out
