"""Claim: without torch everything but training works, and training says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "opacus"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def printed(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_importing_does_not_import_torch():
    look = "print({'torch', 'opacus'} & set(sys.modules))"
    code = f"import sys\nimport mmcc\n{look}\nimport mmcc.training\n{look}"
    assert printed(code).splitlines() == ["set()", "set()"]


USES = (
    "mmcc.training.make_private(None, None, None)",
    "from mmcc.training import make_private",
    "from mmcc.training import load_checkpoint",
    "from mmcc.training import BatchSampler",
)


def test_training_says_what_to_install():
    code = f"""{BLOCKED}
import mmcc.training
for use in {USES}:
    try:
        exec(use)
    except mmcc.MmccError as problem:
        print(type(problem).__name__, problem)
"""
    said = printed(code).splitlines()
    assert len(said) == len(USES)
    for text in said:
        assert text.startswith("MissingPackageError mmcc.training.")
        assert "needs " in text
        assert text.endswith("which is not installed: pip install 'mmcc[train]'.")


def test_noise_and_participants_need_no_torch():
    code = f"""{BLOCKED}
from mmcc import sampling, strategies
from mmcc.training import NoiseStream, Participants
noise = list(NoiseStream(strategies.binary_tree(4), 1.0, (3,), seed=0))
who = Participants(sampling.Poisson(0.5), 4, 10, seed=0)
print(len(noise), len(who.at(3)) <= 10)
"""
    assert printed(code) == "4 True"


def test_unknown_names_are_attribute_errors():
    import mmcc.training

    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        mmcc.training.nothing  # noqa: B018
    assert set(mmcc.training.__all__) <= set(dir(mmcc.training))
