r"""The audit: run the real noise stream and sampler many times and inspect what they release.

In: the mechanism as it was accounted.  Out: an `Audit`: a lower confidence bound on epsilon, and
tests of the law of noise and participation.  Rounding: none that matters; confidence is stated.

A canary has the clipped gradient 1 in every step in which it takes part, and all other examples
have 0: the worst case in one dimension.  Released is  g_t = x_t + noise_t;  without the canary
x = 0.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.sparse import csr_array

from mmcc._arrays import FloatArray, IntArray
from mmcc.accounting._bounds import PLAIN
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._parallel import Progress, one_thread
from mmcc.accounting._questions import MAX_SIGMA, MIN_DELTA, MIN_SIGMA
from mmcc.accounting._questions import epsilon as certified_epsilon
from mmcc.audit._bound import LowerBounds, lower_bounds
from mmcc.audit._group import members_of, worst_group
from mmcc.audit._noise_law import NoiseLaw
from mmcc.audit._participation_law import ParticipationLaw
from mmcc.audit._play import MakeBatches, MakeNoise, Played, Stage
from mmcc.audit._result import CHANCE, CLAIMED, Audit, Finding
from mmcc.audit._statistic import LikelihoodRatio, likelihood_ratio, spread, whitener
from mmcc.audit._streams import chosen
from mmcc.errors import MethodError, ParameterError, real, whole
from mmcc.sampling import Scheme
from mmcc.sampling._scheme import checked_scheme
from mmcc.strategies._base import Strategy
from mmcc.strategies._decoders import decoder_name
from mmcc.training._participants import Participants

MAX_AUDITED_STEPS = 1024
MIN_RUNS, MAX_RUNS = 1000, 10**7
STREAMS = 40
"""The least number of streams and populations, each with its own seed; an even number."""
VALUES = 10**7
"""The most noise values in a stream."""
TUNING = 4
"""One in this many streams is used to choose the threshold; the others judge it."""
BATCH = 20
"""The least number of examples expected in a batch, if populations stay below the next number."""
MAX_POPULATION = 2**20
MAX_EXAMPLES = 2**25
"""Examples held at once, all groups of a population together."""


def audit(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    runs: int = 100_000,
    confidence: float = 0.99,
    seed: int | None = None,
    decoder: str | None = None,
    stream: MakeNoise | str | None = None,
    generator: str | None = None,
    participants: MakeBatches = Participants,
    epsilon: float | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Run the mechanism `runs` times with a canary and as often without, and look for violations.

    `epsilon` is the number to test; by default, the smallest certified one.  `stream` and
    `participants` are what is audited.  A stream is `"torch"`, the one of training in float32,
    `"numpy"`, or a class; the default is torch's, or numpy's where torch is not installed.
    `generator` is that of the two named streams: device, philox or chacha.
    """
    sigma = real("sigma", sigma, MIN_SIGMA, MAX_SIGMA)
    delta = real("delta", delta, MIN_DELTA, 1)
    confidence = real("confidence", confidence, 0, 1)
    runs = whole("runs", runs, MIN_RUNS, MAX_RUNS)
    seed = secrets.randbits(64) if seed is None else whole("seed", seed, 0, 2**128)
    decoder = decoder_name(strategy, decoder)
    check_played(strategy, sampling)
    sampling.check_alone(strategy.steps)
    source = chosen(stream, generator)
    source.make(strategy, sigma, 1, seed, decoder=decoder)  # refuses what it cannot play
    streams = max(STREAMS, 2 * math.ceil(runs * strategy.steps / VALUES))
    canaries = math.ceil(runs / streams)
    population = _population(sampling, strategy.steps, canaries)
    claimed, bound, named = _claimed(strategy, sampling, sigma, delta, epsilon, progress)
    stage = Stage(
        strategy, sampling, sigma, decoder, 2 * canaries, population, source.make, participants
    )
    generators = [np.random.Generator(np.random.PCG64([seed, part])) for part in range(4)]
    white = whitener(strategy, sigma, decoder)
    with one_thread():
        group = 0
        if sampling.groups is not None:
            group = worst_group(strategy, sampling, sigma, delta, white, named, generators[3])
        watched = _Watched(stage, white, group, generators[1])
        ratio = likelihood_ratio(strategy, sampling, sigma, group, white, generators[2])
        for index, played in enumerate(stage.many(streams, generators[0])):
            watched.look(played, ratio, index)
            if progress is not None:
                progress("runs audited", (index + 1) * canaries)
        found = watched.bounds(delta, confidence)
        findings = watched.findings()
    return Audit(
        epsilon_lower=found.epsilon,
        remove=found.remove,
        add=found.add,
        epsilon=claimed,
        bound=bound,
        findings=findings,
        delta=delta,
        sigma=sigma,
        confidence=confidence,
        runs=streams * canaries,
        resumed=streams // 2 * canaries,
        statistic=ratio.description,
        strategy=repr(strategy),
        sampling=repr(sampling),
        decoder=decoder,
        stream=source.stream,
        generator=source.generator,
        group=group if sampling.groups is not None else None,
        seed=seed,
    )


class _Watched:
    """Statistics of the runs, collected as they are played."""

    def __init__(
        self, stage: Stage, white: FloatArray, group: int, generator: np.random.Generator
    ) -> None:
        self.stage, self.white, self.group, self.generator = stage, white, group, generator
        steps = stage.strategy.steps
        self.noise_law = NoiseLaw(steps, spread(white))
        self.participation_law = ParticipationLaw(stage.scheme, steps, generator)
        self.tuning: list[tuple[FloatArray, FloatArray]] = []
        self.judged: list[tuple[FloatArray, FloatArray]] = []
        self.resumed = self.other_noise = self.other_batches = 0

    def look(self, played: Played, ratio: LikelihoodRatio, index: int) -> None:
        """Process one stream: half of its coordinates are runs with a canary."""
        white = played.noise @ self.white.T
        self.noise_law.add(played.noise, white, played.resumed)
        times = self.participation_law.add(played.batches, self.stage.examples)
        chosen = self._canaries(times)
        presence = times[chosen].toarray()
        with_it, without = white[: len(chosen)], white[self.stage.coordinates // 2 :]
        self.noise_law.add_canaries(with_it, presence)
        logs = ratio.logs(with_it + presence @ self.white.T), ratio.logs(without)
        (self.judged if index % TUNING else self.tuning).append(logs)
        self.resumed += played.resumed
        self.other_noise += not played.same_noise
        self.other_batches += not played.same_batches

    def _canaries(self, times: csr_array) -> IntArray:
        """Examples that play the canary, as many as there are runs; the first has coordinate 0.

        Where groups take turns, all are of one group, because groups are public.
        """
        groups, everyone = self.stage.scheme.groups, np.arange(self.stage.examples)
        if groups is not None:
            everyone = members_of(self.group, groups, times, self.generator)
        return np.asarray(everyone[: self.stage.coordinates // 2])

    def bounds(self, delta: float, confidence: float) -> LowerBounds:
        """Lower confidence bounds on epsilon."""
        tuning, judged = (
            (np.concatenate([p for p, _ in part]), np.concatenate([q for _, q in part]))
            for part in (self.tuning, self.judged)
        )
        return lower_bounds(tuning, judged, delta, confidence)

    def findings(self) -> tuple[Finding, ...]:
        """All tests of conformity, each with its share of the chance of a false alarm."""
        resumption = [
            Finding(
                f"{what} after a stop",
                0.0 if other else 1.0,
                f"{other} of {self.resumed} resumed runs repeated a step with different {what}",
            )
            for what, other in (("noise", self.other_noise), ("batches", self.other_batches))
        ]
        every = [*self.noise_law.findings(), *self.participation_law.findings(), *resumption]
        return tuple(replace(finding, limit=CHANCE / len(every)) for finding in every)


def check_played(strategy: Strategy, scheme: Scheme) -> None:
    """Refuse what cannot be played, before anything is computed."""
    checked_scheme(scheme).check_drawn()
    scheme.check(strategy.steps)
    if strategy.steps > MAX_AUDITED_STEPS:
        raise ParameterError(
            f"an audit keeps whole runs and is meant for at most {MAX_AUDITED_STEPS} steps, not "
            f"{strategy.steps}. Audit a prefix, strategy.prefix(steps): noise and batches of the "
            "first steps are those of the long run."
        )


def _claimed(
    strategy: Strategy,
    scheme: Scheme,
    sigma: float,
    delta: float,
    epsilon: float | None,
    progress: Progress | None,
) -> tuple[float, str, int | None]:
    """The epsilon that the runs are tested against, its origin, and the worst group if known."""
    if epsilon is not None:
        return real("epsilon", epsilon, 0, math.inf, closed="l"), CLAIMED, None
    found = certificate(strategy, scheme, sigma, delta, progress)
    group = found.details.get("worst_group")
    return found.epsilon, found.bound, group if isinstance(group, int) else None


def certificate(
    strategy: Strategy, scheme: Scheme, sigma: float, delta: float, progress: Progress | None
) -> Guarantee:
    """The smallest certified number, without amplification where none is proven."""
    ask = partial(certified_epsilon, strategy, scheme, sigma=sigma, delta=delta, progress=progress)
    try:
        return ask()
    except MethodError:
        return ask(method=PLAIN.name)


def _population(scheme: Scheme, steps: int, canaries: int) -> int:
    """Examples in each population: enough canaries, batches not too small, groups of equal size."""
    law = scheme.law(steps)
    share, rate = (1, scheme.rate(steps)) if law is None else (law.share, float(law.rates.max()))
    in_a_batch = math.ceil(min(BATCH / rate, MAX_POPULATION) * (1 - 2.0**-50))
    if scheme.groups is not None:
        wanted = max(canaries, in_a_batch)
        if wanted * scheme.groups > MAX_EXAMPLES:
            raise ParameterError(
                f"{scheme.groups} groups of {wanted} examples each are more than the "
                f"{MAX_EXAMPLES} that an audit holds at once. Audit a smaller separation."
            )
        return wanted * scheme.groups
    wanted = max(canaries, min(in_a_batch * share, MAX_POPULATION))
    return math.ceil(wanted / share) * share
