"""Evidence about the code that really ran: the noise stream and the sampler, played many times."""

from mmcc.audit._audit import audit
from mmcc.audit._result import Audit, Finding

__all__ = ("Audit", "Finding", "audit")
