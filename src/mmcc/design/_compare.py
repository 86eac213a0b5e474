"""The comparison table: which strategy has the least error at equal guarantees.

In: strategies, schemes of one rate, targets.  Out: a `Comparison`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TypeVar

from numpy.typing import ArrayLike

from mmcc._methods import TIGHT
from mmcc._progress import as_detail, so_far
from mmcc.accounting._parallel import Progress, spread
from mmcc.accounting._questions import MAX_EPSILON, MIN_DELTA, check_method
from mmcc.design._comparison import BASELINE, Comparison, Row
from mmcc.design._comparison_cells import Cell, Limits, UnitErrors, answer, errors_of
from mmcc.design._tuned_blt import TunedBlt
from mmcc.errors import MethodError, MmccError, ParameterError, StrategyError, real
from mmcc.sampling import Poisson, Scheme
from mmcc.sampling._families_at_rate import Family, common_rate, family_of
from mmcc.strategies import identity
from mmcc.strategies._base import Strategy
from mmcc.strategies._registry import CONTINUAL_COUNTING, IDENTITY, TUNED_BLT
from mmcc.strategies._workloads import Workload, workload_of

Compared = Strategy | TunedBlt
SECONDS = 300.0
"""The default time limit of one cell, in seconds."""
MOST_DENSE = 2048
"""Above this many steps, default strategies with many bands are left out: minutes per row."""
MANY_PARTS = 4
"""With fewer participations than this, tuning a BLT is slow and bands are as good."""
FEW, MANY = 16, 100
"""Most bands of the default banded strategies."""
MARGIN = 2e-3
"""What a win must exceed where DP-SGD's least noise is not known closely: its bound, which composes
exactly, was never seen to lose more than 0.11 % of sigma (in a single step)."""
T = TypeVar("T")


def compare(
    strategies: Compared | Sequence[Compared] | Mapping[str, Compared],
    samplings: Scheme | Family | Sequence[Scheme | Family | Sequence[Scheme]],
    *,
    epsilon: float | Sequence[float],
    delta: float,
    workload: ArrayLike | Workload | None = None,
    method: str = TIGHT,
    only_wins: bool = False,
    estimates: bool = False,
    seconds: float = SECONDS,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare strategies at equal (epsilon, delta, steps, rate), each with the noise that it needs.

    DP-SGD, independent noise under Poisson sampling at the same rate, is the baseline.  A list in
    `samplings` is a family, of which the scheme with the least noise is shown; several epsilons
    make a sweep.  `only_wins` determines only whether each row wins, by one evaluation at the noise
    that would tie.  `estimates` adds simulated rows where no amplification is proven, marked as
    such.  `workload` defines the errors, as in `mmcc.utility.rmse`; by default prefix sums.  A row
    that cannot be certified, or takes more than about `seconds`, states why.
    """
    named, steps = _name_all(strategies)
    asked = workload_of(workload, steps)
    families = _families(samplings)
    rate = common_rate(families, steps)
    epsilons = _epsilons(epsilon)
    delta = real("delta", delta, MIN_DELTA, 1)
    check_method(method)
    limits = Limits(method, only_wins, estimates, _seconds(seconds), asked)
    _check_callables(executor, progress)
    if rate < 1 and -math.expm1(steps * math.log1p(-rate)) <= delta:
        raise ParameterError(
            f"the chance to take part in any of {steps} steps is at most delta = {delta:g}, so no "
            "noise is needed and there is nothing to compare. Use a smaller delta."
        )
    first = [baseline_cell(steps, rate, e, delta, limits) for e in epsilons]
    baseline = tuple(row for rows in _run(first, executor, progress, BASELINE) for row in rows)
    errors = {label: known_errors(strategy, asked) for label, strategy in named.items()}
    cells = [
        cell_against(base, label, strategy, some, limits, errors[label])
        for base in baseline
        for some in families
        for label, strategy in named.items()
    ]
    rows = [row for found in _run(cells, executor, progress, "the table") for row in found]
    return Comparison(steps, rate, delta, method, baseline, tuple(rows), str(asked))


def default_words(steps: int, rate: float) -> tuple[str, ...]:
    """Words for strategies that may win at this length and rate, within minutes."""
    longest = round(min(1 / rate, float(steps)))
    bands = dict.fromkeys(b for b in (min(FEW, longest), min(MANY, longest)) if b > 1)
    banded = (f"{CONTINUAL_COUNTING.name}:{b}" for b in bands)
    dense = (CONTINUAL_COUNTING.name,) if steps <= MOST_DENSE else ()
    tuned = (TUNED_BLT.name,) if steps > 1 and steps * rate >= MANY_PARTS else ()
    return (IDENTITY.name, *dense, *banded, *tuned)


def baseline_cell(steps: int, rate: float, epsilon: float, delta: float, limits: Limits) -> Cell:
    """DP-SGD at a target, always by the tightest bound, whatever method the others use."""
    family = Family("poisson", (Poisson(rate),))
    limits = replace(limits, method=TIGHT, only_wins=False, estimates=False, seconds=math.inf)
    return Cell(BASELINE, identity(steps), family, epsilon, delta, limits)


def cell_against(
    base: Row,
    label: str,
    strategy: Compared,
    family: Family,
    limits: Limits,
    errors: UnitErrors | MmccError | None,
) -> Cell:
    """A strategy under a family of schemes, against DP-SGD at the same target."""
    if base.rmse is None or base.sigma is None:
        raise MethodError(f"DP-SGD itself cannot be calibrated at this target: {base.reason}")
    least = base.sigma_lower if base.closed and base.sigma_lower else base.sigma * (1 - MARGIN)
    return Cell(
        label,
        strategy,
        family,
        base.epsilon,
        base.delta,
        limits,
        floor=base.rmse * least / base.sigma,
        ceiling=base.rmse,
        errors=errors,
    )


def known_errors(
    strategy: Compared, workload: Workload | None = None
) -> UnitErrors | MmccError | None:
    """The errors of a strategy that does not depend on the target, or why there are none."""
    if isinstance(strategy, TunedBlt):
        return None
    try:
        return errors_of(strategy, workload)
    except MmccError as refusal:
        return refusal


def _run(
    cells: list[Cell], executor: Executor | None, progress: Progress | None, what: str
) -> Iterator[tuple[Row, ...]]:
    """All cells in order, on the executor if there is one."""
    inside = None if progress is None else as_detail(progress)
    ask = partial(answer, progress=inside) if executor is None else answer
    for done, rows in enumerate(spread(ask, cells, executor, chunk=1)):
        if progress is not None:
            progress(so_far(what, "row", len(cells)), done + 1)
        yield rows


def _name_all(
    strategies: Compared | Sequence[Compared] | Mapping[str, Compared],
) -> tuple[dict[str, Compared], int]:
    """Strategies by name, and their number of steps."""
    named: dict[str, Compared]
    if isinstance(strategies, Mapping):
        named = dict(strategies)
    else:
        several = strategies if isinstance(strategies, Sequence) else [strategies]
        named = _label_all(several)
    for strategy in named.values():
        if not isinstance(strategy, Compared):
            raise StrategyError(
                f"strategies must come from mmcc.strategies, got {type(strategy).__name__}; "
                "wrap an array with mmcc.strategies.dense."
            )
    lengths = {strategy.steps for strategy in named.values()}
    if len(lengths) != 1:
        told = ", ".join(map(str, sorted(lengths))) or "none"
        raise StrategyError(
            f"strategies must all have the same number of steps to be compared, got {told}."
        )
    return named, lengths.pop()


def _label_all(strategies: Sequence[Compared]) -> dict[str, Compared]:
    """Strategies by their repr; those with the same repr are numbered."""
    named: dict[str, Compared] = {}
    for strategy in strategies:
        label = "blt, tuned" if isinstance(strategy, TunedBlt) else repr(strategy)
        alike = sum(known == label or known.startswith(f"{label} #") for known in named)
        named[f"{label} #{alike + 1}" if alike else label] = strategy
    return named


def _families(
    samplings: Scheme | Family | Sequence[Scheme | Family | Sequence[Scheme]],
) -> list[Family]:
    given: Iterable[object] = _list(samplings)
    families = [some if isinstance(some, Family) else family_of(some) for some in given]
    if not families:
        raise ParameterError("samplings is an empty list; give at least one scheme.")
    return families


def _list(given: T | Sequence[T]) -> list[T]:
    """The argument as a list, whether one thing or several were given."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        return list(given)
    if hasattr(given, "__iter__") and not isinstance(given, str):
        return list(given)
    return [given]


def _epsilons(given: float | Sequence[float]) -> list[float]:
    epsilons = sorted({real("epsilon", e, 0, MAX_EPSILON) for e in _list(given)})
    if not epsilons:
        raise ParameterError("epsilon is an empty list; give at least one.")
    return epsilons


def _check_callables(executor: Executor | None, progress: Progress | None) -> None:
    if executor is not None and not hasattr(executor, "submit"):
        raise ParameterError(f"executor must have the interface of Executor, got {executor!r}.")
    if progress is not None and not callable(progress):
        raise ParameterError(f"progress must be a function of (what, done), got {progress!r}.")


def _seconds(value: float) -> float:
    return math.inf if value == math.inf else real("seconds", value, 0, 1e9)
