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
    from mmcc.accounting.guarantee import Bracket, Estimate, Guarantee
    from mmcc.accounting.montecarlo.estimate import estimate
    from mmcc.accounting.solve import bracket, delta, epsilon, sigma
    from mmcc.comparison import compare

__version__ = "0.9.0"

__all__ = (
    "Bracket",
    "Estimate",
    "Guarantee",
    "MmccError",
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
    "report",
    "sampling",
    "sigma",
    "strategies",
    "training",
    "utility",
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
    "Bracket": "mmcc.accounting.guarantee",
    "Estimate": "mmcc.accounting.guarantee",
    "Guarantee": "mmcc.accounting.guarantee",
    "bracket": "mmcc.accounting.solve",
    "compare": "mmcc.comparison",
    "delta": "mmcc.accounting.solve",
    "epsilon": "mmcc.accounting.solve",
    "estimate": "mmcc.accounting.montecarlo.estimate",
    "sigma": "mmcc.accounting.solve",
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
