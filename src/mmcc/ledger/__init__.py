"""A ledger records every run on a data set before its first step, and composes all of them."""

from mmcc.ledger._book import Ledger
from mmcc.ledger._delta_curves import planned
from mmcc.ledger._entries import LedgerError, Planned
from mmcc.ledger._history import History, Run
from mmcc.ledger._total import Total

__all__ = ("History", "Ledger", "LedgerError", "Planned", "Run", "Total", "planned")
