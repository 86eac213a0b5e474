"""Choosing a mechanism: errors, comparisons at equal guarantees, strategies made for a target.

Users ask through `mmcc.compare` and `mmcc.strategies.optimise`; this package exports parts for
scripts: families of schemes at one rate (`family`), a BLT tuned to each target (`TunedBlt`), and
the tables.
"""

from mmcc.design._compare import compare
from mmcc.design._comparison import Comparison, Crossing, Row
from mmcc.design._optimise import optimise
from mmcc.design._optimised_result import Optimised
from mmcc.design._recommend import recommend
from mmcc.design._recommendation import Offer, Recommendation
from mmcc.design._tuned_blt import TunedBlt
from mmcc.sampling._families_at_rate import Family, family, separations

__all__ = (
    "Comparison",
    "Crossing",
    "Family",
    "Offer",
    "Optimised",
    "Recommendation",
    "Row",
    "TunedBlt",
    "compare",
    "family",
    "optimise",
    "recommend",
    "separations",
)
