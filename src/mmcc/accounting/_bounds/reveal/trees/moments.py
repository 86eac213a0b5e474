"""Moments of Lhat over a forest: from the leaves to the roots, with identical subtrees once.

In: a forest, the largest count at each height, powers s.  Out: E_P~[Lhat^s; no count above].
Rounding: errors are stated relative to the moment at the real part of s (`Moments.error`).

Below a node of height h with k participations, with T_j the moment of the node's own factor,

    M_h(k) = sum_j Hyp(j | k) T_j M_{h-1}(j) M_{h-1}(k-j),    M_h(0) = M_h(2^h) = 1,

and a tree has sum_k Bin(k) T_k M_H(k).  The real moments R come first; then everything is divided
by them: M_h(k) = R_h(k) m_h(k), m_h(k) = sum_j G_j m(j) m(k-j), G_j the mean of e^{i om log f} over
the tilted law of output and j (`Table.joint`).  So |m| <= 1, and a table's error needs no factor.

*Errors.*  M is a sum over histories (all outputs and counts) of products; with k participations at
most k H factors differ from 1, each with a relative error of at most e.  Since k H e <= 1/1000,
(1+e)^{kH} - 1 <= 1.001 k H e, and the mean of k is that of the tilted law.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray, IntArray
from mmcc.accounting._bounds.reveal.inversion import Moments
from mmcc.accounting._bounds.reveal.trees.forest import Forest, Grove
from mmcc.accounting._bounds.reveal.trees.priors import (
    count_error,
    count_law,
    split_error,
    split_law,
)
from mmcc.accounting._bounds.reveal.trees.tables import Parts, Power, Table, table_for
from mmcc.accounting._bounds.waves import product, waves

LARGEST_ERROR = 1e-3
ROUGH = 5.0
"""Digits of accuracy of the lattices while searching."""
SILENT = 22.0
"""Frequencies whose moment is below e^-SILENT times the real one are skipped and paid for."""
DIGITS = 30.0
DOUBLINGS = 3
"""Doublings of frequency with their own lattices, as high frequencies need fine ones."""
BATCH = 256


@dataclass(frozen=True, eq=False, slots=True)
class Levels:
    """Real moments and tables of every node; `splits[h][k]` is None if the factor is 1."""

    splits: list[list[Table | None]]
    logs: list[FloatArray]
    """logs[h][k]: logarithm of R_h(k)."""
    worst: float
    """The largest error of a table."""


def moments(
    forest: Forest, cuts: tuple[int, ...], real: float, frequencies: FloatArray
) -> Moments | None:
    """E[Lhat^(real + i om)] for increasing frequencies, the first of which is 0.

    None if the numbers leave the range of floats or rounding dominates.
    """
    groups = _relevant_frequencies(forest, cuts, real, frequencies)
    if groups is None:
        return None
    values = np.zeros(frequencies.size, dtype=complex)
    scale: float | None = None
    error = 0.0
    for places in groups:
        power = Power(real, float(frequencies[places[-1]]), DIGITS)
        levels = levels_for(forest, cuts, power)
        roots = None if levels is None else roots_for(forest, power, levels)
        if levels is None or roots is None:
            return None
        total = log_total(forest, roots)
        scale = total if scale is None else scale
        for start in range(0, places.size, BATCH):
            some = places[start : start + BATCH]
            turned = _turn_all(forest, levels, roots, frequencies[some])
            values[some] = turned * math.exp(total - scale)
        error = max(error, _error(forest, levels, roots))
    if scale is None or not error < LARGEST_ERROR or not np.isfinite(values).all():
        return None
    return Moments(values, scale, error + 2 * math.exp(-SILENT))


def rough_moment(forest: Forest, cuts: tuple[int, ...], real: float) -> float:
    """The logarithm of the real moment on coarse lattices, or infinity."""
    power = Power(real, 0.0, ROUGH)
    levels = levels_for(forest, cuts, power)
    roots = None if levels is None else roots_for(forest, power, levels)
    return math.inf if roots is None else log_total(forest, roots)


def _relevant_frequencies(
    forest: Forest, cuts: tuple[int, ...], real: float, frequencies: FloatArray
) -> list[IntArray] | None:
    """Groups of frequencies at which the moment may matter, each up to twice the last.

    |m| <= prod over trees of sum_k |G_k|, which needs only the roots' factors.
    """
    levels = levels_for(forest, cuts, Power(real, 0.0, DIGITS))
    if levels is None:
        return None
    edges = frequencies[-1] * 2.0 ** np.arange(-2 * DOUBLINGS, 1)
    starts = np.searchsorted(frequencies, np.concatenate([[-1.0], edges]), side="right")
    loud = []
    for first, last in itertools.pairwise(starts):
        places = np.arange(first, last)
        if places.size:
            power = Power(real, float(frequencies[last - 1]), DIGITS)
            roots = roots_for(forest, power, levels)
            if roots is None:
                return None
            bound = np.zeros(places.size)
            for grove, table in zip(forest.groves, roots, strict=True):
                bound += grove.count * np.log(_sizes(table, frequencies[places]) + table.error)
            loud.append(places[bound > -SILENT])
    kept = np.concatenate(loud)
    if not kept.size or kept[0] != 0:
        return None
    top = frequencies[kept[-1]]
    edges = top * 2.0 ** np.arange(-DOUBLINGS, 1)
    starts = np.searchsorted(frequencies[kept], np.concatenate([[-1.0], edges]), side="right")
    groups = [kept[first:last] for first, last in itertools.pairwise(starts)]
    return [group for group in groups if group.size]


def _sizes(table: Table, frequencies: FloatArray) -> FloatArray:
    """The sum of |G_k| over k."""
    return np.concatenate(
        [
            np.abs(_turn(table, frequencies[start : start + BATCH])).sum(axis=0)
            for start in range(0, frequencies.size, BATCH)
        ]
    )


def levels_for(forest: Forest, cuts: tuple[int, ...], power: Power) -> Levels | None:
    """Real moments from the leaves up; None if they leave the range of floats."""
    splits: list[list[Table | None]] = [[None] * (cuts[0] + 1)]
    logs = [np.zeros(cuts[0] + 1)]
    worst = 0.0
    for height in range(1, forest.height + 1):
        level: list[Table | None] = []
        values = np.zeros(cuts[height] + 1)
        for count in range(values.size):
            table = None
            if 0 < count < 1 << height:
                table = table_for(_split(forest, height, count, logs[-1]), power)
                if table is None:
                    return None
                values[count] = table.log_total
                worst = max(worst, table.error)
            level.append(table)
        splits.append(level)
        logs.append(values)
    return Levels(splits, logs, worst)


def roots_for(forest: Forest, power: Power, levels: Levels) -> list[Table] | None:
    """The tables of the roots, one per grove."""
    roots = []
    for grove in forest.groves:
        table = table_for(_root(forest, grove, levels.logs[grove.height]), power)
        if table is None:
            return None
        roots.append(table)
    return roots


def log_total(forest: Forest, roots: list[Table]) -> float:
    """The logarithm of the real moment."""
    groves = zip(forest.groves, roots, strict=True)
    return math.fsum(grove.count * table.log_total for grove, table in groves)


def _error(forest: Forest, levels: Levels, roots: list[Table]) -> float:
    """The error of all moments, relative to the real one."""
    error = 0.0
    for grove, table in zip(forest.groves, roots, strict=True):
        most = levels.logs[grove.height].size - 1
        if not most * grove.height * levels.worst <= LARGEST_ERROR:
            return math.inf
        mean = float(table.joint.sum(axis=0) @ table.parts)
        error += grove.count * 1.001 * (table.error + grove.height * mean * levels.worst)
    return math.expm1(error) if error < 1 else math.inf


def least_part(count: int, below: int) -> int:
    """The smallest j such that neither j nor count - j is above `below`."""
    return max(0, count - below)


def _split(forest: Forest, height: int, count: int, below: FloatArray) -> Parts:
    """The parts of a split: j participations on one side, count - j >= j on the other."""
    j = np.arange(least_part(count, below.size - 1), count // 2 + 1)
    law = split_law(1 << height, count)[-j.size :]
    both = np.where(2 * j < count, 2.0, 1.0) * law
    means = np.asarray((count - 2 * j) * forest.amplitude(height), dtype=np.float64)
    return Parts(both, means, below[j] + below[count - j], True, split_error(count))


def _root(forest: Forest, grove: Grove, below: FloatArray) -> Parts:
    """The parts of a root: k participations in the tree."""
    columns, cut = 1 << grove.height, below.size - 1
    law = count_law(columns, forest.probability, cut)
    means = np.arange(cut + 1.0) * grove.amplitude
    error = count_error(columns, forest.probability, cut)
    return Parts(law, means, below, False, error)


def _turn_all(
    forest: Forest, levels: Levels, roots: list[Table], frequencies: FloatArray
) -> ComplexArray:
    """The moments at these frequencies, relative to the real one."""
    ones = np.ones(frequencies.size, dtype=complex)
    found: list[list[ComplexArray]] = []
    for level in levels.splits:
        here: list[ComplexArray] = []
        for count, table in enumerate(level):
            if table is None:
                here.append(ones)
                continue
            below = found[-1]
            first = least_part(count, len(below) - 1)
            value = np.zeros_like(ones)
            for row, part in zip(_turn(table, frequencies), table.parts, strict=True):
                j = first + int(part)
                value += row * below[j] * below[count - j]
            here.append(value)
        found.append(here)
    total = ones
    for grove, table in zip(forest.groves, roots, strict=True):
        value = np.zeros_like(ones)
        for row, part in zip(_turn(table, frequencies), table.parts, strict=True):
            value += row * found[grove.height][int(part)]
        total = total * value**grove.count
    return total


def _turn(table: Table, frequencies: FloatArray) -> ComplexArray:
    """For each part, the mean of e^{i om log f} times its weight."""
    return product(table.joint.T, waves(table.logs, frequencies))
