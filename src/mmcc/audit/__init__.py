"""Evidence about the code that really ran: noise and sampler played, canaries in a run."""

from mmcc.audit._audit import audit
from mmcc.audit._canaries import audit_canaries, play_canaries
from mmcc.audit._canary_result import CanaryAudit
from mmcc.audit._family import Refuted
from mmcc.audit._result import Audit, Finding

__all__ = (
    "Audit",
    "CanaryAudit",
    "Finding",
    "Refuted",
    "audit",
    "audit_canaries",
    "play_canaries",
)
