"""Who takes part when: what every sampling scheme knows about itself.

A scheme states in which steps one example may take part, and with which probability.  It holds
public facts only; the accounting, the simulation and the training all read the same object.
Rounding: chances and sensitivities are upper bounds; rates are plain floating point.

A new scheme is a subclass that defines how participation sets are drawn (`draw`) and how large
batches are (`expected_batch`).  That gives it estimates, the certificate without amplification,
batches for training and an audit.  Every other method it overrides makes these tighter or faster:
amplified certificates come from the bounds, which ask for `rounds`, `positions`, `allocation` or
`relaxed`.
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
from mmcc._methods import TIGHT, UNAMPLIFIED
from mmcc.errors import MethodError, SamplingError
from mmcc.sampling._chances import Chances
from mmcc.sampling._participations import Allocation, Participations, Renewal, Rounds

if TYPE_CHECKING:
    from mmcc.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A simpler scheme that this one equals outside an event that does not depend on the data.

    Every certificate for the simpler scheme holds for this one once `chance` is added to its delta.
    """

    scheme: Scheme
    chance: float
    """The chance of the event, rounded up."""
    attained: bool
    """Whether the two schemes agree on the worst data set, so that lower bounds carry over too."""
    event: str
    """The event in words, with what makes it rarer."""


@dataclass(frozen=True, eq=False, slots=True)
class Law:
    """The law of one example's participations, and how examples depend on each other."""

    share: int
    """In each step one in `share` examples can be in the batch; populations are multiples of it."""
    rates: FloatArray
    """For each step: the chance that an example that can be in the batch is in it."""
    pairs: FloatArray
    """For each two steps: the chance that an example that can be in the first is in both."""
    numbers: FloatArray
    """The law of the number of one example's participations."""
    independent: bool
    """Whether examples are independent of each other."""
    steps_independent: bool
    """Whether the sizes of different batches are independent of each other."""
    surprise: float
    """Lower bound on -log(largest probability of one outcome), per example."""


class Bits(Protocol):
    """The random generators of a run: asking again gives the same generator from its start."""

    def of_step(self, step: int) -> np.random.Generator:
        """The generator for what is drawn afresh in a step."""
        ...

    def of_arrangement(self, index: int) -> np.random.Generator:
        """The generator for what is arranged once for a whole epoch or run."""
        ...


class Drawing(Protocol):
    """The batches of one run over a data set."""

    def at(self, step: int) -> IntArray:
        """Sorted indices of the examples that take part in a step."""
        ...


class Scheme(ABC):
    """Who takes part when; the base of all sampling schemes, which are frozen dataclasses.

    The participations of one example must be independent of the other examples, of noise and of
    everything released so far; a scheme that breaks this rule says so in `setting`.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in cls.__mro__[1:]:
            if base.__module__.startswith(f"{__package__}.") and not isabstract(base):
                raise TypeError(
                    f"{cls.__name__} would be certified as its base class {base.__name__}, "
                    "whatever it draws. Derive it from mmcc.sampling.Scheme instead."
                )

    # ------------------------------------------------------------------ what a scheme must know

    @abstractmethod
    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        """Participation sets of `count` examples (of one group, if there are public groups)."""

    @abstractmethod
    def expected_batch(self, steps: int, examples: int) -> float:
        """Expected number of examples in a step: public, whatever the step actually draws."""

    # ------------------------------------------------------------------ what it may know better

    @property
    def setting(self) -> str:
        """What amplified numbers assume beyond the scheme itself; empty if nothing."""
        return ""

    @property
    def random(self) -> bool:
        """Whether participation is random; if not, nothing is drawn or amplified."""
        return True

    @property
    def groups(self) -> int | None:
        """How many public groups take turns; None if examples are not split into groups."""
        return None

    @property
    def batch_rows(self) -> int | None:
        """Rows to which a training batch is padded; None if batches are not padded."""
        return None

    @property
    def renewal(self) -> Renewal | None:
        """Participation in the steps of one group, if it is a renewal process."""
        return None

    def check(self, steps: int) -> None:
        """Raise an error if the number of steps does not fit the scheme."""
        return

    def check_drawn(self) -> None:
        """Raise an error if the scheme draws nothing that could be simulated or trained on."""
        if not self.random:
            raise undrawn(self)

    def check_prefix(self, steps: int) -> None:
        """Raise an error if a run cut off early would not be drawn like the start of a full one.

        `steps` is the number of steps of the full run.
        """
        return

    def check_alone(self, steps: int) -> None:
        """Raise an error if one example cannot be simulated alone, as it depends on the others."""
        relaxed = self.relaxed(steps)
        if relaxed is not None:
            raise SamplingError(
                f"simulation follows a single example, but under {self!r} examples are not "
                f"independent. Use {relaxed.scheme!r}, which is equal outside an event of chance "
                f"at most {relaxed.chance:.3g}."
            )

    def rounds(self, steps: int) -> Rounds | None:
        """Participation as independent rounds, if it has that form, for amplified bounds."""
        return None

    def positions(self, steps: int) -> int | None:
        """The number of positions, if an example has the same random position in every epoch.

        All positions are equally likely, and each epoch has as many steps as there are positions.
        """
        return None

    def allocation(self, steps: int) -> Allocation | None:
        """Participation as random steps drawn anew in every epoch, if it has that form.

        Epochs are independent of each other, and within an epoch every set of that size is equally
        likely.
        """
        return None

    def chances(self, steps: int) -> Chances | None:
        """The chance to take part in each column of a group, given the earlier columns.

        This is exactly the law of `draw` for every group; a group with fewer columns has their
        beginning.
        """
        return None

    def relaxed(self, steps: int, group_size: int = 1) -> Relaxed | None:
        """The simpler scheme that amplified bounds analyse instead, if there is one.

        If the event does not happen, then whatever is revealed about the other examples, the group
        takes part as under the simpler scheme, or less often.
        """
        return None

    def chance(self, steps: int) -> float:
        """Upper bound on the chance that an example takes part at all."""
        return 1.0

    def least_gap(self, steps: int) -> int:
        """The fewest steps from one participation of an example to the next."""
        return 1

    def sensitivity(self, strategy: Strategy) -> float:
        """Upper bound on |C 1_S| over all participation sets S; by default all steps, as C >= 0."""
        self.check(strategy.steps)
        return strategy.sensitivity(1)

    def reached(self, strategy: Strategy) -> float:
        """Lower bound on the largest |C 1_S| over sets S in which participation can be certain.

        It is 0 if participation is always left to chance.
        """
        return 0.0

    def equally_likely(self, steps: int) -> IntArray | None:
        """All participation sets, one per row, if they are equally likely and few."""
        return None

    def law(self, steps: int) -> Law | None:
        """The exact law of participation, for audits; None if there is no law to test against."""
        return None

    def drawing(self, steps: int, examples: int, bits: Bits) -> Drawing:
        """The batches of a training run; by default every set is drawn before the first step."""
        if self.groups is not None:
            raise SamplingError(
                f"{self!r} has public groups but does not define how examples are dealt to them; "
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
        """The number of steps in which an example of a group may take part."""
        return len(range(group, steps, self.stride(steps)))

    # ------------------------------------------------------------------ names and words

    @property
    def name(self) -> str:
        """The name typed on the command line: the class name in lower case with hyphens."""
        return typed_name(type(self).__name__)

    def arguments(self) -> Mapping[str, Any]:
        """The arguments that rebuild this scheme: `type(scheme)(**scheme.arguments())`."""
        if not is_dataclass(self):
            return {}
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if value is not None}

    def words(self, steps: int) -> str:
        """One sentence for readers of a report: who takes part when."""
        first = (type(self).__doc__ or "").strip().partition("\n\n")[0]
        return f"{self!r}: {' '.join(first.replace('`', '').split())}"

    @property
    def caution(self) -> str:
        """One sentence for readers of a report: what is easily mistaken for this scheme."""
        return "Batches made in any other way do not follow this scheme."


class DrawnBefore:
    """The batches of a run whose participation sets were all drawn beforehand."""

    def __init__(self, sets: Participations, steps: int) -> None:
        order = np.argsort(sets.steps, kind="stable")  # within a step the indices stay sorted
        self._members = sets.owners()[order]
        self._edges = np.concatenate(
            [[0], np.cumsum(np.bincount(sets.steps, minlength=steps))]
        ).astype(np.int64)

    def at(self, step: int) -> IntArray:
        return self._members[self._edges[step] : self._edges[step + 1]]


def checked_sets(sets: Participations, steps: int, count: int) -> Participations:
    """The sets that a scheme drew, if they are valid: a repeated step would count twice."""
    owners, places = sets.owners(), sets.steps
    order = np.lexsort((places, owners))
    twice = (np.diff(owners[order]) == 0) & (np.diff(places[order]) == 0)
    outside = places.min(initial=0) < 0 or places.max(initial=0) >= steps
    if len(sets) != count or twice.any() or outside:
        raise SamplingError(
            f"a scheme must draw {count} sets of distinct steps from 0 to {steps - 1}; this "
            "one drew a different number of sets, repeated a step or left that range. Correct its "
            "`draw`."
        )
    return sets


def typed_name(class_name: str) -> str:
    """`BallsInBins` as `balls-in-bins`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", class_name).lower()


def checked_scheme(scheme: object) -> Scheme:
    """The scheme, checked to be a frozen `Scheme`."""
    if not isinstance(scheme, Scheme):
        from mmcc.sampling._registry import SCHEMES

        names = ", ".join(entry.class_name for entry in SCHEMES.values())
        raise SamplingError(
            f"sampling must be one of mmcc.sampling.{names}, got {type(scheme).__name__}."
        )
    made = getattr(scheme, "__dataclass_params__", None)
    if made is None or not made.frozen:
        raise SamplingError(
            f"{type(scheme).__name__} is not a frozen dataclass, so a checkpoint could not record "
            "which scheme it belongs to. Write @dataclass(frozen=True) above it."
        )
    return scheme


def unproven(scheme: Scheme, group_size: int = 1) -> MethodError:
    """The error to raise if no amplified bound applies to a scheme, or to groups under it."""
    if not scheme.random:
        return MethodError(
            f"{scheme!r} leaves nothing to chance, so there is nothing to amplify. Use "
            f"method={TIGHT!r} or {UNAMPLIFIED!r}, which are the same here."
        )
    if group_size > 1:
        return MethodError(
            f"no amplification is proven for a group of {group_size} examples under {scheme!r}. "
            f"Use method={UNAMPLIFIED!r} for a certificate."
        )
    return MethodError(
        f"no amplification is proven for {scheme!r}. Use method={UNAMPLIFIED!r} for a certificate, "
        "or mmcc.estimate for a Monte Carlo estimate."
    )


def undrawn(scheme: Scheme) -> SamplingError:
    """The error to raise if batches, a rate or a simulation is asked of a scheme without chance."""
    return SamplingError(
        f"{scheme!r} only limits who may take part and draws nobody: it has no batches, no rate "
        "and nothing to simulate. Choose the batches yourself and add the noise of "
        "mmcc.training.NoiseStream; mmcc.epsilon certifies that."
    )
