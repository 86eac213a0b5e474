"""Independent truth: the longest |C 1_S| over all sets of steps that are allowed, in fractions.

Nothing here imports mmcc, and nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

Exact = list[list[Fraction]]


def sets_apart(steps: int, separation: int, at_most: int) -> Iterator[tuple[int, ...]]:
    """All sets of 1 to `at_most` steps with differences of at least `separation`."""

    def extend(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if chosen:
            yield chosen
        if len(chosen) < at_most:
            for step in range(chosen[-1] + separation if chosen else 0, steps):
                yield from extend((*chosen, step))

    return extend(())


def exact_matrix(entries: Sequence[Sequence[float]]) -> Exact:
    """Floating-point numbers are fractions."""
    return [[Fraction(float(entry)) for entry in row] for row in entries]


def exact_blt(steps: int, decay: Sequence[float], scale: Sequence[float]) -> Exact:
    """The encoder with c = 1, then sum_i scale_i decay_i^(k-1)."""
    buffers = [(Fraction(d), Fraction(s)) for d, s in zip(decay, scale, strict=True)]
    later = (sum((s * d**k for d, s in buffers), Fraction(0)) for k in range(steps - 1))
    c = [Fraction(1), *later]
    return [[c[i - j] if i >= j else Fraction(0) for j in range(steps)] for i in range(steps)]


def longest_squared(matrix: Exact, separation: int, at_most: int) -> Fraction:
    """max |C 1_S|^2 over the sets that are allowed."""
    columns = list(zip(*matrix, strict=True))
    steps = len(columns)
    gram = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in columns] for x in columns]
    every = sets_apart(steps, separation, at_most)
    return max(sum((gram[i][j] for i in s for j in s), Fraction(0)) for s in every)
