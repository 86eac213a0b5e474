"""Evidence about the code that really ran: noise and sampler replayed, canaries in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmcc.audit._audit import audit
from mmcc.audit._canaries import audit_canaries, play_canaries
from mmcc.audit._canary_result import CanaryAudit
from mmcc.audit._family import Refuted
from mmcc.audit._result import Audit, Finding
from mmcc.audit._score_file import load_scores, save_scores
from mmcc.training import MissingPackageError

if TYPE_CHECKING:
    from mmcc.audit._gradient_scores import GradientScores

__all__ = (
    "Audit",
    "CanaryAudit",
    "Finding",
    "GradientScores",
    "Refuted",
    "audit",
    "audit_canaries",
    "load_scores",
    "play_canaries",
    "save_scores",
)


def __getattr__(name: str) -> Any:
    if name != "GradientScores":
        raise AttributeError(f"module 'mmcc.audit' has no attribute {name!r}")
    try:
        from mmcc.audit._gradient_scores import GradientScores
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("torch", "opacus"):
            raise
        raise MissingPackageError(
            f"mmcc.audit.{name} needs {problem.name}, which is not installed: "
            "pip install 'mmcc[train]'."
        ) from None
    return GradientScores
