"""Claim: lower <= true <= upper for balls-in-bins, method by method, adjacency by adjacency.

The truth is the mixture of all bins (`oracles.enumeration`), at most 64.  It is sampled, to a
standard error of 0.2 % of delta where there are few bins, of 1 % or where that is out of reach 5 %
where there are many, and compared at four standard errors: delta at the certified upper epsilon may
not exceed the target, delta at the lower epsilon may not fall short of it.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from cases.bins import BinsCase, bins_case
from cases.samples import first
from oracles.enumeration import UnreliableError, mixture_delta
from oracles.truth import ADJACENCIES, gaussian_delta

import mmcc
from mmcc.accounting import Problem
from mmcc.accounting._bounds import PLAIN
from mmcc.accounting._bounds.cascade import Cascade
from mmcc.accounting._bounds.cascade.law import TreeBracket
from mmcc.accounting._bounds.projection.bracket import _bound_epsilon, _deficit, _solve
from mmcc.accounting._bounds.projection.lower import lower_epsilon
from mmcc.errors import PrecisionError

FEW = 10
ACCURACIES = (0.002, 0.01, 0.05)


def true_delta(case: BinsCase, epsilon: float, adjacency: str, seed: int) -> tuple[float, float]:
    """The truth in units of the target, and its standard error."""
    weights = np.full(case.bins, 1 / case.bins)
    for accuracy in ACCURACIES[int(case.bins > FEW) :]:
        with contextlib.suppress(UnreliableError):
            found = mixture_delta(
                case.components,
                weights,
                epsilon,
                adjacency,
                relative=0.9 * accuracy,
                absolute=0.9 * accuracy * case.delta,
                seed=seed,
            )
            return found.mean / case.delta, found.error / case.delta
    pytest.skip(f"no truth for {case}")


def brackets(case: BinsCase, adjacency: str) -> dict[str, tuple[float, float]]:
    """All certified pairs (lower, upper) of one adjacency."""
    delta = case.delta
    gram = case.strategy.bins_gram(case.bins, case.sigma)
    low = lower_epsilon(gram, None, delta, adjacency)
    pairs = {"projection": (low.value, _bound_epsilon(gram, None, delta, adjacency, low))}
    if adjacency == "add" and low.value > 0:
        moments = _solve(_deficit(gram, None, low, delta, low.value), delta, low.value)
        pairs["add by moments"] = (low.value, moments)
    problem = Problem(case.strategy, case.scheme, case.sigma)
    pairs["unamplified"] = (0.0, PLAIN.epsilon(problem, delta).remove)
    if problem.tree_of_positions is not None:
        try:
            cascade = TreeBracket(problem.tree_of_positions, case.sigma, delta)
            pairs["cascade"] = (
                getattr(cascade.lower_epsilon(delta), adjacency),
                getattr(cascade.bound_epsilon(delta), adjacency),
            )
        except PrecisionError:
            pass
    else:
        with contextlib.suppress(PrecisionError):
            pairs["chain of bins"] = (
                0.0,
                getattr(Cascade().epsilon(problem, delta), adjacency),
            )
    return pairs


def check_bracket(case: BinsCase, seed: int) -> None:
    pairs = {adjacency: brackets(case, adjacency) for adjacency in ADJACENCIES}
    for adjacency, known in pairs.items():
        ends = [max(pair[0] for pair in known.values()), min(pair[1] for pair in known.values())]
        assert ends[0] <= ends[1], (str(case), adjacency, known)
        # The truth falls with epsilon, so the largest lower and the smallest upper end are enough.
        if ends[0] > 0:
            mean, error = true_delta(case, ends[0], adjacency, seed)
            assert mean >= 1 - 4 * error, (str(case), adjacency, known, mean, error)
        if math.isfinite(ends[1]):
            mean, error = true_delta(case, ends[1], adjacency, seed)
            assert mean <= 1 + 4 * error, (str(case), adjacency, known, mean, error)
    found = mmcc.bracket(case.strategy, case.scheme, sigma=case.sigma, delta=case.delta)
    smallest = max(min(pair[1] for pair in known.values()) for known in pairs.values())
    largest = max(max(pair[0] for pair in known.values()) for known in pairs.values())
    assert found.upper >= smallest * (1 - 1e-9)
    assert found.lower <= largest * (1 + 1e-9)
    longest = float(np.linalg.norm(case.components, axis=1).max())
    alone = max(pairs["add"]["unamplified"][1], 1e-12)
    assert gaussian_delta(longest, 1.0, alone) <= case.delta * (1 + 1e-9)


@pytest.mark.parametrize("seed", first(range(12), 3))
def test_true_epsilon_lies_in_the_bracket(seed):
    check_bracket(bins_case(seed, most=5), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_true_epsilon_lies_in_the_bracket_of_every_random_mechanism(seed):
    check_bracket(bins_case(1000 + seed), seed)
