"""Every run on a data set, written down before its first step, and what all of them amount to."""

from mmcc.ledger.book import Ledger
from mmcc.ledger.compose import Total
from mmcc.ledger.curves import planned
from mmcc.ledger.entries import LedgerError, Planned
from mmcc.ledger.history import History, Run

__all__ = ("History", "Ledger", "LedgerError", "Planned", "Run", "Total", "planned")
