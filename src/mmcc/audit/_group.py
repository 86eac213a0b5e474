r"""The group of the canary, where groups take turns: they are public, and one is the worst.

In: the mechanism as it was accounted.  Out: the group whose examples are easiest to detect.
Rounding: plain floating point.  Any group gives a valid bound, a better one a larger bound; it is
chosen before anything is played, on simulated runs, so the choice costs no confidence.

An observer of the releases sees A 1_S plus white noise.  Where everyone takes part in all rounds,
or where a group has one round, epsilon grows with |A 1_group|.  Otherwise, of the groups that can
be the worst for C, those with the largest |A 1_group|, and the one that the certificate names, are
simulated.  For trees A is not C / sigma, and any group can be the worst.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from mmcc._arrays import FloatArray, IntArray
from mmcc.audit._bound import lower_bounds
from mmcc.audit._statistic import likelihood_ratio
from mmcc.sampling import Scheme
from mmcc.strategies._base import EXACT, Strategy

FEW = 8
"""The most groups that are simulated, besides the one that a certificate names."""
PILOT = 2**13
"""Simulated runs with the canary and without, for each group."""


def worst_group(
    strategy: Strategy,
    scheme: Scheme,
    sigma: float,
    delta: float,
    white: FloatArray,
    named: int | None,
    generator: np.random.Generator,
) -> int:
    """The group to audit; `named` is the worst one according to a certificate."""
    steps = strategy.steps
    separation = scheme.stride(steps)
    possible = strategy.groups(separation) if EXACT in strategy.decoders else range(separation)
    norms = {
        group: float(np.linalg.norm(white[:, group::separation].sum(axis=1))) for group in possible
    }
    largest = sorted(norms, key=lambda group: -norms[group])[:FEW]
    rounds = scheme.rounds(steps)
    certain = rounds is not None and rounds.probability == 1.0
    if certain or separation == steps or len(largest) == 1:
        return largest[0]
    noise = generator.standard_normal((2, PILOT, steps))

    def revealed(group: int) -> tuple[float, float]:
        ratio = likelihood_ratio(strategy, scheme, sigma, group, white, generator)
        sets = scheme.draw(steps, PILOT, generator, group)
        presence = np.zeros((PILOT, steps))
        presence[sets.owners(), sets.steps] = 1.0
        logs = ratio.logs(noise[0] + presence @ white.T), ratio.logs(noise[1])
        return lower_bounds(logs, logs, delta, 0.5).epsilon, norms[group]

    tried = largest if named not in norms or named in largest else [*largest, named]
    return max(tried, key=revealed)


def members_of(
    group: int, groups: int, times: csr_array, generator: np.random.Generator
) -> IntArray:
    """The examples of a group, found from who took part when.

    Groups have equal sizes, and an example that never takes part is the same in any: so the group
    is everyone seen in its steps, filled up with examples that were never seen.
    """
    examples = int(times.shape[0])
    own = np.asarray(times[:, group::groups].sum(axis=1)).ravel() > 0
    never = np.flatnonzero(np.asarray(times.sum(axis=1)).ravel() == 0)
    room = examples // groups - int(own.sum())
    some = generator.choice(never, min(max(0, room), never.size), replace=False)
    return np.sort(np.concatenate([np.flatnonzero(own), some]))
