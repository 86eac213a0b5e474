"""What a guarantee costs in error beside DP-SGD: one line under an answer.

In: a strategy, a scheme, a guarantee.  Out: both errors at the same (epsilon, delta).
Rounding: DP-SGD's noise is certified like any other; in print errors go up.

DP-SGD is independent noise under Poisson sampling at the same rate.  Its noise takes a second at
thousands of steps, for its losses are independent and compose exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mmcc import utility
from mmcc._methods import MMCC, TIGHT
from mmcc.accounting import _questions as questions
from mmcc.accounting._guarantee import Guarantee
from mmcc.design._comparison import BASELINE
from mmcc.errors import MmccError
from mmcc.sampling import Poisson, Scheme
from mmcc.strategies._base import Strategy
from mmcc.strategies._toeplitz import identity

MOST_STEPS = 20_000
"""Beyond, the line would take longer than many an answer."""
LARGEST_EPSILON = 50.0
DIGITS = 4


@dataclass(frozen=True, slots=True)
class Beside:
    """Errors of prefix sums, in clip norms, at one certified guarantee; in print one line."""

    error: float
    baseline: float
    """Of DP-SGD."""
    sigma: float
    """Of DP-SGD: certified."""

    @property
    def saving(self) -> float:
        """By which part the error is below DP-SGD's; negative where it is above."""
        return 1 - self.error / self.baseline

    @property
    def worse(self) -> bool:
        """Whether DP-SGD would have less error."""
        return self.error > self.baseline

    def __str__(self) -> str:
        share = 100 * abs(self.saving)
        told, other = f"RMSE {_up(self.error)}, ", f"{BASELINE}'s {_up(self.baseline)}"
        if self.worse:
            return f"{told}{math.ceil(share)} % more than {other}: ask mmcc recommend"
        return f"{told}{math.floor(share)} % less than {other}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "rmse": self.error,
            "rmse_dp_sgd": self.baseline,
            "sigma_dp_sgd": self.sigma,
            "saving": self.saving,
        }


def beside_dp_sgd(strategy: Strategy, scheme: Scheme, found: Guarantee) -> Beside | None:
    """Both errors at the guarantee found; None where they are not known or cannot be compared."""
    steps = strategy.steps
    comparable = (
        steps <= MOST_STEPS
        and found.group_size == 1
        and 0 < found.epsilon <= LARGEST_EPSILON
        and found.sigma > 0
        and not found.setting
    )
    if not comparable:
        return None
    try:
        rate = scheme.rate(steps)
        sampled = Poisson(rate)
        itself = scheme == sampled and not strategy.correlated
        if itself or sampled.chance(steps) <= found.delta:
            return None
        method = MMCC if rate < 1 else TIGHT
        sigma = questions.sigma(
            identity(steps), sampled, epsilon=found.epsilon, delta=found.delta, method=method
        ).sigma
        return Beside(
            utility.rmse(strategy, found.sigma),
            utility.rmse(identity(steps), sigma),
            sigma,
        )
    except MmccError:  # no error, or no rate: the answer itself stands
        return None


def _up(error: float) -> str:
    """A few digits, not below the error."""
    unit = 10.0 ** (math.floor(math.log10(error)) - DIGITS + 1)
    return f"{math.ceil(error / unit - 1e-9) * unit:.{DIGITS}g}"
