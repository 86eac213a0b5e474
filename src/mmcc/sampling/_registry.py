"""The registry of schemes: the name that is typed for each, and the arguments it needs.

Read by the command line, the explorer, reports and spelling suggestions.  Imports nothing heavy, so
help and error messages do not wait for numpy; classes are loaded when they are asked for.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from mmcc._calls import read_call
from mmcc.errors import SamplingError, shown, suggestion

if TYPE_CHECKING:
    from mmcc.sampling._scheme import Scheme


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a scheme: its name in Python, its command-line option, and what it takes."""

    name: str
    option: str
    kind: Literal["number", "whole", "flag"]
    help: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class SchemeEntry:
    """A scheme's names, its line of help and its arguments."""

    name: str
    class_name: str
    label: str
    """The label on forms that ask only for the required arguments."""
    help: str
    arguments: tuple[Argument, ...]

    def load(self) -> type[Scheme]:
        """The class itself."""
        found: type[Scheme] = getattr(import_module("mmcc.sampling"), self.class_name)
        return found


PROBABILITY = Argument(
    "probability", "prob", "number", "Chance to take part in a step, or in a round of its group."
)
SEPARATION = Argument(
    "separation",
    "separation",
    "whole",
    "Steps from one round or participation of an example to the next.",
)
WARM_START = Argument(
    "warm_start",
    "warm-start",
    "flag",
    "Start with as many examples blocked as after many steps.",
    required=False,
)
BINS = Argument("bins", "bins", "whole", "Positions in an epoch; each example draws one.")
EPOCH_STEPS = Argument(
    "epoch_steps",
    "epoch-steps",
    "whole",
    "Steps in an epoch; one pass if left out.",
    required=False,
)
EPOCH_LENGTH = Argument(
    "epoch_steps", "epoch-steps", "whole", "Steps in an epoch, from which each example draws."
)
PARTICIPATIONS = Argument(
    "participations",
    "participations",
    "whole",
    "Steps in each epoch in which an example takes part; 1 if left out.",
    required=False,
)
AT_MOST = Argument("at_most", "at-most", "whole", "Most participations of one example.")
LARGEST_BATCH = Argument(
    "largest_batch",
    "largest-batch",
    "whole",
    "Most examples in a batch.",
)
EXAMPLES = Argument("examples", "examples", "whole", "Most examples in the data set.")

SCHEMES: Mapping[str, SchemeEntry] = {
    entry.name: entry
    for entry in (
        SchemeEntry(
            "poisson",
            "Poisson",
            "Poisson",
            "Each example takes part in each step independently.",
            (PROBABILITY,),
        ),
        SchemeEntry(
            "cyclic-poisson",
            "CyclicPoisson",
            "Cyclic Poisson",
            "Groups take turns; each example of the current group takes part independently.",
            (PROBABILITY, SEPARATION),
        ),
        SchemeEntry(
            "min-separation",
            "MinSeparation",
            "Min separation",
            "Poisson sampling with a pause after each participation.",
            (PROBABILITY, SEPARATION, WARM_START),
        ),
        SchemeEntry(
            "balls-in-bins",
            "BallsInBins",
            "Balls in bins",
            "One random position for each example, the same in every epoch.",
            (BINS,),
        ),
        SchemeEntry(
            "random-allocation",
            "RandomAllocation",
            "Random allocation",
            "A few random steps for each example, drawn anew in every epoch.",
            (EPOCH_LENGTH, PARTICIPATIONS),
        ),
        SchemeEntry(
            "truncated-poisson",
            "TruncatedPoisson",
            "Truncated Poisson",
            "Poisson sampling with batches cut at a size.",
            (PROBABILITY, LARGEST_BATCH, EXAMPLES),
        ),
        SchemeEntry(
            "shuffle",
            "Shuffle",
            "One shuffled pass",
            "A new random order of the data in every epoch.",
            (EPOCH_STEPS,),
        ),
        SchemeEntry(
            "unsampled",
            "Unsampled",
            "No sampling",
            "Anyone takes part, within limits that the deployment enforces; nothing is amplified.",
            (SEPARATION, AT_MOST),
        ),
    )
}
SEPARATED, CYCLIC, FIXED_ORDER = "min-separation", "cyclic-poisson", "fixed-order"
COMPARED = (
    "poisson",
    CYCLIC,
    f"{CYCLIC}:N",
    "balls-in-bins",
    "random-allocation",
    FIXED_ORDER,
    "shuffle",
    f"{SEPARATED}:N",
)
"""Words that `mmcc compare` accepts: schemes fixed by a rate, or by a rate and a separation N."""


def from_call(text: str) -> Scheme:
    """The scheme whose repr is `text`, such as "Poisson(probability=0.01)"."""
    call = read_call(text, "sampling")
    classes = {entry.class_name: entry for entry in SCHEMES.values()}
    if call is None or call.name not in classes:
        names = [f"{name}(...)" for name in classes]
        raise SamplingError(f"unknown sampling {shown(text)}; {suggestion(text, names)}")
    try:
        return classes[call.name].load()(*call.values, **call.named)
    except TypeError as wrong:
        raise SamplingError(f"{shown(text)} is not a valid {call.name}: {wrong}.") from None


def is_registered(scheme: Scheme) -> bool:
    """Whether a scheme can be named on the command line: it is built in, not user-defined."""
    entry = SCHEMES.get(scheme.name)
    return entry is not None and entry.load() is type(scheme)


def identity_of(scheme: Scheme) -> str:
    """Text that identifies a scheme uniquely, so that checkpoints cannot be mixed up.

    A user-defined scheme may share its name with a built-in one, and its repr may be incomplete.
    """
    if is_registered(scheme):
        return repr(scheme)
    kind = type(scheme)
    digest = hashlib.sha256(pickle.dumps(dict(scheme.arguments()))).hexdigest()[:16]
    return f"{scheme!r} of {kind.__module__}.{kind.__qualname__} with digest {digest}"


def option_of(argument: str) -> str:
    """The command-line option of an argument, given its name in Python."""
    known = (one for entry in SCHEMES.values() for one in entry.arguments)
    return next((one.option for one in known if one.name == argument), argument.replace("_", "-"))
