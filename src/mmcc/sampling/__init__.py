"""Who takes part when: sampling schemes, each a frozen description that knows its own facts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmcc.sampling._balls_in_bins import BallsInBins
    from mmcc.sampling._chances import Chances
    from mmcc.sampling._cyclic_poisson import CyclicPoisson
    from mmcc.sampling._min_separation import MinSeparation
    from mmcc.sampling._participations import Allocation, Participations, Renewal, Rounds
    from mmcc.sampling._poisson import Poisson
    from mmcc.sampling._random_allocation import RandomAllocation
    from mmcc.sampling._scheme import Bits, Drawing, Law, Relaxed, Scheme
    from mmcc.sampling._shuffle import Shuffle
    from mmcc.sampling._truncated_poisson import TruncatedPoisson
    from mmcc.sampling._unsampled import Unsampled

__all__ = (
    "Allocation",
    "BallsInBins",
    "Bits",
    "Chances",
    "CyclicPoisson",
    "Drawing",
    "Law",
    "MinSeparation",
    "Participations",
    "Poisson",
    "RandomAllocation",
    "Relaxed",
    "Renewal",
    "Rounds",
    "Scheme",
    "Shuffle",
    "TruncatedPoisson",
    "Unsampled",
)

# Imported when first used: the command line reads the registry without waiting for numpy.
_PLACES = {
    "Allocation": "_participations",
    "BallsInBins": "_balls_in_bins",
    "Chances": "_chances",
    "CyclicPoisson": "_cyclic_poisson",
    "MinSeparation": "_min_separation",
    "Participations": "_participations",
    "Poisson": "_poisson",
    "RandomAllocation": "_random_allocation",
    "Renewal": "_participations",
    "Rounds": "_participations",
    "Shuffle": "_shuffle",
    "TruncatedPoisson": "_truncated_poisson",
    "Unsampled": "_unsampled",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mmcc.sampling' has no attribute {name!r}")
    value = getattr(import_module(f"mmcc.sampling.{_PLACES.get(name, '_scheme')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
