"""From epochs and a batch size to steps and a rate: a mechanism for an ordinary training script.

In: the number of examples, of examples in a batch and of epochs, and names of a strategy and a
scheme, or functions that make them.  Out: `Plan`.
Rounding: an epoch has as many batches as one of an ordinary loader, a whole number; the expected
batch size is the number of examples divided by it: at most `batch_size`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from mmcc._calls import looks_like_call
from mmcc.design._recommend import recommend
from mmcc.errors import ParameterError, SamplingError, StrategyError, shown
from mmcc.sampling import Scheme
from mmcc.sampling._families_at_rate import family, run_length
from mmcc.sampling._registry import from_call
from mmcc.sampling._scheme import checked_scheme
from mmcc.strategies import Strategy
from mmcc.strategies._base import checked_strategy
from mmcc.strategies._words import from_text

if TYPE_CHECKING:
    from mmcc.accounting._parallel import Progress

AUTO = "auto"
"""The name under which `mmcc.recommend` chooses."""


@dataclass(frozen=True)
class Plan:
    """A strategy and a scheme for a number of epochs."""

    strategy: Strategy
    sampling: Scheme
    examples: int
    batch_size: int
    """As given, not the expected one."""
    epochs: float
    steps_per_epoch: int

    @property
    def steps(self) -> int:
        """The number of steps in all epochs."""
        return self.strategy.steps

    @property
    def expected_batch_size(self) -> float:
        """The mean number of participants in a step."""
        return self.sampling.expected_batch(self.steps, self.examples)

    @property
    def sizes(self) -> str:
        """The length of the run and the size of its batches, in words."""
        return (
            f"{self.steps} steps ({self.epochs:g} epochs of {self.steps_per_epoch}), "
            f"{self.expected_batch_size:.6g} of {self.examples} examples expected in a batch"
        )

    def __str__(self) -> str:
        return f"{self.sizes}; {self.strategy!r}, {self.sampling!r}"


def plan(
    strategy: Strategy | str | Callable[[int], Strategy],
    sampling: Scheme | str | Callable[[float], Scheme],
    *,
    examples: int,
    batch_size: int,
    epochs: float,
    epsilon: float | None = None,
    delta: float | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The mechanism for so many epochs over so many examples in batches of about this size.

    An epoch has ceil(examples / batch_size) steps, as with a DataLoader, and the rate is the
    inverse of that.  Names are those of `mmcc compare`: strategies such as `identity` (DP-SGD),
    `banded-toeplitz:8`, `blt:2`, and `tuned-blt`, which needs the target (epsilon, delta); schemes
    such as `poisson`, `cyclic-poisson:8`, `balls-in-bins`, `random-allocation`.  The strategy
    `auto` is what `mmcc.recommend` finds for the target and the scheme; with the scheme `auto` it
    chooses that too.
    """
    steps, length = run_length(examples, batch_size, epochs)
    if isinstance(sampling, str) and sampling == AUTO and strategy != AUTO:
        raise ParameterError(
            f"sampling={AUTO!r} is chosen together with the strategy: give strategy={AUTO!r} too, "
            "or a scheme."
        )
    if isinstance(strategy, str) and strategy == AUTO:
        schemes = None if sampling == AUTO else _scheme(sampling, 1 / length, steps)
        target = _target(strategy, epsilon, delta)
        chosen = recommend(
            examples=examples,
            batch_size=batch_size,
            epochs=epochs,
            epsilon=target["epsilon"],
            delta=target["delta"],
            schemes=schemes,
            progress=progress,
        )
        return Plan(chosen.strategy, chosen.sampling, examples, batch_size, epochs, length)
    scheme = _scheme(sampling, 1 / length, steps)
    made = _strategy(strategy, steps)
    if hasattr(made, "tune"):
        made = made.tune(scheme, **_target(strategy, epsilon, delta), progress=progress)
    found = checked_strategy(made)
    if found.steps != steps:
        raise StrategyError(
            f"{found!r} has {found.steps} steps, but {epochs:g} epochs of {length} batches are "
            f"{steps}. Leave out epochs, or give the strategy's name, or a function of the steps."
        )
    scheme.check(steps)
    return Plan(found, scheme, examples, batch_size, epochs, length)


class SearchTarget(TypedDict):
    """A target, as searches take it."""

    epsilon: float
    delta: float


def _target(strategy: object, epsilon: float | None, delta: float | None) -> SearchTarget:
    """The target that a strategy is searched for."""
    if epsilon is None or delta is None:
        raise ParameterError(
            f"{strategy!r} is searched for a target: give epsilon and delta, or another strategy."
        )
    return {"epsilon": epsilon, "delta": delta}


def resolve(
    strategy: Strategy | str | Callable[[int], Strategy],
    sampling: Scheme | str | Callable[[float], Scheme],
    data: Any,
    epochs: float | None,
    batch_size: int | None,
    *,
    target: tuple[float | None, float],
    progress: Progress | None,
) -> tuple[Strategy, Scheme, Plan | None]:
    """Strategy and scheme of a run; also the plan behind them, where epochs were given."""
    if epochs is not None:
        size = getattr(data, "batch_size", None) if batch_size is None else batch_size
        if size is None:
            raise ParameterError(
                "epochs need a batch size: pass a DataLoader that has one, or batch_size."
            )
        examples = len(getattr(data, "dataset", data))
        epsilon, delta = target
        made = plan(
            strategy,
            sampling,
            examples=examples,
            batch_size=size,
            epochs=epochs,
            epsilon=epsilon,
            delta=delta,
            progress=progress,
        )
        return made.strategy, made.sampling, made
    for given, name in ((strategy, "strategy"), (sampling, "sampling")):
        if isinstance(given, str) or (
            callable(given) and not isinstance(given, (Strategy, Scheme))
        ):
            raise ParameterError(
                f"{name}={shown(given)} does not say how long the run is: give epochs and a batch "
                "size."
            )
    if batch_size is not None:
        raise ParameterError(
            "batch_size belongs to epochs: without them the scheme alone determines how large "
            "batches are. Leave it out, or use physical_batch_size to bound memory."
        )
    return checked_strategy(strategy), checked_scheme(sampling), None


def _strategy(given: Strategy | str | Callable[[int], Strategy], steps: int) -> Any:
    if isinstance(given, str):
        return from_text(given, steps)
    return given if isinstance(given, Strategy) or not callable(given) else given(steps)


def _scheme(given: Scheme | str | Callable[[float], Scheme], rate: float, steps: int) -> Scheme:
    if not isinstance(given, str):
        made = given if isinstance(given, Scheme) or not callable(given) else given(rate)
        return checked_scheme(made)
    if looks_like_call(given):
        return from_call(given)
    schemes = family(given, rate, steps).schemes
    if len(schemes) != 1:
        raise SamplingError(
            f"{shown(given)} stands for {len(schemes)} schemes at the rate {rate:g}, which differ "
            f"in their separation. Give one of them, such as {given}:{schemes[0].stride(steps)}."
        )
    return schemes[0]
