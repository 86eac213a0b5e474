"""Evidence about the code that really ran: the noise stream and the sampler, played many times."""

from mmcc.audit.ask import audit
from mmcc.audit.result import Audit, Finding

__all__ = ("Audit", "Finding", "audit")
