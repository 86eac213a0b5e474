"""Laws of a row's sensitivity X in units of sigma, and the counting of equal ones.

In: values and probabilities.  Out: immutable laws; equal laws once, with their number.
Rounding: none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scipy import special

from mmcc._arrays import FloatArray, own_arrays


@dataclass(frozen=True, eq=False, slots=True)
class ProductLaw:
    """X = sum_j values_j Binomial(repeats, probs_j), independent: a row of an encoder."""

    values: FloatArray
    probs: FloatArray
    repeats: int = 1

    def __post_init__(self) -> None:
        own_arrays(self, "values", "probs")


@dataclass(frozen=True, eq=False, slots=True)
class MixtureLaw:
    """X = values_k with probability probs_k: an explicit mixture of Gaussians."""

    values: FloatArray
    probs: FloatArray

    def __post_init__(self) -> None:
        own_arrays(self, "values", "probs")


Law = ProductLaw | MixtureLaw
WeightedLaws = tuple[tuple[Law, int], ...]


class Different:
    """Iterates over the different laws; afterwards `counts` has how often each one occurred.

    Equality is decided by a hash of the bytes; laws themselves are never compared.
    """

    def __init__(self, laws: Iterable[tuple[Law, int]]) -> None:
        self._laws = laws
        self._place: dict[bytes, int] = {}
        self.counts: list[int] = []

    def __iter__(self) -> Iterator[tuple[Law, int]]:
        for law, count in self._laws:
            key = fingerprint(law)
            if key in self._place:
                self.counts[self._place[key]] += count
            else:
                self._place[key] = len(self.counts)
                self.counts.append(count)
                yield law, count


def fingerprint(law: Law) -> bytes:
    """A hash that two laws share only if they are equal."""
    digest = hashlib.blake2b(law.values.tobytes(), digest_size=16)
    digest.update(law.probs.tobytes())
    repeats = law.repeats if isinstance(law, ProductLaw) else 0
    digest.update(f"{law.values.size} {repeats}".encode())
    return digest.digest()


def merge_equal(laws: Iterable[tuple[Law, int]]) -> WeightedLaws:
    """Each different law once, with the number of its copies."""
    different = Different(laws)
    kept = [law for law, _ in different]
    return tuple(zip(kept, different.counts, strict=True))


def binomial_quantile(trials: int, probability: float, tail: float) -> int:
    """The smallest t with Pr[Binomial(trials, probability) > t] <= tail."""
    low, high = -1, trials
    while high - low > 1:
        middle = (low + high) // 2
        if special.betainc(middle + 1, trials - middle, probability) * (1.0 + 1e-9) <= tail:
            high = middle
        else:
            low = middle
    return high
