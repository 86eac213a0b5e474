"""One-buffer BLTs tuned to a target: the two-parameter shape of the search.

In: a scheme and (epsilon, delta).  Out: a BLT.  Nothing here is a certificate: the parameters come
from a short search, and the noise must be calibrated afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from mmcc import utility
from mmcc._methods import TIGHT
from mmcc.accounting._best_bound import Budget, amplified
from mmcc.accounting._bounds import Problem
from mmcc.accounting._parallel import Progress
from mmcc.design._certified_noise import Target
from mmcc.design._rough_noise import RoughNoise
from mmcc.design._search import STARTS, Search
from mmcc.design._shapes import Shapes
from mmcc.errors import MmccError, ParameterError, whole
from mmcc.sampling import Scheme
from mmcc.sampling._participations import MAX_STEPS
from mmcc.sampling._scheme import unproven
from mmcc.strategies import Blt, identity
from mmcc.strategies._workloads import Workload, workload_of

EVALUATIONS = 24


@dataclass(frozen=True)
class TunedBlt:
    """A one-buffer BLT whose decay and scale are searched for each scheme and target."""

    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole("steps", self.steps, 1, MAX_STEPS))

    @property
    def correlated(self) -> bool:
        """True if the noise of different steps is correlated."""
        return self.steps > 1

    def tune(
        self,
        scheme: Scheme,
        epsilon: float,
        delta: float,
        method: str = TIGHT,
        progress: Progress | None = None,
        workload: ArrayLike | Workload | None = None,
    ) -> Blt:
        """Find the BLT with the least error by a deterministic simplex search.

        The error is that of prefix sums, unless a workload is given.
        """
        scheme.check(self.steps)
        if scheme.chance(self.steps) <= delta:
            raise ParameterError(
                f"the chance to take part at all, {scheme.chance(self.steps):.3g}, is no larger "
                "than delta, so no noise is needed. Use a smaller delta."
            )
        if method == TIGHT and not amplified(Problem(identity(self.steps), scheme, 1.0)):
            raise unproven(scheme)
        target = Target(epsilon, delta, method, Budget.TABLE, progress)
        asked = workload_of(workload, self.steps)
        search = Search(
            RoughNoise(scheme, target),
            lambda blt: utility.rmse(blt, 1.0, asked),
            EVALUATIONS,
            progress,
        )
        search.one_buffer(Shapes(self.steps), EVALUATIONS - len(STARTS))
        if search.best is None:
            raise MmccError(f"no BLT was found that reaches epsilon = {epsilon:g} here.")
        found = search.best[1]
        assert isinstance(found, Blt)
        return found

    tuned = tune  # the name up to 0.9
