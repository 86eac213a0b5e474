"""Strategies and schemes at equal guarantees, and which has the least error.

`mmcc.compare` asks; here are the parts that a script may want: families of schemes at one rate
(`family`), a BLT tuned to each target (`TunedBlt`), and the table itself.
"""

from mmcc.comparison.ask import compare
from mmcc.comparison.schemes import Family, family, separations
from mmcc.comparison.table import Comparison, Crossing, Row
from mmcc.comparison.tuned import TunedBlt

__all__ = (
    "Comparison",
    "Crossing",
    "Family",
    "Row",
    "TunedBlt",
    "compare",
    "family",
    "separations",
)
