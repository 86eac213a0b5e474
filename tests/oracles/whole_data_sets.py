"""Three steps of a mechanism over a whole small data set, all participations of everybody summed.

Truth for truncated Poisson sampling: every example tosses a coin in each step, and of too many
heads a uniformly random subset takes part.  Contributions are whole numbers, fixed in
advance; noise is N(0, 1) after C is divided by sigma.  Imports nothing from mmcc.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc


def batches(examples, probability, most):
    """All batches of one step with their chances."""
    chances = {}
    for size in range(examples + 1):
        for heads in combinations(range(examples), size):
            coins = probability**size * (1 - probability) ** (examples - size)
            kept = list(combinations(heads, min(size, most)))
            for batch in kept:
                chances[batch] = chances.get(batch, 0.0) + coins / len(kept)
    return chances


def step_law(contributions, probability, most):
    """Chances of the sums -N, ..., N of one step, whose contributions are whole numbers."""
    count = len(contributions)
    law = np.zeros(2 * count + 1)
    for batch, chance in batches(count, probability, most).items():
        law[count + sum(contributions[one] for one in batch)] += chance
    return law


class Output:
    """The law of three outputs; `values` has a row for each example and a column for each step."""

    def __init__(self, gram, values, probability, most):
        values = np.asarray(values)
        laws = [step_law(column, probability, most) for column in values.T]
        sums = np.arange(-len(values), len(values) + 1)
        x = np.stack(np.meshgrid(sums, sums, sums, indexing="ij"), axis=-1)
        chances = np.einsum("a,b,c->abc", *laws)
        self.gram, self.sums, self.chances, self.x = gram, sums, chances, x
        self.weights = chances * np.exp(-0.5 * np.einsum("...i,ij,...j->...", x, gram, x))

    def density(self, u):
        """Against outputs without any contribution, at u = A^T y."""
        first, second, third = (np.exp(u[:, [step]] * self.sums) for step in range(3))
        size = self.sums.size
        inner = (third @ self.weights.reshape(-1, size).T).reshape(-1, size, size)
        return np.einsum("pa,pb,pab->p", first, second, inner)

    def draw(self, root, count, generator):
        """Outputs y, with A^T y = R^T y for G = R^T R."""
        picked = generator.choice(self.chances.size, count, p=self.chances.reshape(-1))
        return self.x.reshape(-1, 3)[picked] @ root.T + generator.standard_normal((count, 3))


def delta_of(first, second, epsilon, points=2**12, repeats=8, seed=0):
    """P(A) - e^epsilon Q(A) for the best A, by scrambled nets, and its standard error."""
    values, vectors = np.linalg.eigh(first.gram)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    generator = np.random.default_rng(seed)

    def excess(y):
        """(P - e^epsilon Q)_+ and P, as densities against outputs without any contribution."""
        ours = first.density(y @ root)
        return np.maximum(ours - np.exp(epsilon) * second.density(y @ root), 0.0), ours

    pilot = first.draw(root, 20_000, generator)
    found, ours = excess(pilot)
    if not found.any():
        return 0.0, 0.0
    centre, factor = normal_fit(pilot, found / ours)
    for _ in range(2):  # where the excess really is, which outputs from P may hardly meet
        z = generator.standard_normal((20_000, 3))
        y = centre + z @ factor.T
        centre, factor = normal_fit(y, excess(y)[0] * weight(y, z, factor))
    means = []
    for _ in range(repeats):
        net = qmc.Sobol(3, seed=generator).random(points)
        z = ndtri(np.clip(net, 1e-12, 1 - 1e-12))
        y = centre + z @ factor.T
        means.append(float(np.mean(excess(y)[0] * weight(y, z, factor))))
    return float(np.mean(means)), float(np.std(means, ddof=1) / np.sqrt(repeats))


def normal_fit(points, weights):
    """Centre and factor of a normal law somewhat wider than weighted points."""
    centre = weights @ points / weights.sum()
    spread = (points - centre).T @ ((points - centre) * weights[:, None]) / weights.sum()
    return centre, np.linalg.cholesky(1.5 * spread + 0.1 * np.eye(3))


def weight(y, z, factor):
    """Density of N(0, 1) at y over that with which y = centre + factor z was drawn."""
    logs = 0.5 * (z**2).sum(axis=1) - 0.5 * (y**2).sum(axis=1)
    return np.exp(logs) * np.linalg.det(factor)


def both_deltas(gram, values, members, probability, most, epsilon, **options):
    """Remove and add, with their standard errors: the contributions of `members` become zero."""
    without = np.array(values)
    without[list(members)] = 0
    present = Output(gram, values, probability, most)
    absent = Output(gram, without, probability, most)
    return [
        delta_of(first, second, epsilon, **options)
        for first, second in ((present, absent), (absent, present))
    ]
