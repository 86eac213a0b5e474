"""Claim: a model is trained on its examples' own clipped gradients, or refused by name.

What a step releases is compared with plain autograd, one example at a time.  There is no third way:
neither another gradient nor a traceback from inside.
"""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from cases.zoo.case import batch_of, seeded  # noqa: E402
from cases.zoo.models import CASES  # noqa: E402
from cases.zoo.runs import check_refusal, private_steps  # noqa: E402
from oracles.clipping import alone, together  # noqa: E402

from mmcc import MmccError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # what models and Opacus say is their own

CLOSE = 1e-5
"""Relative to the gradient of all parameters, in single precision."""


def runs():
    """Every model in one of the modes in turn; the other modes are slow."""
    for i, case in enumerate(CASES):
        for j, mode in enumerate(case.modes):
            now = j == i % len(case.modes)
            yield pytest.param(case, mode, marks=() if now else pytest.mark.slow)


def have(case) -> None:
    for package in case.needs:
        pytest.importorskip(package)


@pytest.mark.parametrize(("case", "mode"), list(runs()), ids=str)
def test_the_gradient_is_right_or_the_model_is_refused(case, mode):
    check(case, mode, grad_sample_mode=mode)


def check(case, mode, **options) -> None:
    have(case)
    refused = False
    try:
        for step in private_steps(case, **options):
            assert step.error <= CLOSE
    except MmccError as refusal:
        check_refusal(str(refusal), case.build())
        refused = True
    assert refused is case.is_refused(mode)


def ghost_runs():
    """Every small model under one of the laws in turn; all others are slow."""
    laws = ("ghost", "per-layer", "automatic")
    for i, case in enumerate(CASES):
        for j, law in enumerate(laws):
            now = j == i % len(laws) and (not case.needs or case.name in ("gpt2", "lora on llama"))
            yield pytest.param(case, law, marks=() if now else pytest.mark.slow)


@pytest.mark.parametrize(("case", "clipping"), list(ghost_runs()), ids=str)
def test_the_gradient_is_right_without_gradients_of_examples(case, clipping):
    check(case, "ghost", clipping=clipping)


@pytest.mark.parametrize("clipping", ["per-layer", "automatic"])
@pytest.mark.parametrize("name", ["layer norm", "conv3d", "tied embeddings", "raw parameter"])
def test_the_gradient_is_right_from_gradients_of_examples(name, clipping):
    """The same laws by rows, which are there all the same."""
    (case,) = (case for case in CASES if case.name == name)
    check(case, "hooks", clipping=clipping, grad_sample_mode="hooks")


@pytest.mark.parametrize("case", [case for case in CASES if not case.random], ids=str)
def test_only_the_examples_that_should_meet(case):
    """Of the zoo itself: an example's gradient is the same alone and among others."""
    have(case)
    module, batch = seeded(case.build, 5), batch_of(case.data())
    rows = torch.stack(alone(case.losses, module, batch))
    among = torch.stack(together(case.losses, module, batch, 0))
    assert ((rows - among).norm() <= CLOSE * rows.norm()) is not case.meet


@pytest.mark.parametrize("case", CASES, ids=str)
def test_some_examples_are_clipped_and_some_are_not(case):
    """Of the zoo itself: else the oracle would not see whose gradients are whose."""
    have(case)
    rows = together(case.losses, seeded(case.build, 5), batch_of(case.data()), 0)
    norms = torch.stack(rows).norm(dim=1)
    assert norms.min() < 0.98 * norms.median() < 0.96 * norms.max()
