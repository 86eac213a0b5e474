"""The guarantee of a run: what a noise level is worth, or the least noise for a target.

In: a mechanism without its sigma, and a sigma or a target.  Out: a `Guarantee`.
Rounding: that of the accounting.  A noise level that was found before is read from a file, and is
certified anew before it is used: whatever is written in the file, epsilon is not too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcc import __version__
from mmcc._cache import cache_folder, content_of, file_of, write
from mmcc.errors import MmccError
from mmcc.sampling import Scheme
from mmcc.sampling._registry import identity_of
from mmcc.strategies._base import Strategy
from mmcc.strategies._records import strategy_digest
from mmcc.training._mechanism import certified

if TYPE_CHECKING:
    from mmcc.accounting._guarantee import Guarantee
    from mmcc.accounting._parallel import Progress

CLOSE = 1e-3
"""Epsilon may be this much (relative) below the target for a noise level to be used again."""


def calibrated(
    strategy: Strategy,
    sampling: Scheme,
    *,
    delta: float,
    method: str,
    sigma: float | None = None,
    epsilon: float | None = None,
    verify: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    remembered: bool = True,
) -> Guarantee:
    """The guarantee of all steps: `certified`, with the noise for a target remembered in a file.

    What was found by simulation (method "verify") is not: its own record remembers it.
    """
    from mmcc._simulation.claims import METHOD as VERIFY

    folder = cache_folder() if remembered and method != VERIFY else None
    if folder is None or epsilon is None:
        return certified(
            strategy,
            sampling,
            delta=delta,
            method=method,
            sigma=sigma,
            epsilon=epsilon,
            verify=verify,
            progress=progress,
        )
    facts = {
        "mmcc": __version__,
        "strategy": strategy_digest(strategy),
        "sampling": identity_of(sampling),
        "epsilon": epsilon,
        "delta": delta,
        "method": method,
    }
    file = file_of(folder, "noise", facts)
    known = _sigma_in(file, facts)
    if known is not None:
        with suppress(MmccError):  # a file that anybody may have written: it is no reason to fail
            found = certified(
                strategy, sampling, delta=delta, method=method, sigma=known, progress=progress
            )
            if (1 - CLOSE) * epsilon <= found.epsilon <= epsilon:
                return found
    found = certified(
        strategy, sampling, delta=delta, method=method, epsilon=epsilon, progress=progress
    )
    write(file, {"of": facts, "sigma": found.sigma})
    return found


def _sigma_in(file: Path, facts: Mapping[str, Any]) -> float | None:
    """The noise level in a file; None if there is none, or the file says something else."""
    content = content_of(file, facts)
    sigma = content.get("sigma")
    usable = isinstance(sigma, float) and math.isfinite(sigma) and sigma > 0
    return sigma if usable else None
