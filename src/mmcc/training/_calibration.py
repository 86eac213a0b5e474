"""The guarantee of a run: what a noise level provides, or the least noise for a target.

In: a mechanism without its sigma, and a sigma or a target.  Out: a `Guarantee`.
Rounding: that of the accounting.  A noise level found earlier is read from a file and certified
again before it is used: whatever the file says, epsilon is not too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcc import __version__
from mmcc._cache import cache_folder, content_of, file_of, write
from mmcc._methods import VERIFY
from mmcc.errors import MmccError
from mmcc.sampling import Scheme
from mmcc.sampling._registry import identity_of
from mmcc.strategies._base import Strategy
from mmcc.strategies._records import strategy_digest
from mmcc.training._mechanism import certify

if TYPE_CHECKING:
    from mmcc.accounting._guarantee import Guarantee
    from mmcc.accounting._parallel import Progress

CLOSE = 1e-3
"""A noise level is reused if its epsilon is at most this much (relative) below the target."""


def calibrate(
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
    """The guarantee of all steps, as `certify` finds it; the noise for a target is kept in a file.

    Noise found by simulation (method "verify") is not kept here: its own record holds it.
    """
    folder = cache_folder() if remembered and method != VERIFY else None
    if folder is None or epsilon is None:
        return certify(
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
        with suppress(MmccError):  # anybody may have written the file: never fail because of it
            found = certify(
                strategy, sampling, delta=delta, method=method, sigma=known, progress=progress
            )
            if (1 - CLOSE) * epsilon <= found.epsilon <= epsilon:
                return found
    found = certify(
        strategy, sampling, delta=delta, method=method, epsilon=epsilon, progress=progress
    )
    write(file, {"of": facts, "sigma": found.sigma})
    return found


def _sigma_in(file: Path, facts: Mapping[str, Any]) -> float | None:
    """The noise level in a file; None if there is no file, or it is about something else."""
    content = content_of(file, facts)
    sigma = content.get("sigma")
    usable = isinstance(sigma, float) and math.isfinite(sigma) and sigma > 0
    return sigma if usable else None
