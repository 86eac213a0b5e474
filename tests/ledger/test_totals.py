"""Claim: a total is never below what the runs amount to, and no order of the runs changes a bit."""

from __future__ import annotations

import itertools
import math
import random
import re
from fractions import Fraction

import numpy as np
import pytest
from cases.ledgers import begin, gaussian_delta, gaussian_run, guarantee
from cases.samples import sampled
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from oracles.truth import two_row_delta

import mmcc
from mmcc import sampling, strategies
from mmcc.errors import PrecisionError
from mmcc.ledger import History, Ledger, LedgerError, Planned, planned
from mmcc.ledger import _delta_curves as curves
from mmcc.ledger._delta_curves import losses_above
from mmcc.ledger._entries import Begin, DeclaredPlan, DeltaDot
from mmcc.ledger._total import LOSSES, PAIRS, plan_part, sum_up, total

POSITIVE = st.floats(0, 1e100, allow_subnormal=True)


# ---------------------------------------------------------------------------------------- sums


@given(st.lists(POSITIVE, max_size=40))
def test_a_sum_is_the_smallest_float_not_below_the_exact_sum(values):
    exact = sum(map(Fraction, values), Fraction(0))
    found = sum_up(values)
    assert Fraction(found) >= exact
    assert not values or found == 0 or Fraction(math.nextafter(found, 0.0)) < exact


def history_of(plan: list[Planned], runs: list[Begin]) -> History:
    history = History()
    if plan:
        history.admit(DeclaredPlan("d", tuple(plan)))
    for run in runs:
        history.admit(run)
    return history


def test_no_order_of_runs_changes_a_bit_of_the_sum():
    pairs = [(0.1, 1e-7), (0.2, 1e-20), (0.7, 3e-6), (1e-17, 0.0), (2 / 3, 1 / 3e5), (1e3, 0.1)]
    runs = [Begin(str(i), "d", "m", 4, "f", guarantee(*pair)) for i, pair in enumerate(pairs)]
    found = {
        (answer.epsilon, answer.delta)
        for order in itertools.permutations(runs)
        for answer in [total(history_of([], list(order)), "d")]
    }
    assert len(found) == 1
    ((epsilon, delta),) = found
    assert Fraction(epsilon) >= sum(Fraction(e) for e, _ in pairs)
    assert Fraction(delta) >= sum(Fraction(d) for _, d in pairs)


def test_no_order_changes_a_bit_of_a_plan_with_runs_outside_it():
    plan = [gaussian_run(r, 1e-6, str(r)) for r in (0.3, 0.71, 0.45, 0.13, 0.57, 0.3)]
    begun = [
        Begin(str(i), "d", "m", 4, run.fingerprint, run.guarantee)
        for i, run in enumerate([*plan, *plan[:2]])
    ]
    generator = random.Random(1)
    found = set()
    for _ in range(30):
        orders = (generator.sample(part, len(part)) for part in (plan, begun))
        answer = total(history_of(*orders), "d")
        assert (answer.outside, answer.plan.begun, answer.plan.method) == (2, 6, LOSSES)
        found.add((answer.epsilon, answer.delta))
    assert len(found) == 1


# -------------------------------------------------------------------- the proposition, by force


def transcripts():
    """Two rounds of randomised response that leaks outright with probability delta.

    The second run's pair depends on what the first one showed.  Yields (P, Q, pairs of the runs).
    """

    def run(epsilon: float, delta: float) -> list[tuple[float, float]]:
        high = math.exp(epsilon) / (1 + math.exp(epsilon)) * (1 - delta)
        low = 1 / (1 + math.exp(epsilon)) * (1 - delta)
        return [(delta, 0.0), (high, low), (low, high), (0.0, delta)]

    first = (0.4, 0.02)
    later = [(0.1, 0.3), (1.5, 0.001), (0.0, 0.0), (0.7, 0.1)]
    for (p, q), second in zip(run(*first), later, strict=True):
        for p_2, q_2 in run(*second):
            yield p * p_2, q * q_2, (first, second)


@pytest.mark.parametrize("epsilon", [0.4, 0.5, 1.0, 1.1, 1.9, 2.5])
@pytest.mark.parametrize("delta", [0.02, 0.021, 0.12, 0.32])
def test_pairs_add_up_when_the_second_is_chosen_after_the_first(epsilon, delta):
    """P(A) <= e^epsilon Q(A) + delta for every A on which the ledger's total is at most that."""
    inside = [
        (p, q)
        for p, q, pairs in transcripts()
        if sum_up(e for e, _ in pairs) <= epsilon and sum_up(d for _, d in pairs) <= delta
    ]
    for sides in (inside, [(q, p) for p, q in inside]):
        worst = math.fsum(max(p - math.exp(epsilon) * q, 0.0) for p, q in sides)
        assert worst <= delta


# --------------------------------------------------------------------------------------- curves


@pytest.mark.parametrize("ratio", [0.05, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("spacing", [2.0**-4, 2.0**-7])
def test_the_losses_made_from_dots_lie_above_the_curve_everywhere(ratio, spacing):
    top = min(10 * ratio + ratio**2, 300.0)
    epsilons = np.linspace(0, top, 40)  # not multiples of the spacing
    mp.dps = 40

    def exact(epsilon: float) -> mp.mpf:
        a, b = (
            epsilon / mp.mpf(ratio) - mp.mpf(ratio) / 2,
            epsilon / mp.mpf(ratio) + mp.mpf(ratio) / 2,
        )
        return mp.ncdf(-a) - mp.exp(epsilon) * mp.ncdf(-b)

    def above(epsilon: float) -> float:
        value = exact(mp.mpf(float(epsilon)))
        found = float(value)
        return found if found >= value else math.nextafter(found, 1.0)

    dots = [DeltaDot(e, above(e), above(e)) for e in epsilons]
    for remove in (True, False):
        made = losses_above(dots, spacing, remove)
        finite = [
            (mp.mpf(float(loss)), mp.mpf(float(m)))
            for loss, m in zip(made.losses, made.masses, strict=True)
            if m
        ]
        for epsilon in np.linspace(-1.3 * top, 1.3 * top, 41):
            at = mp.mpf(float(epsilon))
            reached = mp.mpf(made.infinite) + mp.fsum(
                m * (1 - mp.exp(at - loss)) for loss, m in finite if loss > at
            )
            assert reached >= exact(at)


def test_both_adjacencies_of_an_uneven_pair_are_covered():
    """P on three outcomes against Q: the curves of (P, Q) and (Q, P) differ."""
    p, q = np.array([0.70, 0.25, 0.05]), np.array([0.15, 0.80, 0.05])

    def exact(epsilon: float, remove: bool) -> float:
        a, b = (p, q) if remove else (q, p)
        return float(np.maximum(a - math.exp(epsilon) * b, 0).sum())

    dots = [
        DeltaDot(e, exact(e, True) + 1e-15, exact(e, False) + 1e-15) for e in np.arange(0, 33) / 16
    ]
    for remove in (True, False):
        made = losses_above(dots, 2.0**-4, remove)
        for epsilon in np.linspace(-3, 3, 61):
            gap = np.maximum(-np.expm1(epsilon - made.losses), 0.0)
            reached = made.infinite + float(made.masses @ gap)
            assert exact(epsilon, remove) <= reached <= exact(epsilon, remove) + 0.01


@pytest.mark.parametrize("count", [2, 5, 20])
def test_composed_gaussians_lie_just_above_one_gaussian(count):
    ratio, delta = 0.3, count * 1e-6
    plan = DeclaredPlan("d", (gaussian_run(ratio, 1e-6),) * count)
    found = plan_part(plan, 0, None)
    assert found.method == LOSSES
    assert found.delta >= delta
    whole = ratio * math.sqrt(count)
    assert gaussian_delta(whole, found.epsilon) <= found.delta
    assert gaussian_delta(whole, 0.99 * found.epsilon) > found.delta


def test_different_mechanisms_compose():
    ratios = (0.2, 0.3, 0.3, 0.6)
    found = plan_part(DeclaredPlan("d", tuple(gaussian_run(r, 1e-6) for r in ratios)), 0, 1e-5)
    whole = math.hypot(*ratios)
    assert (
        gaussian_delta(whole, found.epsilon) <= 1e-5 < gaussian_delta(whole, 0.99 * found.epsilon)
    )


def test_pairs_alone_compose_as_randomised_response_does():
    """k pairs (epsilon, delta): losses +-epsilon and 1 - (1 - delta)^k at infinity, exactly."""
    epsilon, delta, count, at = 0.125, 1e-7, 30, 1e-5
    run = Planned("m", "f", guarantee(epsilon, delta))
    found = plan_part(DeclaredPlan("d", (run,) * count), 0, at)
    assert found.method == LOSSES
    high = 1 / (1 + math.exp(-epsilon))

    def exact(total_epsilon: float) -> float:
        kept = (1 - delta) ** count
        terms = [
            math.comb(count, k)
            * high**k
            * (1 - high) ** (count - k)
            * max(-math.expm1(total_epsilon - (2 * k - count) * epsilon), 0.0)
            for k in range(count + 1)
        ]
        return 1 - kept + kept * math.fsum(terms)

    assert exact(found.epsilon) <= at < exact(0.995 * found.epsilon)
    assert found.epsilon < 0.9 * count * epsilon


def test_a_planned_mechanism_composes_to_just_above_the_accounting_of_all_its_steps():
    """Twice 8 rounds of subsampled Gaussians are 16 rounds of them."""
    once, twice = strategies.identity(8), strategies.identity(16)
    scheme = sampling.CyclicPoisson(0.5, 1)
    run = planned(once, scheme, sigma=4.0, delta=1e-6, fingerprint="f", method="mmcc")
    assert (
        run.guarantee.epsilon <= 1.001 * mmcc.epsilon(once, scheme, sigma=4.0, delta=1e-6).epsilon
    )
    found = plan_part(DeclaredPlan("d", (run, run)), 0, 2e-6)
    lower = mmcc.bracket(twice, sampling.Poisson(0.5), sigma=4.0, delta=2e-6).lower
    assert lower <= found.epsilon <= 1.02 * lower
    assert found.epsilon < 0.8 * 2 * run.guarantee.epsilon


def test_dots_are_for_every_group_of_examples():
    """Both sides of a dot, though the worst group for one need not be so for the other."""
    matrix = np.zeros((2, 5))
    matrix[0, [0, 2, 4]], matrix[1, [1, 3]] = 0.5, 3.0
    strategy, scheme = strategies.dense(matrix, adaptive=False), sampling.CyclicPoisson(0.5, 2)
    run = planned(strategy, scheme, sigma=1.0, delta=1e-2, fingerprint="f", method="mmcc")
    for dot in run.curve[::10]:
        for group in (0, 1):
            columns = matrix[:, group::2]
            assert two_row_delta(columns, 0.5, 1.0, dot.epsilon, "remove") <= dot.remove
            assert two_row_delta(columns, 0.5, 1.0, dot.epsilon, "add") <= dot.add
    assert any(dot.add < dot.remove for dot in run.curve)


@pytest.mark.parametrize(
    ("delta", "method"), sampled([1e-9, 1e-2], ["tight", "unamplified"], strength=1)
)
def test_every_dot_holds_under_what_the_guarantee_assumes(tmp_path, monkeypatch, method, delta):
    """Amplification under Shuffle is for the 0-1 setting; without one a run is a Gaussian."""
    monkeypatch.setattr(curves, "DOTS", 40 if method == "unamplified" else 6)  # seconds are saved
    matrix = strategies.continual_counting(4)
    ratio = np.linalg.norm(matrix.to_dense(), axis=0).max()
    run = planned(
        matrix, sampling.Shuffle(), sigma=1.0, delta=delta, fingerprint="f", method=method
    )
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.declare([run] * 4, data="d")
    found = ledger.total("d")
    assert found.plan.method == LOSSES
    below = gaussian_delta(2 * ratio, found.epsilon) > found.delta
    if method == "unamplified":
        assert (found.adaptive, found.settings, below) == (True, (), False)
        assert all(gaussian_delta(ratio, dot.epsilon) <= dot.remove for dot in run.curve)
    else:
        assert (found.adaptive, len(found.settings), below) == (False, 1, True)


@pytest.mark.parametrize(
    "scheme",
    [sampling.Shuffle(), sampling.Shuffle(2), sampling.MinSeparation(0.5, 2)],
)
def test_runs_without_amplification_take_their_places(tmp_path, scheme):
    """Training has method 'unamplified' under these schemes, and so may a plan."""
    matrix, what = strategies.continual_counting(4), {"sigma": 2.0, "delta": 1e-6}
    run = planned(matrix, scheme, **what, fingerprint="f", method="unamplified")
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.declare([run], data="d")
    trained = mmcc.epsilon(matrix, scheme, **what, method="unamplified")
    begin(ledger, guarantee=trained, fingerprint="f")
    found = ledger.total("d")
    assert (found.outside, found.plan.begun) == (0, 1)
    assert (found.adaptive, found.settings) == (True, ())


def test_a_delta_that_cannot_be_planned_is_named_as_it_was_given():
    mechanism = strategies.identity(2), sampling.Poisson(0.5)
    for wrong in (1e-198, 1e-250, 0.0, 1.0, math.nan):
        with pytest.raises(mmcc.MmccError, match=rf"delta .* got {wrong!r}\."):
            planned(*mechanism, sigma=1.0, delta=wrong, fingerprint="f")


# ---------------------------------------------------------------------------------------- plans


def test_a_plan_counts_in_full_and_runs_outside_it_are_added(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    run = gaussian_run(0.5, 1e-6)
    ledger.declare([run, run], data="d")
    before = ledger.total("d")
    assert (before.runs, before.outside, before.plan.begun) == ((), 0, 0)
    assert before.epsilon < 2 * run.guarantee.epsilon
    for taken in (1, 2):
        begin(ledger, guarantee=run.guarantee, fingerprint=run.fingerprint)
        assert (ledger.total("d").epsilon, ledger.total("d").plan.begun) == (before.epsilon, taken)
    begin(ledger, guarantee=run.guarantee, fingerprint=run.fingerprint)  # a third: outside
    after = ledger.total("d")
    assert (after.outside, after.plan.begun) == (1, 2)
    assert Fraction(after.epsilon) >= Fraction(before.epsilon) + Fraction(run.guarantee.epsilon)
    assert Fraction(after.delta) >= Fraction(before.delta) + Fraction(1e-6)


@pytest.mark.parametrize(
    "other",
    [
        {"fingerprint": "g"},
        {"guarantee": guarantee(0.5, 1e-9)},
        {"guarantee": guarantee(0.25, 1e-6)},
    ],
)
def test_a_run_that_is_not_the_planned_one_is_outside_the_plan(tmp_path, other):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.declare([Planned("m", "f", guarantee(0.5, 1e-6))], data="d")
    begin(ledger, **({"guarantee": guarantee(0.5, 1e-6), "fingerprint": "f"} | other))
    assert ledger.total("d").outside == 1


def test_a_plan_costs_no_more_than_the_sum_of_its_pairs():
    """Runs of which nothing but the pair is known: composing gains nothing at their deltas."""
    pairs = plan_part(DeclaredPlan("d", (Planned("m", "f", guarantee(0.5, 1e-6)),) * 3), 0, None)
    assert (pairs.method, pairs.epsilon) == (PAIRS, 1.5)
    nothing = plan_part(DeclaredPlan("d", (Planned("m", "f", guarantee(0.0, 0.0)),) * 3), 0, None)
    assert (nothing.method, nothing.epsilon, nothing.delta) == (PAIRS, 0.0, 0.0)
    huge = plan_part(DeclaredPlan("d", (Planned("m", "f", guarantee(1e5, 1e-6)),) * 2), 0, None)
    assert (huge.method, huge.epsilon) == (PAIRS, 2e5)


def test_dots_too_far_for_floats_are_left_out_and_a_run_without_privacy_is_not_composed():
    run = gaussian_run(0.5, 1e-6)
    far = Planned("m", "f", run.guarantee, (*run.curve, DeltaDot(1e5, 0.0, 0.0)))
    assert plan_part(DeclaredPlan("d", (far, far)), 0, None) == plan_part(
        DeclaredPlan("d", (run, run)), 0, None
    )
    open_book = Planned("m", "f", guarantee(0.5, 1.0))
    with pytest.raises(mmcc.MmccError, match="infinite"):
        plan_part(DeclaredPlan("d", (run, open_book)), 0, 0.5)
    assert plan_part(DeclaredPlan("d", (run, open_book)), 0, None).delta == 1.0


def test_a_smaller_delta_than_the_pairs_have_needs_the_losses():
    run = gaussian_run(0.5, 1e-6)
    small = plan_part(DeclaredPlan("d", (run, run)), 0, 1e-7)
    assert (small.method, small.delta) == (LOSSES, 1e-7)
    assert small.epsilon > plan_part(DeclaredPlan("d", (run, run)), 0, None).epsilon
    single = plan_part(DeclaredPlan("d", (run,)), 0, 1e-9)
    assert (single.method, single.delta) == (LOSSES, 1e-9)
    assert single.epsilon > run.guarantee.epsilon
    assert gaussian_delta(0.5, single.epsilon) <= 1e-9
    for wrong in (0.0, 1.0, -1.0, math.nan, "1e-6"):
        with pytest.raises(mmcc.MmccError, match="delta"):
            plan_part(DeclaredPlan("d", (run, run)), 0, wrong)


@pytest.mark.parametrize(
    ("plan", "given"),
    [
        ((Planned("m", "f", guarantee(0.5, 1e-6)),) * 2, 1e-7),
        ((gaussian_run(1.0, 1e-3),) * 3, 1e-12),
        ((gaussian_run(1.0, 1e-3), Planned("m", "f", guarantee(0.5, 1e-6))), 1e-6),
        ((gaussian_run(0.5, 1e-6),) * 2, 1e-300),
    ],
)
def test_a_delta_that_is_too_small_is_told_the_least_possible(plan, given):
    with pytest.raises(PrecisionError) as caught:
        plan_part(DeclaredPlan("d", plan), 0, given)
    said = re.match(
        rf"delta = {given:g} was given for the plan, but the least that can be certified is (.*?): "
        r".* for the sum of the plan's deltas, (.*)\.",
        str(caught.value),
    )
    least, added = map(float, said.groups())
    assert plan_part(DeclaredPlan("d", plan), 0, least).delta <= least
    assert added == pytest.approx(sum(run.guarantee.delta for run in plan), rel=1e-3)
    with pytest.raises(PrecisionError):
        plan_part(DeclaredPlan("d", plan), 0, 0.45 * least)


def test_a_delta_without_a_plan_is_refused(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    begin(ledger)
    with pytest.raises(LedgerError, match="plan"):
        ledger.total("d", delta=1e-6)


def test_a_plan_whose_scheme_certifies_no_smaller_delta_ends_there():
    """An event of a chance just below delta is in every delta under truncated Poisson sampling."""
    scheme = sampling.TruncatedPoisson(0.01, 26, 1000)
    assert 1e-8 < scheme.relaxed(4).chance < 1e-6
    asked = {"sigma": 2.0, "delta": 1e-6, "method": "mmcc", "fingerprint": "a run"}
    run = planned(strategies.identity(4), scheme, **asked)
    assert run.curve
    assert all(dot.remove >= scheme.relaxed(4).chance for dot in run.curve)
