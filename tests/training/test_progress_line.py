"""Claim: a run says where it is, and what it says of epsilon is never too small."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import STEPS, backward, private  # noqa: E402
from cases.samples import first  # noqa: E402

import mmcc  # noqa: E402
from mmcc import strategies  # noqa: E402
from mmcc.accounting._guarantee import VERIFIED  # noqa: E402
from mmcc.sampling import BallsInBins, CyclicPoisson, Poisson, Shuffle  # noqa: E402
from mmcc.training import ProgressLine  # noqa: E402
from mmcc.training._mechanism import spent_by  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

SIX = strategies.toeplitz([1.0, 0.5], 6)
TWELVE = strategies.toeplitz([1.0, 0.5], 12)


def trained(run, steps, line=None):
    module, optimizer, loader = run
    for batch in loader:
        if optimizer.position >= steps:
            break
        optimizer.zero_grad()
        backward(module, batch)
        optimizer.step()
        if line is not None:
            line(optimizer.position / 10)


@pytest.mark.parametrize(
    ("strategy", "scheme", "steps"),
    [
        (TWELVE, CyclicPoisson(0.5, 2), 5),
        (strategies.identity(12), Poisson(0.3), 1),
        (strategies.binary_tree(12), Poisson(0.3), 7),
        (strategies.identity(12), BallsInBins(4), 8),
    ],
    ids=repr,
)
def test_spent_is_what_a_run_that_was_declared_so_costs(strategy, scheme, steps):
    run = private(strategy=strategy, sampling=scheme, sigma=2.0)
    trained(run, steps)
    _, shorter, _ = private(strategy=strategy, sampling=scheme, sigma=2.0, stop_after=steps)
    assert run[1].spent().epsilon == shorter.guarantee.epsilon
    assert run[1].spent().epsilon < run[1].guarantee.epsilon
    assert run[1].spent().delta == run[1].guarantee.delta


def test_before_the_first_step_nothing_and_at_the_end_everything_is_spent():
    run = private(strategy=TWELVE, sampling=CyclicPoisson(0.5, 2))
    optimizer = run[1]
    assert optimizer.spent().epsilon == 0
    trained(run, 12)
    assert optimizer.finished
    assert optimizer.spent() == optimizer.guarantee


def test_an_epoch_that_was_begun_counts_whole():
    _, optimizer, _ = private(strategy=strategies.identity(12), sampling=BallsInBins(4))
    mechanism, whole = optimizer.mechanism, optimizer.guarantee
    found = [spent_by(mechanism, whole, steps).epsilon for steps in range(13)]
    assert found[1:5] == [found[4]] * 4
    assert found[5:9] == [found[8]] * 4
    assert found[9:] == [whole.epsilon] * 4
    assert 0 == found[0] < found[4] < found[8] < whole.epsilon


def test_a_single_pass_is_never_spent_in_part():
    _, optimizer, _ = private(sampling=Shuffle())
    assert spent_by(optimizer.mechanism, optimizer.guarantee, 1) == optimizer.guarantee


def test_what_was_verified_is_not_verified_again():
    """The start of such a run is certified: nothing was simulated for it."""
    _, optimizer, _ = private(strategy=TWELVE, sampling=CyclicPoisson(0.5, 2))
    whole = replace(optimizer.guarantee, method="verify", kind=VERIFIED, failure=1e-9)
    found = spent_by(optimizer.mechanism, whole, 4)
    assert found.kind == "certified"
    exact = mmcc.epsilon(TWELVE.prefix(4), CyclicPoisson(0.5, 2), sigma=1.0, delta=1e-5)
    assert found.epsilon == exact.epsilon
    tiny = replace(whole, epsilon=1e-9)
    assert spent_by(optimizer.mechanism, tiny, 4) == tiny


@cache
def cost(steps):
    """Of so many steps of the run below, declared in advance."""
    shorter = SIX.prefix(steps)
    return mmcc.epsilon(shorter, CyclicPoisson(0.5, 2), sigma=1.0, delta=1e-5).epsilon


@pytest.mark.parametrize("parts", first([100, 4, 1], 2))
def test_what_a_step_is_told_to_have_cost_is_an_upper_bound(parts):
    run = private(strategy=SIX, sampling=CyclicPoisson(0.5, 2))
    optimizer, facts = run[1], []
    with ProgressLine(optimizer, report=facts.append, parts=parts) as line:
        trained(run, 6, line)
    assert [told["step"] for told in facts] == list(range(1, 7))
    assert [told["loss"] for told in facts] == [step / 10 for step in range(1, 7)]
    assert {told["epsilon"] for told in facts} == {optimizer.guarantee.epsilon}
    for told in facts:
        exact = cost(told["step"])
        assert exact <= told["epsilon_if_ended_here"] <= optimizer.guarantee.epsilon
        if parts == 100:
            assert told["epsilon_if_ended_here"] == exact
    assert len({told["epsilon_if_ended_here"] for told in facts}) == min(parts, 6)


def test_ten_lines_where_there_is_no_terminal(capsys):
    run = private(strategy=strategies.identity(40), sampling=Poisson(0.3))
    with ProgressLine(run[1], parts=2) as line:
        trained(run, 40, line)
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("mmcc: step 4 of 40, loss 0.4, epsilon ")
    assert " of the whole run at delta 1e-05, at most " in lines[0]
    assert lines[0].endswith(" had it been declared to end here")


def test_a_bar_where_there_is_one(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run = private(strategy=TWELVE, sampling=CyclicPoisson(0.5, 2))
    with ProgressLine(run[1], parts=0) as line:
        trained(run, 12, line)
    said = capsys.readouterr()
    assert said.out == ""
    assert "step 12 of 12, loss 1.2" in " ".join(said.err.split())
    assert "had it been declared" not in said.err


def test_parts_of_a_batch_are_one_step_and_no_loss_is_no_loss(capsys):
    run = private(sampling=Poisson(1.0), physical_batch_size=10)
    facts = []
    with ProgressLine(run[1], report=facts.append, parts=0) as line:
        for batch in run[2]:
            backward(run[0], batch)
            run[1].step()
            line(torch.tensor(torch.nan) if run[1].position == 1 else None)
    assert [told["step"] for told in facts] == list(range(1, STEPS + 1))
    assert all("loss" not in told for told in facts[1:])
    assert "loss" not in capsys.readouterr().err


def test_hooks_of_torch_see_every_step_too():
    """What a trainer or a logger registers at an optimizer is called after each release."""
    run = private()
    seen = []
    run[1].register_step_post_hook(lambda optimizer, *_: seen.append(optimizer.position))
    trained(run, STEPS)
    assert seen == list(range(1, STEPS + 1))
