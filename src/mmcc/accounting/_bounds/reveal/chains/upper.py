"""Certified epsilons and deltas of a Toeplitz strategy, with independent rounds or with a gap.

In: strategy, rounds, the law of participations at a step, sigma.  Out: `Answer`.
Rounding: results are upper bounds; infinite (delta: 1) where nothing could be certified.

The Gram matrix is dominated by a chain's (`domination`, `shapes`), participations are revealed
after fakes were drawn (`centring`), the chain is put on a lattice (`lattice`); moments are powers
of a transfer matrix (`operator`), or go by a recursion (`separation`), and give delta by a Mellin
inversion.  The cost grows with the logarithm of the number of steps.
Proofs: docs/theory-reveal.md, docs/theory-reveal-separation.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.base import Answer
from mmcc.accounting._bounds.projection.lower import delta_along
from mmcc.accounting._bounds.reveal.chains.chain import binomial_prior
from mmcc.accounting._bounds.reveal.chains.curve import Setting, curve_near, good_setting
from mmcc.accounting._bounds.reveal.chains.domination import Shape, Spectrum, spectrum_of
from mmcc.accounting._bounds.reveal.chains.shapes import good_shapes
from mmcc.accounting._bounds.reveal.inversion import Curve
from mmcc.accounting._parallel import Progress
from mmcc.errors import PrecisionError
from mmcc.sampling import Renewal, Rounds
from mmcc.strategies._toeplitz import Toeplitz

MAX_DIAGONAL = 60.0
"""Squared column norm over sigma^2 above which no amplification is attempted."""
SMALLEST_GUESS, LARGEST_GUESS = 1e-200, 0.5
FIRST_GUESS = 1e-5
MOMENTS_ALONE = 1.08
MOST_SUMMED = 2**14
"""Most steps for which a test along one direction takes a fraction of a second."""
NEGLIGIBLE = 1e-4
TURNS = 8
ADJACENCIES = ("remove", "add")


@dataclass(frozen=True, eq=False, slots=True)
class ChainProblem:
    """A mechanism for a chain to dominate: Gram matrix, noise, law of participations per step."""

    alike: ClassVar[float] = 0.2
    """A curve is tight at deltas whose logarithms differ by no more than this."""

    spectrum: Spectrum
    prior: FloatArray
    sigma: float
    progress: Progress | None = None
    renewal: Renewal | None = None
    """The renewal process of participations, if they are a gap apart."""

    @property
    def in_range(self) -> bool:
        """Whether there is enough noise to attempt amplification."""
        return bool(self.spectrum.lags[0] / self.sigma / self.sigma <= MAX_DIAGONAL)

    def setting(self, shape: Shape, adjacency: str, delta: float) -> Setting | None:
        """Good settings for the chain of a shape; None if there are none."""
        if not self.in_range:
            return None
        chain = self.spectrum.chain(shape, self.sigma, self.prior, self.renewal)
        return None if chain is None else good_setting(chain, adjacency, delta)

    def best_shape(self, delta: float) -> Shape:
        """The shape whose moments alone give the smallest epsilon."""
        shapes = good_shapes(self.spectrum, self.sigma)
        if len(shapes) == 1:
            return shapes[0]

        def rough(shape: Shape) -> float:
            found = self.setting(shape, "remove", delta)
            return math.inf if found is None else found.epsilon

        return min(shapes, key=rough)

    def outlook(self, shape: Shape, delta: float) -> float:
        """Epsilon by moments alone (`remove`), less about twice what the inversion gains."""
        setting = self.setting(shape, "remove", delta)
        return math.inf if setting is None else setting.epsilon / MOMENTS_ALONE**2

    def shown_delta(self, shape: Shape, epsilon: float) -> float:
        """No bound by this chain is below it at epsilon (`remove`); 0 if nothing is known.

        The output along the sum of the chain's columns shows as much, of any pair above the chain.
        """
        chain = self.spectrum.chain(shape, self.sigma, self.prior, self.renewal)
        if chain is None or chain.most > 1 or chain.gap > 1 or chain.steps > MOST_SUMMED:
            return 0.0
        sums = chain.row_sums()
        positions = sums / math.sqrt(sums.sum()) * (1 - 1e-12)
        try:
            return delta_along(positions, float(chain.prior[1]), epsilon)
        except PrecisionError:
            return 0.0

    def epsilon(
        self, shape: Shape, delta: float, adjacencies: Sequence[str] = ADJACENCIES
    ) -> Answer:
        """Certified epsilons at delta; infinite for an adjacency that is not asked for."""
        found = dict.fromkeys(ADJACENCIES, math.inf)
        notes: dict[str, Any] = {}
        for adjacency in adjacencies:
            self._report(adjacency, ADJACENCIES.index(adjacency))
            for curve in self._curves(shape, adjacency, delta):
                value = curve.epsilon(delta)
                if value <= found[adjacency]:
                    found[adjacency], notes[adjacency] = value, curve.notes
        return Answer(found["remove"], found["add"], notes=notes)

    def delta(
        self, shape: Shape, epsilon: float, adjacencies: Sequence[str] = ADJACENCIES
    ) -> Answer:
        """Certified deltas at epsilon; 1 for an adjacency that is not asked for.

        If both are asked and `add` is smaller, only that is certified about it.
        """
        found = dict.fromkeys(ADJACENCIES, 1.0)
        notes: dict[str, Any] = {}
        for adjacency in adjacencies:
            guess = self._likely_delta(shape, adjacency, epsilon)
            beside = 0.0
            if adjacency == "add" and "remove" in adjacencies:  # far smaller deltas are not needed
                beside = found["remove"]
                guess = max(guess, NEGLIGIBLE**2 * beside)
            for _ in range(TURNS):
                self._report(adjacency, ADJACENCIES.index(adjacency))
                curves = tuple(self._curves(shape, adjacency, guess))
                if not curves:
                    break
                curve = min(curves, key=lambda curve: curve.delta(epsilon))
                value, last = curve.delta(epsilon), guess
                if value < found[adjacency]:
                    found[adjacency], notes[adjacency] = value, curve.notes
                guess = _within(curve.inversion.excess(epsilon))
                if abs(math.log(guess / last)) < self.alike or value < NEGLIGIBLE * beside:
                    break
        return Answer(found["remove"], found["add"], notes=notes)

    def best_shape_for_delta(self, epsilon: float) -> Shape:
        """The best shape for the delta that an epsilon leads to."""
        shape = self.best_shape(FIRST_GUESS)
        if self.spectrum.exact is not None:
            return shape
        return self.best_shape(self._likely_delta(shape, "remove", epsilon))

    def _likely_delta(self, shape: Shape, adjacency: str, epsilon: float) -> float:
        """Roughly the delta at epsilon, from moments alone."""
        guess = FIRST_GUESS
        for _ in range(TURNS):
            setting = self.setting(shape, adjacency, guess)
            if setting is None:
                break
            # Moments alone give a little more than the inversion; delta falls like e^{(1-al) eps}.
            away = (epsilon - setting.epsilon / MOMENTS_ALONE) * (setting.order - 1)
            last, guess = guess, _within(guess * math.exp(min(max(-away, -300.0), 300.0)))
            if abs(math.log(guess / last)) < 0.5:
                break
        return guess

    def _curves(self, shape: Shape, adjacency: str, delta: float) -> Iterator[Curve]:
        """Curves that are tight near delta, best first; any of them may be used."""
        setting = self.setting(shape, adjacency, delta)
        curve = None if setting is None else curve_near(setting, delta)
        if curve is not None:
            yield curve

    def _report(self, adjacency: str, count: int) -> None:
        if self.progress is not None:
            self.progress(f"reveal, {adjacency}", count)


def problem_apart(
    strategy: Toeplitz, renewal: Renewal, sigma: float, progress: Progress | None = None
) -> ChainProblem:
    """The chain problem of participations that are a gap apart, at any step."""
    spectrum = spectrum_of(strategy, Rounds(renewal.probability, 1))
    prior = binomial_prior(1, renewal.probability)
    return ChainProblem(spectrum, prior, sigma, progress, renewal)


def _within(delta: float) -> float:
    return min(max(delta, SMALLEST_GUESS), LARGEST_GUESS)
