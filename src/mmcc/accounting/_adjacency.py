"""Which of two neighbouring data sets is the first argument of the divergence.

"remove": the data set with the example; "add": the one without it.
"""

from __future__ import annotations

from typing import Literal

Adjacency = Literal["remove", "add"]
Side = Literal["remove", "add", "both"]
SIDES: tuple[Side, ...] = ("remove", "add", "both")
