"""A run's place in a ledger: written before its first step, found again by its checkpoint.

In: a ledger, the name of a data set, a mechanism, its guarantee.  Out: lines in the ledger.
Of several processes the first one writes; the others wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mmcc.errors import ParameterError
from mmcc.training._mechanism import Mechanism
from mmcc.training._peers import Peers

if TYPE_CHECKING:
    from mmcc.accounting._guarantee import Guarantee
    from mmcc.ledger import Ledger

Guaranteed = Callable[[], "Guarantee"]


class Record:
    """One run in one ledger, or no ledger at all.

    `name` is what the ledger calls the run: empty as long as it is not entered.
    """

    def __init__(
        self, ledger: Ledger | None, data: str, mechanism: Mechanism, peers: Peers
    ) -> None:
        self.ledger, self.data, self.mechanism, self.peers = ledger, data, mechanism, peers
        self.name = ""
        self._entered = False

    def enter(self, guarantee: Guaranteed) -> None:
        """Write the run down, once: from then on it counts, whatever becomes of it."""
        if self.ledger is None or self._entered:
            return
        with self.peers.agreeing():
            if self.peers.rank == 0:
                self.name = self.ledger.begin(
                    data=self.data,
                    mechanism=_described(self.mechanism),
                    guarantee=guarantee(),
                    steps=self.mechanism.steps,
                    fingerprint=self.mechanism.fingerprint(),
                )
        self._entered = True

    def check(self, name: str) -> None:
        """Refuse a checkpoint whose run would be counted twice, or not at all."""
        if bool(name) != (self.ledger is not None):
            raise ParameterError(
                "the run of the checkpoint is in a ledger: pass the same ledger to make_private."
                if name
                else "the run of the checkpoint is in no ledger, so that its first steps would not "
                "count: leave out ledger=, or begin anew."
            )

    def take_up(self, name: str) -> None:
        """Go on with a run that the ledger knows: the same noise, not counted again."""
        if self.ledger is None:
            return
        if self.peers.rank == 0:
            self.ledger.resume(name, self.mechanism.fingerprint(), data=self.data)
        self.name, self._entered = name, True

    def close(self, position: int) -> None:
        """Write down that the run has ended; one that was never entered has nothing to end."""
        if self.ledger is not None and self._entered and self.peers.rank == 0:
            self.ledger.end(self.name, position=position)


def ledger_of(ledger: Ledger | str | Path | None, data: str | None) -> tuple[Ledger | None, str]:
    """The ledger, and the name under which it knows the data; both or neither."""
    if (ledger is None) != (data is None):
        raise ParameterError(
            "ledger= and data_name= belong together: the ledger adds up the runs on one data set, "
            "which it knows by name."
        )
    if ledger is None or data is None:
        return None, ""
    from mmcc.ledger import Ledger  # imports the accounting

    return (ledger if isinstance(ledger, Ledger) else Ledger(ledger)), data


def _described(mechanism: Mechanism) -> str:
    return (
        f"{mechanism.strategy!r}, {mechanism.sampling!r}, sigma {mechanism.sigma:.9g}, "
        f"decoder {mechanism.decoder}, clip norm {mechanism.max_grad_norm:g}, "
        f"{mechanism.examples} examples"
    )
