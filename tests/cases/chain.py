"""The chain bound, asked with a scheme."""

from __future__ import annotations

from mmcc.accounting import Answer, Problem
from mmcc.accounting._bounds.chain import ChainBound
from mmcc.sampling import Poisson, Scheme
from mmcc.strategies import Strategy


def applies(strategy: Strategy) -> bool:
    return ChainBound().refusal(Problem(strategy, Poisson(0.5), 1.0)) is None


def bound_epsilon(strategy: Strategy, scheme: Scheme, sigma: float, delta: float) -> Answer:
    return ChainBound().epsilon(Problem(strategy, scheme, sigma), delta)


def bound_delta(strategy: Strategy, scheme: Scheme, sigma: float, epsilon: float) -> Answer:
    return ChainBound().delta(Problem(strategy, scheme, sigma), epsilon)
