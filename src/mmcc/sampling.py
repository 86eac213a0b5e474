"""Who takes part when: frozen descriptions of sampling schemes.

A scheme says in which steps one example may take part, and with which probability.  It holds
public facts only; the accounting and the training read the same object.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmcc.errors import real, whole

MAX_STEPS = 10**12


@dataclass(frozen=True, slots=True)
class Poisson:
    """Each example takes part in each step independently with the same probability."""

    probability: float

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "probability", real("probability", self.probability, 0, 1, closed="h")
        )

    @property
    def separation(self) -> int:
        """Steps between two rounds of one example's group: every step."""
        return 1


@dataclass(frozen=True, slots=True)
class CyclicPoisson:
    """Examples are split into `separation` groups; group t mod separation is sampled at step t.

    `probability` is the chance in a round in which the example's group is up (the paper's bp).
    Probability 1 with separation = steps is one fixed pass; probability 1 with a smaller
    separation is a fixed order over many epochs.
    """

    probability: float
    separation: int

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "probability", real("probability", self.probability, 0, 1, closed="h")
        )
        object.__setattr__(self, "separation", whole("separation", self.separation, 1, MAX_STEPS))


Scheme = Poisson | CyclicPoisson
