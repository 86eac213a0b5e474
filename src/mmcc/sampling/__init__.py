"""Who takes part when: sampling schemes, each a frozen description that knows its own facts."""

from mmcc.sampling._balls_in_bins import BallsInBins
from mmcc.sampling._cyclic_poisson import CyclicPoisson
from mmcc.sampling._min_separation import MinSeparation
from mmcc.sampling._poisson import Poisson
from mmcc.sampling._scheme import (
    Bits,
    Drawing,
    Law,
    Participations,
    Renewal,
    Rounds,
    Scheme,
)
from mmcc.sampling._shuffle import Shuffle

__all__ = (
    "BallsInBins",
    "Bits",
    "CyclicPoisson",
    "Drawing",
    "Law",
    "MinSeparation",
    "Participations",
    "Poisson",
    "Renewal",
    "Rounds",
    "Scheme",
    "Shuffle",
)
