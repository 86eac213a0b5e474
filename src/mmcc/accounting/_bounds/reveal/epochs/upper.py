"""Certified epsilons and deltas of a Toeplitz strategy under random allocation.

In: strategy, the length of an epoch, sigma.  Out: `Answer`.
Rounding: results are upper bounds; infinite (delta: 1) where nothing could be certified.

The Gram matrix is dominated by a chain's, as for independent rounds; then an epoch at a time is
revealed.  The cost grows with the length of an epoch.  Proofs: docs/theory-allocation-chains.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mmcc.accounting._bounds.reveal.chains.chain import Chain
from mmcc.accounting._bounds.reveal.chains.curve import EXIT_SHARE, renyi_epsilon
from mmcc.accounting._bounds.reveal.epochs.lattice import EpochLattice, epoch_lattice
from mmcc.accounting._bounds.reveal.epochs.moments import (
    TERMS, gap_for, moments, ray_for, taylor, transform, whole_moment,
)
from mmcc.accounting._bounds.reveal.inversion import Curve, Inversion, Line

BLUR = 1.5e-3
PERIODS, LEFT = 6.0, 7.0
NEGLIGIBLE = 1e-3
ORDERS = 0.6


def epoch_curve(chain: Chain, length: int, adjacency: str, delta: float, verbose=False) -> Curve | None:
    import time
    t0 = time.time()
    lattice = epoch_lattice(chain, length, adjacency, EXIT_SHARE * delta)
    if lattice is None:
        return None
    epochs = chain.steps // length
    series = taylor(lattice)
    t1 = time.time()
    logs = [whole_moment(lattice, series, epochs, k) for k in range(1, TERMS)]
    rough, saddle = min((renyi_epsilon(m, k + 2, delta), k + 2) for k, m in enumerate(logs))
    order = 1 + ORDERS
    line = line_for(order, saddle, rough, logs[0], delta)
    remove = adjacency == "remove"
    zeta = line.nodes()
    if remove:
        zeta = 1 - zeta.conj()
    accuracy = max(1e-4 * delta / epochs, 1e-13)
    last = float(zeta.imag[-1])
    gap = gap_for(lattice, epochs, float(zeta[0].real), last)
    ray = ray_for(lattice, series, float(zeta[0].real), last, gap, accuracy)
    t2 = time.time()
    tr = transform(lattice, series, ray)
    t3 = time.time()
    found = moments(tr, epochs, zeta)
    t4 = time.time()
    if verbose:
        print(adjacency, "states", lattice.states.size, "nodes", lattice.nodes.size, "ray", ray, gap, "line", line.count, last, "rough", rough, saddle)
        print("times", t1-t0, t2-t1, t3-t2, t4-t3, None if found is None else found.error)
        e = tr.errors(zeta, np.abs(tr.matrices(zeta[:1])[0])); print("errors", e[::max(len(e)//12,1)])
    if found is None:
        return None
    from dataclasses import replace
    if remove:
        found = replace(found, values=found.values.conj())
    return Curve(Inversion(line, found), lattice.exits, lattice.inflation, rough, {})


def line_for(order: float, saddle: float, rough: float, variance: float, delta: float) -> Line:
    smoothing = 2 * BLUR * max(rough, math.sqrt(variance)) / saddle
    period = max(PERIODS * math.sqrt(variance), (math.log(1 / delta) + LEFT) / (order - 1))
    step = 2 * math.pi / period
    size = 0.5 * variance * order * (order - 1) - (order - 1) * rough
    allowed = math.log(NEGLIGIBLE * delta) - size
    last = math.sqrt(1 / smoothing)
    while -0.5 * smoothing * last * last - math.log(math.pi * smoothing * last**3) > allowed:
        last *= 1.02
    return Line(order, step, math.ceil(last / step) + 1, smoothing)
