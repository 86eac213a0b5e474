"""Claim: each numerical piece of the reveal bound for trees is as exact as it says."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from cases.samples import sampled

from mmcc import strategies
from mmcc.accounting._bounds.reveal.trees import moments as recursion
from mmcc.accounting._bounds.reveal.trees import priors
from mmcc.accounting._bounds.reveal.trees.cuts import cuts_for
from mmcc.accounting._bounds.reveal.trees.forest import forest_of, short
from mmcc.accounting._bounds.reveal.trees.moments import moments
from mmcc.accounting._bounds.reveal.trees.tables import Parts, Power, Table, step_for, table_for
from mmcc.sampling import Rounds

DIGITS = 40


def exact_split(columns: int, count: int, j: int) -> Fraction:
    half = columns // 2
    ways = math.comb(half, j) * math.comb(half, count - j)
    return Fraction(ways, math.comb(columns, count))


@pytest.mark.parametrize(
    ("columns", "count"),
    [(2, 1), (8, 5), (64, 33), (1024, 40), (2**20, 54), (800, 400), (2**40, 7)],
)
def test_split_chances(columns, count):
    found = priors.split_law(columns, count)
    places = range(max(0, count - columns // 2), count // 2 + 1)
    assert len(places) == found.size
    for j, value in zip(places, found, strict=True):
        exact = exact_split(columns, count, j)
        assert abs(Fraction(float(value)) / exact - 1) <= priors.split_error(count)


@pytest.mark.parametrize(
    ("columns", "p", "most"),
    [(1, 0.3, 1), (64, 0.5, 64), (2**20, 2e-5, 60), (2**40, 1e-12, 12), (400, 0.9, 390)],
)
def test_binomial_chances_and_tails(columns, p, most):
    found = priors.count_law(columns, p, most)
    error = priors.count_error(columns, p, most)
    with mpmath.workdps(DIGITS):
        chance = mpmath.mpf(p)

        def exact(k: int) -> mpmath.mpf:
            return mpmath.binomial(columns, k) * chance**k * (1 - chance) ** (columns - k)

        for k in range(0, most + 1, max(1, most // 20)):
            if found[k] == 0:
                assert exact(k) < 2 * priors.SMALLEST
            else:
                assert abs(found[k] / exact(k) - 1) <= error
        if most < columns:
            beyond = mpmath.fsum(exact(k) for k in range(most + 1, min(columns, most + 200) + 1))
            assert beyond <= priors.tail(columns, p, most)


@pytest.mark.parametrize("budget", [1e-3, 1e-9, 1e-30])
@pytest.mark.parametrize(("columns", "p"), [(8, 0.5), (1024, 0.01), (2**20, 2e-5)])
def test_the_cut_is_the_smallest_that_fits(columns, p, budget):
    cut = priors.count_cut(columns, p, budget)
    assert priors.tail(columns, p, cut) <= budget
    assert cut == 0 or priors.tail(columns, p, cut - 1) > budget


def test_too_many_participations_have_no_cut():
    assert priors.count_cut(10_000, 0.5, 1e-6) is None


@pytest.mark.parametrize("value", [1.0, 1 / 3, 1e-12, 123.456, 2.0**-40])
def test_amplitudes_are_rounded_up_to_few_digits(value):
    found = short(value)
    assert value < found < value * (1 + 2.0**-22)
    assert math.frexp(found)[0] * 2**24 == int(math.frexp(found)[0] * 2**24)


CASES = [
    Parts(np.array([1.0]), np.array([0.3]), np.zeros(1), True, 0.0),
    Parts(np.array([0.5, 0.5]), np.array([1.5, 0.0]), np.array([0.7, -0.2]), True, 0.0),
    Parts(
        np.array([0.1, 0.5, 0.4]), np.array([3.2, 1.6, 0.0]), np.array([2.0, 0.3, 0.0]), True, 0.0
    ),
    Parts(np.array([0.9, 0.1]), np.array([0.0, 0.4]), np.array([0.0, 0.1]), False, 0.0),
    Parts(
        np.array([0.5, 0.3, 0.2]), np.array([0.0, 1.1, 2.2]), np.array([0.0, 1.0, 3.0]), False, 0.0
    ),
]
POWERS = [0.5, 3.0, 12.0, -1.5, -20.0]


def exact_moment(parts: Parts, s: complex) -> mpmath.mpc:
    """The sum over parts of prior e^below times the integral of phi(D - mean) f(D)^s."""
    means, priors_, below = (
        [mpmath.mpf(float(x)) for x in array]
        for array in (parts.means, parts.priors, parts.log_below)
    )
    if parts.folded:
        means = means + [-mean for mean in means]
        priors_ = [prior / 2 for prior in priors_] * 2
        below = below * 2

    def value(d: mpmath.mpf) -> mpmath.mpc:
        f = mpmath.fsum(
            c * mpmath.exp(m * d - m * m / 2) for c, m in zip(priors_, means, strict=True)
        )
        weights = (
            c * mpmath.exp(b) * mpmath.npdf(d - m)
            for c, m, b in zip(priors_, means, below, strict=True)
        )
        return mpmath.fsum(weights) * mpmath.exp(mpmath.mpc(s) * mpmath.log(f))

    far = 12 + float(parts.means.max()) * (1 + abs(s.real))
    points = mpmath.arange(-math.ceil(far), math.ceil(far), mpmath.mpf(1) / 16)
    return mpmath.fsum(value(d) for d in points) / 16  # errs by less than e^-30 here


def found_moment(table: Table, frequency: float) -> complex:
    return complex(table.joint.sum(axis=1) @ np.exp(1j * frequency * table.logs))


@pytest.mark.parametrize(("case", "real"), sampled(range(len(CASES)), POWERS, strength=1))
def test_tables_against_many_digits(case, real):
    parts, frequency = CASES[case], 9.0
    table = table_for(parts, Power(real, frequency, 30.0))
    with mpmath.workdps(30):
        whole = exact_moment(parts, complex(real, 0.0)).real
        turned = exact_moment(parts, complex(real, frequency))
        scale = mpmath.exp(mpmath.mpf(table.log_total))
        assert table.error < 1e-10
        assert abs(scale / whole - 1) <= table.error
        assert abs(scale * found_moment(table, frequency) - turned) <= table.error * whole


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("real", POWERS)
@pytest.mark.parametrize("digits", [2.5, 4.0, 8.0])
def test_the_lattice_errs_by_no_more_than_its_bound(case, real, digits):
    """Coarse lattices, whose error is there to be seen."""
    parts, frequency = CASES[case], 2.0
    coarse = table_for(parts, Power(real, frequency, digits))
    fine = table_for(parts, Power(real, frequency, 32.0))
    for om in (0.0, frequency):
        ratio = math.exp(coarse.log_total - fine.log_total)
        gap = abs(ratio * found_moment(coarse, om) - found_moment(fine, om))
        assert gap <= math.exp(-digits) + 1e-10


@pytest.mark.parametrize("real", POWERS)
def test_steps_shrink_with_frequency(real):
    steps = [step_for(CASES[2], Power(real, om, 30.0)) for om in (0.0, 1.0, 10.0, 100.0)]
    assert all(a > b for a, b in itertools.pairwise(steps))


@pytest.mark.parametrize("s", [2.0, -3.0])
def test_moments_of_two_leaves_against_their_definition(s):
    """E_P~[Lhat^s] of one tree with two leaves: four sets, two outputs."""
    p, sigma = 0.3, 1.7
    forest = forest_of(strategies.binary_tree(2), Rounds(p, 1), sigma)
    cuts = cuts_for(forest, 1e-20)
    assert cuts.counts == (1, 2)
    frequencies = np.array([0.0, 0.8, 2.5])
    found = moments(forest, cuts.counts, s, frequencies)
    a, b = forest.groves[0].amplitude, forest.amplitude(1)
    t, d = np.linspace(-14, 24, 3801), np.linspace(-16, 16, 3201)
    root = (1 - p) ** 2 + 2 * p * (1 - p) * np.exp(a * t - a**2 / 2)
    root += p**2 * np.exp(2 * a * t - 2 * a**2)
    split = np.cosh(b * d) * math.exp(-(b**2) / 2)
    for om, value in zip(frequencies, found.values, strict=True):
        power = complex(s, om)

        def integral(mean: float, points: np.ndarray, factor: np.ndarray) -> complex:
            density = np.exp(-0.5 * (points - mean) ** 2) / math.sqrt(2 * math.pi)
            return complex((density * factor).sum() * (points[1] - points[0]))

        tops = [integral(k * a, t, np.exp(power * np.log(root))) for k in (0, 1, 2)]
        one = integral(b, d, np.exp(power * np.log(split)))
        exact = (1 - p) ** 2 * tops[0] + 2 * p * (1 - p) * tops[1] * one + p**2 * tops[2]
        assert abs(value * math.exp(found.log_scale) - exact) <= 1e-9 * abs(exact)


def test_quiet_frequencies_are_left_out_within_the_error(monkeypatch):
    forest = forest_of(strategies.binary_tree(16), Rounds(0.5, 1), 8.0)
    cuts = cuts_for(forest, 1e-8)
    frequencies = np.linspace(0.0, 16.0, 33)
    found = moments(forest, cuts.counts, 2.0, frequencies)
    left_out = found.values == 0
    assert left_out.any()
    assert not left_out[:8].any()
    monkeypatch.setattr(recursion, "SILENT", 60.0)
    every = moments(forest, cuts.counts, 2.0, frequencies)
    assert every.values.all()
    assert np.abs(every.values - found.values).max() <= found.error


def test_exits_cover_every_count_that_is_not_followed():
    forest = forest_of(strategies.binary_tree(12), Rounds(0.2, 1), 2.0)
    cuts = cuts_for(forest, 1e-2)
    chances = 0.0
    for takes in itertools.product((0, 1), repeat=12):
        over = False
        for start, size in ((0, 8), (8, 4)):
            height = 0
            while 1 << height <= size:
                counts = np.reshape(takes[start : start + size], (-1, 1 << height)).sum(axis=1)
                over |= bool((counts > cuts.counts[height]).any())
                height += 1
        if over:
            chances += 0.2 ** sum(takes) * 0.8 ** (12 - sum(takes))
    assert 0 < chances <= cuts.exits
