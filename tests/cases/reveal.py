"""The reveal bound, asked with a scheme."""

from __future__ import annotations

from mmcc.accounting import Answer, Problem
from mmcc.accounting._bounds.reveal import Reveal
from mmcc.sampling import Poisson, Scheme
from mmcc.strategies import Strategy


def applies(strategy: Strategy) -> bool:
    return Reveal().refusal(Problem(strategy, Poisson(0.5), 1.0)) is None


def bound_epsilon(strategy: Strategy, scheme: Scheme, sigma: float, delta: float) -> Answer:
    return Reveal().epsilon(Problem(strategy, scheme, sigma), delta)


def bound_delta(strategy: Strategy, scheme: Scheme, sigma: float, epsilon: float) -> Answer:
    return Reveal().delta(Problem(strategy, scheme, sigma), epsilon)
