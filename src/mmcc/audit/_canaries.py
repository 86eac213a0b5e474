"""An audit of one run: coins decide which canaries are in, and releases are used to guess them.

In: scores of canaries and their coins, or a mechanism to be run once; what is certified.
Out: a `CanaryAudit`.  Rounding: bounds downwards; confidence is stated.

Scores may depend on the coins only through what the run has released; nothing else is assumed about
them.  Numbers of guesses are fixed beforehand, from public facts.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from mmcc._arrays import BoolArray, FloatArray, IntArray
from mmcc.accounting._bounds import PLAIN
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._parallel import Progress, one_thread
from mmcc.accounting._questions import MAX_SIGMA, MIN_DELTA, MIN_SIGMA
from mmcc.accounting._questions import epsilon as certified_epsilon
from mmcc.audit._audit import certificate, check_played
from mmcc.audit._canary_result import CanaryAudit
from mmcc.audit._claims import bare_claim, claim_of
from mmcc.audit._group import members_of, worst_group
from mmcc.audit._guesses import checked_guesses
from mmcc.audit._participation_law import who_took_part
from mmcc.audit._play import MakeBatches, MakeNoise, Stage
from mmcc.audit._release_scores import ReleaseScores
from mmcc.audit._streams import chosen
from mmcc.errors import ParameterError, real, whole
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy
from mmcc.strategies._decoders import decoder_name
from mmcc.training._participants import Participants

MIN_CANARIES, MAX_CANARIES = 10, 10**6
MAX_PLAYED = 2**26
"""Canaries times steps that are held at once."""
CONFIDENCE = 0.95
NEVER = 1e-9
"""Coins with a p-value of at most this are not fair."""


def audit_canaries(
    scores: ArrayLike,
    included: ArrayLike,
    guarantee: Guarantee | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    guesses: tuple[int, int] | None = None,
    confidence: float = CONFIDENCE,
    seed: int | None = None,
    progress: Progress | None = None,
) -> CanaryAudit:
    """What the scores of canaries after one run show about its privacy.

    A canary with a larger score looks more as if it had been in the data; `included` says whether
    it was, by a fair coin of its own (`Canaries.included`).  The run is tested against its
    `guarantee`, or against a claimed `epsilon` and `delta`.  `guesses` are how many canaries with
    the highest scores are guessed to be in the data, and how many with the lowest not to be; they
    must be fixed before the scores are seen.  By default they are planned for the accounted
    mechanism and this number of canaries.  Equal scores are put in a random order, by `seed`.
    """
    values, coins = checked_scores(scores, included)
    error = 1 - real("confidence", confidence, 0, 1)
    if guarantee is not None and (epsilon is not None or delta is not None):
        raise ParameterError("give either the guarantee, or epsilon= and delta=.")
    claim = bare_claim(epsilon, delta) if guarantee is None else claim_of(guarantee)
    if guesses is None:
        plan = claim.planned(values.size, error)
    else:
        plan = checked_guesses(guesses, values.size)
    seed = secrets.randbits(64) if seed is None else whole("seed", seed, 0, 2**128)
    return claim.judged(values, coins, plan, error, seed, progress)


def play_canaries(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    canaries: int = 1000,
    guesses: tuple[int, int] | None = None,
    confidence: float = CONFIDENCE,
    seed: int | None = None,
    decoder: str | None = None,
    stream: MakeNoise | str | None = None,
    generator: str | None = None,
    participants: MakeBatches = Participants,
    epsilon: float | None = None,
    progress: Progress | None = None,
) -> CanaryAudit:
    """Run the mechanism once, with canaries that each have their own direction, and audit it.

    No network is trained: a canary adds 1 in its direction to every step in which it takes part,
    and its score is the likelihood ratio of what is released there.  Noise stream and sampler are
    those of training, as in `audit`.
    """
    sigma = real("sigma", sigma, MIN_SIGMA, MAX_SIGMA)
    delta = real("delta", delta, MIN_DELTA, 1)
    error = 1 - real("confidence", confidence, 0, 1)
    count = whole("canaries", canaries, MIN_CANARIES, MAX_CANARIES)
    plan = None if guesses is None else checked_guesses(guesses, count)
    seed = secrets.randbits(64) if seed is None else whole("seed", seed, 0, 2**128)
    decoder = decoder_name(strategy, decoder)
    check_played(strategy, sampling)
    source = chosen(stream, generator)
    stage = _stage(strategy, sampling, sigma, decoder, count, source.make, participants)
    claim = (
        claim_of(certified_among_others(strategy, sampling, sigma, delta, progress))
        if epsilon is None
        else bare_claim(epsilon, delta)
    )
    with one_thread():
        generators = [np.random.Generator(np.random.PCG64([seed, part])) for part in range(4)]
        scorer = ReleaseScores(strategy, sampling, sigma, decoder, generators[2])
        group = 0
        if sampling.groups is not None:
            group = worst_group(strategy, sampling, sigma, delta, scorer.white, None, generators[3])
        plan = plan or claim.planned(count, error, scorer.model(group))
        coins = generators[0].random(count) < 0.5
        scores = scorer.of(_released(stage, coins, group, generators[1]), group)
        found = claim.judged(scores, coins, plan, error, seed, progress)
    return replace(
        found,
        scores=f"releases of one run, {scorer.description}",
        sigma=sigma,
        strategy=repr(strategy),
        sampling=repr(sampling),
        decoder=decoder,
        stream=source.stream,
        generator=source.generator,
    )


def certified_among_others(
    strategy: Strategy, scheme: Scheme, sigma: float, delta: float, progress: Progress | None
) -> Guarantee:
    """The certificate for data in which other examples contribute too, as canaries do."""
    found = certificate(strategy, scheme, sigma, delta, progress)
    if not found.setting:
        return found
    return certified_epsilon(strategy, scheme, sigma=sigma, delta=delta, method=PLAIN.name)


def _stage(
    strategy: Strategy,
    scheme: Scheme,
    sigma: float,
    decoder: str | None,
    canaries: int,
    stream: MakeNoise,
    participants: MakeBatches,
) -> Stage:
    """One coordinate for each canary; where groups take turns, equally many examples per group."""
    population = canaries * (scheme.groups or 1)
    if max(canaries, population // strategy.steps) * strategy.steps > MAX_PLAYED:
        raise ParameterError(
            f"{canaries} canaries, each with {strategy.steps} releases and in one of "
            f"{scheme.groups or 1} groups, are more than an audit holds at once. Play fewer."
        )
    stream(strategy, sigma, 1, 0, decoder=decoder)  # refuses what it cannot play
    return Stage(strategy, scheme, sigma, decoder, canaries, population, stream, participants)


def _released(
    stage: Stage, included: BoolArray, group: int, generator: np.random.Generator
) -> FloatArray:
    """The releases of one run in each canary's direction: its participations if in, plus noise."""
    played = stage.play(int.from_bytes(generator.bytes(16), "little"), None, 0)
    times, _ = who_took_part(played.batches, stage.examples)
    members: IntArray = np.arange(stage.coordinates)
    if stage.scheme.groups is not None:
        members = members_of(group, stage.scheme.groups, times, generator)[: included.size]
    presence = times[members].toarray()
    return np.asarray(played.noise + included[:, None] * presence)


def checked_scores(scores: ArrayLike, included: ArrayLike) -> tuple[FloatArray, BoolArray]:
    """A number for each canary, and its coin."""
    try:
        values, coins = np.asarray(scores), np.asarray(included)
    except (TypeError, ValueError, RuntimeError) as problem:  # torch: a tensor requires gradients
        raise ParameterError(
            f"scores and included must be one value for each canary: {problem}."
        ) from None
    if values.dtype.kind not in "fiu" or values.ndim != 1:
        raise ParameterError(
            "scores must be one number for each canary, got an array of shape "
            f"{values.shape} and type {values.dtype}."
        )
    if coins.dtype != np.bool_ or coins.shape != values.shape:
        raise ParameterError(
            f"included must be True or False for each of the {values.size} canaries with a score, "
            f"got an array of shape {coins.shape} and type {coins.dtype}."
        )
    nobody = np.flatnonzero(np.isnan(values))
    if nobody.size:
        raise ParameterError(
            f"the score of canary {nobody[0]} is nan, which cannot be ranked. Give a canary that "
            "cannot be scored a neutral score, whatever its coin."
        )
    whole("the number of canaries", values.size, MIN_CANARIES, MAX_CANARIES)
    _check_coins(coins)
    return values.astype(np.float64), coins


def _check_coins(coins: BoolArray) -> None:
    """Refuse coins that fair ones would show in at most one of 10^9 audits."""
    heads = int(coins.sum())
    if 2 * binom.cdf(min(heads, coins.size - heads), coins.size, 0.5) <= NEVER:
        raise ParameterError(
            f"{heads} of {coins.size} canaries were in the data, which is implausible for fair "
            "coins: the bounds need each canary to be in by a fair coin of its own, as in "
            "mmcc.training.Canaries."
        )
    turns = int((coins[1:] != coins[:-1]).sum())
    if binom.sf(turns - 1, coins.size - 1, 0.5) <= NEVER:
        raise ParameterError(
            "canaries that are in the data alternate with those that are not, which is implausible "
            "for fair coins: the bounds need each canary to be in by a fair coin of its own, as in "
            "mmcc.training.Canaries."
        )
