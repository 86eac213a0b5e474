"""What can be asked for by `method=`, by name: bounds, the best of them, and simulation.

A bound takes its name from here, and so do messages that advise one, the command line, which must
not import numpy to list them, and saved answers.
"""

from __future__ import annotations

TIGHT = "tight"
"""The smallest certified number of all bounds that apply."""
MMCC = "mmcc"
PROJECTION = "projection"
REVEAL = "reveal"
CASCADE = "cascade"
UNAMPLIFIED = "unamplified"
GROUP_LEMMA = "group-lemma"
VERIFY = "verify"
"""Not a bound: by simulation, with a declared chance of error."""

CERTIFYING = (TIGHT, MMCC, PROJECTION, REVEAL, CASCADE, UNAMPLIFIED, GROUP_LEMMA)
OLD_NAMES = {"chain": REVEAL}
"""Still accepted."""
