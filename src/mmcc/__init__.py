"""Certified privacy accounting for correlated-noise (matrix-mechanism) differential privacy."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mmcc.errors import MmccError

if TYPE_CHECKING:
    from mmcc import (
        audit,
        bridge,
        ledger,
        mixtures,
        pld,
        report,
        sampling,
        strategies,
        training,
        utility,
    )
    from mmcc._simulation.estimate import estimate
    from mmcc._simulation.replay import Replay, replay
    from mmcc._simulation.verify import verify
    from mmcc.accounting._guarantee import Bracket, Estimate, Guarantee
    from mmcc.accounting._questions import bracket, delta, epsilon, sigma
    from mmcc.design import Recommendation, compare, recommend

__version__ = "1.0.0"

__all__ = (
    "Bracket",
    "Estimate",
    "Guarantee",
    "MmccError",
    "Recommendation",
    "Replay",
    "audit",
    "bracket",
    "bridge",
    "compare",
    "delta",
    "epsilon",
    "estimate",
    "ledger",
    "mixtures",
    "pld",
    "recommend",
    "replay",
    "report",
    "sampling",
    "sigma",
    "strategies",
    "training",
    "utility",
    "verify",
)

# Loaded when first used: scipy and numba take a second to import, describing a mechanism does not;
# and the help of the command line does not even need numpy.
_PACKAGES = (
    "audit",
    "bridge",
    "ledger",
    "mixtures",
    "pld",
    "report",
    "sampling",
    "strategies",
    "training",
    "utility",
)
_LATER = {
    "Bracket": "mmcc.accounting._guarantee",
    "Estimate": "mmcc.accounting._guarantee",
    "Guarantee": "mmcc.accounting._guarantee",
    "Recommendation": "mmcc.design",
    "Replay": "mmcc._simulation.replay",
    "bracket": "mmcc.accounting._questions",
    "compare": "mmcc.design",
    "delta": "mmcc.accounting._questions",
    "epsilon": "mmcc.accounting._questions",
    "estimate": "mmcc._simulation.estimate",
    "recommend": "mmcc.design",
    "replay": "mmcc._simulation.replay",
    "sigma": "mmcc.accounting._questions",
    "verify": "mmcc._simulation.verify",
}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"mmcc.{name}")
    if name in _LATER:
        value = getattr(import_module(_LATER[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(
        f"module 'mmcc' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
