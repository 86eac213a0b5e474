"""Who takes part when: what every sampling scheme knows about itself.

A scheme says in which steps one example may take part, and with which probability.  It holds
public facts only; the accounting, the simulation and the training read the same object.
Rounding: chances and sensitivities are upper bounds; rates are plain floating point.

A new scheme is a subclass that says how participation sets are drawn (`draw`) and how large batches
are (`expected_batch`).  It then has estimates, the certificate without amplification, batches for
training and an audit.  What else it knows makes these tighter or faster: amplified certificates
come from the bounds, which ask for `rounds`, `positions`, `allocation` or `relaxed`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from inspect import isabstract
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.errors import MethodError, SamplingError
from mmcc.sampling._chances import Chances
from mmcc.sampling._participations import Allocation, Participations, Renewal, Rounds

if TYPE_CHECKING:
    from mmcc.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Relaxed:
    """Another scheme, to which this one is equal but for an event that does not depend on data.

    With `chance` added to its delta, every certificate for the other scheme is one for this.
    """

    scheme: Scheme
    chance: float
    """Rounded up."""
    attained: bool
    """Whether the two are the same for the worst data set: lower bounds there hold here too."""
    event: str
    """In words, with what makes it rarer."""


@dataclass(frozen=True, eq=False, slots=True)
class Law:
    """The law of one example's participations, and how examples depend on each other."""

    share: int
    """One in so many examples can be in a batch; populations are multiples of it."""
    rates: FloatArray
    """For each of these and each step: the chance to be in the batch."""
    pairs: FloatArray
    """For each of these and each two steps: the chance to be in both batches."""
    numbers: FloatArray
    """Law of the number of an example's participations."""
    independent: bool
    """Examples are independent of each other."""
    steps_independent: bool
    """Sizes of different batches are independent of each other."""
    surprise: float
    """Minus log of the largest chance of one outcome, for each example, at least."""


class Bits(Protocol):
    """Random generators of a run: the same ones whenever they are asked for."""

    def of_step(self, step: int) -> np.random.Generator:
        """For what is drawn anew in a step."""
        ...

    def of_arrangement(self, index: int) -> np.random.Generator:
        """For what is arranged for a whole epoch or run."""
        ...


class Drawing(Protocol):
    """A scheme played out over a data set."""

    def at(self, step: int) -> IntArray:
        """Sorted indices of the examples that take part in a step."""
        ...


class Scheme(ABC):
    """Who takes part when; the base of all sampling schemes, which are frozen dataclasses.

    The participations of one example must be independent of the other examples, of noise and of
    everything that was released; a scheme in which they are not says so in `setting`.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in cls.__mro__[1:]:
            if base.__module__.startswith(f"{__package__}.") and not isabstract(base):
                raise TypeError(
                    f"{cls.__name__} would be certified as the {base.__name__} that it comes from, "
                    "whatever it draws. Derive it from mmcc.sampling.Scheme."
                )

    # ------------------------------------------------------------------ what a scheme must know

    @abstractmethod
    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        """Participation sets of `count` examples (of one group, if there are public groups)."""

    @abstractmethod
    def expected_batch(self, steps: int, examples: int) -> float:
        """Expected number of examples in a step: public, whatever a step really draws."""

    # ------------------------------------------------------------------ what it may know better

    @property
    def setting(self) -> str:
        """What amplified numbers assume beyond the scheme; empty where nothing is."""
        return ""

    @property
    def random(self) -> bool:
        """Whether who takes part is left to chance; otherwise nothing is drawn or amplified."""
        return True

    @property
    def groups(self) -> int | None:
        """How many public groups take turns; None where examples are not split."""
        return None

    @property
    def batch_rows(self) -> int | None:
        """Rows of a batch in training, to which it is padded; None: as many as take part."""
        return None

    @property
    def renewal(self) -> Renewal | None:
        """The participations among the steps of one group, where they are a renewal process."""
        return None

    def check(self, steps: int) -> None:
        """Refuse a number of steps that does not fit."""
        return

    def check_drawn(self) -> None:
        """Refuse to be played where nothing is drawn."""
        if not self.random:
            raise undrawn(self)

    def check_prefix(self, steps: int) -> None:
        """Refuse to be cut off: a run that ends early must be drawn like the start of a long one.

        `steps` are those of the whole run.
        """
        return

    def check_alone(self, steps: int) -> None:
        """Refuse to be simulated by one example, where it is not independent of the others."""
        relaxed = self.relaxed(steps)
        if relaxed is not None:
            raise SamplingError(
                f"one example is simulated, and under {self!r} it is not independent of the "
                f"others. Use {relaxed.scheme!r}, which it is but for an event whose chance is at "
                f"most {relaxed.chance:.3g}."
            )

    def rounds(self, steps: int) -> Rounds | None:
        """Independent rounds, if participation is that: what amplified bounds are proven for."""
        return None

    def positions(self, steps: int) -> int | None:
        """How many positions there are, if an example has one random position in every epoch.

        All positions are equally likely, and the steps are whole epochs of so many steps.
        """
        return None

    def allocation(self, steps: int) -> Allocation | None:
        """Steps drawn anew in every epoch, so many each, if participation is that.

        Epochs are independent of each other, and every set of steps of an epoch is equally likely.
        """
        return None

    def chances(self, steps: int) -> Chances | None:
        """The chance to take part in each column of a group, given the columns before it.

        Exactly the law of `draw`, for every group: of one with fewer columns, their beginning.
        """
        return None

    def relaxed(self, steps: int, group_size: int = 1) -> Relaxed | None:
        """The scheme that amplified bounds are asked about instead, if there is one.

        Given that the event does not happen, and whatever else may be revealed about the other
        examples, so many examples take part as under the other scheme, or less often.
        """
        return None

    def chance(self, steps: int) -> float:
        """The chance that an example takes part at all, rounded up."""
        return 1.0

    def least_gap(self, steps: int) -> int:
        """Steps from one participation of an example to the next, at the least."""
        return 1

    def sensitivity(self, strategy: Strategy) -> float:
        """Upper bound on |C 1_S| over all participation sets S; C >= 0, so all steps are most."""
        self.check(strategy.steps)
        return strategy.sensitivity(1)

    def reached(self, strategy: Strategy) -> float:
        """Lower bound on |C 1_S| over the sets S in which an example may take part for certain.

        0 where all of them are left to chance.
        """
        return 0.0

    def equally_likely(self, steps: int) -> IntArray | None:
        """All participation sets, one a row, where they are equally likely and few."""
        return None

    def law(self, steps: int) -> Law | None:
        """The exact law of participation, for audits; None: batches are not held to one."""
        return None

    def drawing(self, steps: int, examples: int, bits: Bits) -> Drawing:
        """The batches of a training run: all examples drawn before the first step."""
        if self.groups is not None:
            raise SamplingError(
                f"{self!r} has public groups and does not say how examples are dealt to them; "
                "define its `drawing`."
            )
        drawn = self.draw(steps, examples, bits.of_arrangement(0))
        return DrawnBefore(checked_sets(drawn, steps, examples), steps)

    # ------------------------------------------------------------------ what follows

    def rate(self, steps: int) -> float:
        """The expected share of the examples in a batch."""
        return self.expected_batch(steps, 1)

    def stride(self, steps: int) -> int:
        """Steps between two turns of one group."""
        return min(self.groups or 1, steps)

    def columns(self, steps: int, group: int = 0) -> int:
        """How many steps an example of a group may take part in."""
        return len(range(group, steps, self.stride(steps)))

    # ------------------------------------------------------------------ names and words

    @property
    def name(self) -> str:
        """As it is typed: the name of the class with hyphens."""
        return typed_name(type(self).__name__)

    def arguments(self) -> Mapping[str, Any]:
        """What makes this scheme again: `type(scheme)(**scheme.arguments())`."""
        if not is_dataclass(self):
            return {}
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if value is not None}

    def words(self, steps: int) -> str:
        """Who takes part when, in a sentence for readers of a report."""
        first = (type(self).__doc__ or "").strip().partition("\n\n")[0]
        return f"{self!r}: {' '.join(first.replace('`', '').split())}"

    @property
    def caution(self) -> str:
        """What is easily mistaken for this scheme, in a sentence for readers of a report."""
        return "Batches that are made in another way are not sampled so."


class DrawnBefore:
    """Participation sets of all examples, by step."""

    def __init__(self, sets: Participations, steps: int) -> None:
        order = np.argsort(sets.steps, kind="stable")  # within a step the indices stay sorted
        self._members = sets.owners()[order]
        self._edges = np.concatenate(
            [[0], np.cumsum(np.bincount(sets.steps, minlength=steps))]
        ).astype(np.int64)

    def at(self, step: int) -> IntArray:
        return self._members[self._edges[step] : self._edges[step + 1]]


def checked_sets(sets: Participations, steps: int, count: int) -> Participations:
    """The sets that a scheme drew, if they are that: an example that comes twice counts twice."""
    owners, places = sets.owners(), sets.steps
    order = np.lexsort((places, owners))
    twice = (np.diff(owners[order]) == 0) & (np.diff(places[order]) == 0)
    outside = places.min(initial=0) < 0 or places.max(initial=0) >= steps
    if len(sets) != count or twice.any() or outside:
        raise SamplingError(
            f"a scheme must draw {count} sets of different steps from 0 to {steps - 1}, and this "
            "one drew another number of sets, a step twice or one that there is not. Correct its "
            "`draw`."
        )
    return sets


def typed_name(class_name: str) -> str:
    """`BallsInBins` as `balls-in-bins`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", class_name).lower()


def checked_scheme(scheme: object) -> Scheme:
    """The scheme, if it is one."""
    if not isinstance(scheme, Scheme):
        from mmcc.sampling._registry import SCHEMES

        names = ", ".join(entry.class_name for entry in SCHEMES.values())
        raise SamplingError(
            f"sampling must be one of mmcc.sampling.{names}, got {type(scheme).__name__}."
        )
    made = getattr(scheme, "__dataclass_params__", None)
    if made is None or not made.frozen:
        raise SamplingError(
            f"{type(scheme).__name__} is not a frozen dataclass, so that nothing could tell which "
            "scheme a checkpoint is of. Write @dataclass(frozen=True) above it."
        )
    return scheme


def unproven(scheme: Scheme, group_size: int = 1) -> MethodError:
    """What to say where no amplified bound applies to a scheme, or to groups under it."""
    if not scheme.random:
        return MethodError(
            f"{scheme!r} leaves nothing to chance, so that there is nothing to amplify. Use "
            "method='tight' or 'unamplified', which are the same here."
        )
    if group_size > 1:
        return MethodError(
            f"no amplification is proven for a group of {group_size} examples under {scheme!r}. "
            "Use method='unamplified' for a certificate."
        )
    return MethodError(
        f"no amplification is proven for {scheme!r}. Use method='unamplified' for a certificate, "
        "or mmcc.estimate for a Monte Carlo estimate."
    )


def undrawn(scheme: Scheme) -> SamplingError:
    """What to say where batches, rates or simulations are asked of a scheme without chance."""
    return SamplingError(
        f"{scheme!r} says who may take part and draws nobody: it has no batches, no rate and "
        "nothing to simulate. Choose the batches yourself and add the noise of "
        "mmcc.training.NoiseStream; mmcc.epsilon certifies that."
    )
