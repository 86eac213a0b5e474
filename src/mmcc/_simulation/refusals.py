"""Refused verdicts: what was seen, and what would probably pass.

In: a claim, an attempt or its pilots.  Out: an error to raise.  Rounding: none; these are hints.
"""

from __future__ import annotations

from collections.abc import Mapping

from mmcc._simulation.claims import MAX_EPSILON, Claim
from mmcc._simulation.record import Attempt
from mmcc._simulation.trials import PASSING, Pilot
from mmcc.errors import NotVerifiedError

Pilots = Mapping[tuple[int, bool], Pilot]
"""Pilots by group and adjacency."""


def refused_by_pilots(claim: Claim, pilots: Pilots) -> NotVerifiedError:
    """The refusal if no verdict was drawn."""
    place, pilot = max(pilots.items(), key=lambda item: item[1].delta()[0])
    spent = sum(one.count for one in pilots.values())
    who = "a pilot (no verdict was drawn, and no attempt is counted)"
    epsilon = max(one.passing() for one in pilots.values())
    return _refusal(claim, place, pilot.delta(), pilot.mean, spent, who, epsilon)


def refused_by_verdict(claim: Claim, attempt: Attempt, pilots: Pilots | None) -> NotVerifiedError:
    """The refusal after an attempt; the pilots of a resumed attempt are not known."""
    state = next(state for state in attempt.states if state.passed is False)
    place = state.trial.group, state.trial.experiment.remove
    epsilon = None
    if pilots:
        looked = pilots[place].delta()[0]
        factor = state.delta()[0] / looked if looked > 0 else 1.0  # the verdict has seen more
        epsilon = max(
            pilot.passing(factor if key == place else 1.0) for key, pilot in pilots.items()
        )
    spent = attempt.pilot_samples + attempt.samples
    who = f"attempt {attempt.number} (the next one has half of its chance of error)"
    return _refusal(claim, place, state.delta(), state.trial.bets.mean, spent, who, epsilon)


def _refusal(
    claim: Claim,
    place: tuple[int, bool],
    seen: tuple[float, float],
    below: float,
    spent: int,
    who: str,
    epsilon: float | None,
) -> NotVerifiedError:
    asked, (mean, error) = claim.question, seen
    beside = asked.delta - asked.failure - below
    delta = (mean + error) / PASSING + asked.delta - below
    side = "remove" if place[1] else "add"
    where = f"{side}, group {place[0]}" if len(claim.places) > 2 else side
    if epsilon is not None and not epsilon < MAX_EPSILON:
        epsilon = None
    first = "" if epsilon is None else f"epsilon = {epsilon:.4g} at this delta, or "
    return NotVerifiedError(
        f"not verified: after {spent} samples delta at epsilon = {asked.epsilon:g} is about "
        f"{mean + beside:.3g} ({where}; standard error {error:.2g}), and less than "
        f"{below + beside:.4g} was to be shown, by {who}. About {first}delta = {delta:.3g} at this "
        "epsilon would pass.",
        samples=spent,
        epsilon=epsilon,
        delta=delta,
    )
