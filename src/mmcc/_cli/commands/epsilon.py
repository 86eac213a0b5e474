"""The command `mmcc epsilon`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmcc._cli.answers import answer
from mmcc._cli.command import FLAG, QUESTION, Command, Option
from mmcc._cli.mechanism_options import (
    BOUND,
    DELTA,
    GROUP_SIZE,
    MECHANISM,
    SIGMA,
    check_bound,
)
from mmcc._cli.parsing import UsageError
from mmcc._cli.question_options import JSON, UNITS
from mmcc._methods import TIGHT
from mmcc.errors import MmccError

if TYPE_CHECKING:
    from mmcc import Guarantee
    from mmcc.accounting._parallel import Progress
    from mmcc.sampling import Scheme
    from mmcc.strategies import Strategy


def run(sigma: float, delta: float, compare: bool, **given: Any) -> None:
    if compare:
        check_bound(given["method"], given["order"])
        if given["method"] != TIGHT:
            raise UsageError(
                f"--compare applies to --method {TIGHT} only, not to {given['method']}."
            )
    answer("epsilon", given, {"sigma": sigma, "delta": delta}, by_others if compare else None)


def by_others(
    strategy: Strategy, scheme: Scheme, found: Guarantee, progress: Progress | None
) -> dict[str, float | None]:
    """Epsilon by other certified bounds, at the same sigma and delta."""
    import mmcc
    from mmcc.accounting._bounds import PLAIN, Mmcc
    from mmcc.sampling._families_at_rate import in_fixed_order

    def by(method: str, sampled: Scheme | None = scheme) -> float | None:
        if sampled is None:
            return None
        try:
            other = mmcc.epsilon(
                strategy,
                sampled,
                sigma=found.sigma,
                delta=found.delta,
                method=method,
                group_size=found.group_size,
                progress=progress,
            )
        except MmccError:  # only this row of the table is missing
            return None
        return other.epsilon

    return {
        PLAIN.name: by(PLAIN.name),
        "fixed_order": by(PLAIN.name, in_fixed_order(scheme, strategy.steps)),
        Mmcc.name: by(Mmcc.name),
        TIGHT: found.epsilon,
    }


COMMAND = Command(
    "epsilon",
    run,
    *MECHANISM,
    SIGMA,
    DELTA,
    GROUP_SIZE,
    *BOUND,
    Option(
        "--compare",
        FLAG,
        QUESTION,
        "Also print what other certified bounds give.",
    ),
    UNITS,
    JSON,
    help="Print the certified epsilon of a mechanism at a delta.",
    example="mmcc epsilon --strategy binary-tree --steps 128 --sampling poisson --prob 1/128 "
    "--sigma 14 --delta 1e-6",
)
