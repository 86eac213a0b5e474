"""Claim: a run with canaries is the run without those whose coins say so, and is audited as such.

Truth: canaries with gradients of their own directions, and participants drawn without any canary.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import linear, private  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Subset, TensorDataset  # noqa: E402

from mmcc import MmccError, sampling, strategies  # noqa: E402
from mmcc.audit import GradientScores, audit_canaries  # noqa: E402
from mmcc.sampling._registry import SCHEMES as REGISTERED  # noqa: E402
from mmcc.training import Canaries, Participants, make_private  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

STEPS, OTHERS, COUNT, LABELS = 8, 20, 60, 3
SCHEMES = {
    "poisson": sampling.Poisson(0.5),
    "cyclic-poisson": sampling.CyclicPoisson(0.7, 2),
    "min-separation": sampling.MinSeparation(0.5, 2),
    "balls-in-bins": sampling.BallsInBins(4),
    "random-allocation": sampling.RandomAllocation(4, 2),
    "truncated-poisson": sampling.TruncatedPoisson(0.5, 60, OTHERS + COUNT),
    "shuffle": sampling.Shuffle(4),
}


def test_every_scheme_that_a_loader_can_draw_is_tried():
    """Those of `Unsampled` are chosen by the deployment; nobody draws them."""
    assert set(SCHEMES) == set(REGISTERED) - {"unsampled"}
    assert all(
        type(scheme).__name__ == REGISTERED[name].class_name for name, scheme in SCHEMES.items()
    )


def with_canaries(seed=4):
    """Canary k has pixel k alone; other examples have gradients 0."""
    own = TensorDataset(10 * torch.eye(COUNT, dtype=torch.float64), torch.arange(COUNT) % LABELS)
    others = torch.zeros(OTHERS, COUNT, dtype=torch.float64)
    return Canaries(TensorDataset(others, torch.zeros(OTHERS, dtype=torch.long)), own, seed)


def watched(scheme, sigma, canaries, apart=False, **options):
    """A whole run on canaries, and its scores."""
    torch.manual_seed(1)
    model = nn.Linear(COUNT, LABELS, bias=False).double()
    before = copy.deepcopy(model)
    module, optimizer, loader = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.5),
        canaries,
        strategy=strategies.identity(STEPS),
        sampling=scheme,
        max_grad_norm=0.5,
        sigma=sigma,
        delta=1e-5,
        seed=9,
        **options,
    )
    scores = GradientScores(
        before, optimizer, canaries, nn.functional.cross_entropy, chunk=25, apart=apart
    )
    while not optimizer.finished:
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs), labels).backward()
            optimizer.step()
    return optimizer, scores


@pytest.mark.parametrize("name", SCHEMES)
def test_what_is_released_along_a_canary_is_whether_it_took_part(name):
    """Whoever is in the data was drawn as if nobody were left out, and whoever is not adds 0."""
    canaries, scheme = with_canaries(), SCHEMES[name]
    _, scores = watched(scheme, 1e-7, canaries)
    drawn = Participants(scheme, STEPS, OTHERS + COUNT, 9)
    there = np.zeros((COUNT, STEPS))
    for step in range(STEPS):
        batch = drawn.at(step)
        there[batch[batch >= OTHERS] - OTHERS, step] = 1.0
    assert scores.released == pytest.approx(there * canaries.included[:, None], abs=1e-4)
    first = canaries.included & (there.sum(axis=1) > 0)
    values = scores.scores()
    assert values[first].min() > values[~first].max()


@pytest.mark.parametrize("name", SCHEMES)
def test_a_run_without_noise_contradicts_what_it_was_sold_for(name):
    canaries = with_canaries()
    _, scores = watched(SCHEMES[name], 1e-7, canaries)
    found = audit_canaries(
        scores.scores(), canaries.included, epsilon=1.0, delta=1e-5, guesses=(15, 0)
    )
    assert found.correct == 15
    assert found.epsilon_lower > 1.0
    assert not found.passed


def overlapping():
    """Every canary has its own pixel, and all have three times as much in common."""
    own = with_canaries()
    pictures = 10 * torch.eye(COUNT, dtype=torch.float64) + 4.0
    return Canaries(own.data, TensorDataset(pictures, own.canaries.tensors[1]), seed=4)


def test_canaries_that_overlap_are_told_apart():
    canaries = overlapping()
    correct = []
    for apart in (False, True):
        _, scores = watched(SCHEMES["shuffle"], 1e-7, canaries, apart=apart)
        found = audit_canaries(
            scores.scores(), canaries.included, epsilon=1.0, delta=1e-5, guesses=(25, 25)
        )
        correct.append(found.correct)
    assert correct[0] < 45
    assert correct[1] == 50


def test_canaries_that_are_alike_do_no_harm():
    own = with_canaries()
    twice = Subset(own.canaries, [*range(COUNT // 2)] * 2)
    canaries = Canaries(own.data, twice, seed=4)
    _, scores = watched(SCHEMES["shuffle"], 1e-7, canaries, apart=True)
    assert np.isfinite(scores.scores()).all()


def test_a_run_is_held_to_its_own_guarantee():
    canaries = with_canaries()
    optimizer, scores = watched(SCHEMES["shuffle"], 1.0, canaries)
    found = audit_canaries(scores.scores(), canaries.included, optimizer.guarantee, seed=1)
    assert found.passed, str(found)
    assert found.epsilon == optimizer.guarantee.epsilon
    assert found.sampling == repr(SCHEMES["shuffle"])
    assert found.family is not None


def test_parts_of_batches_are_one_release():
    canaries = with_canaries()
    released = [
        watched(SCHEMES["poisson"], 1e-7, canaries, physical_batch_size=size)[1].released
        for size in (None, 7)
    ]
    assert released[0].shape == (COUNT, STEPS)
    assert released[0] == pytest.approx(released[1], abs=1e-4)


# ---------------------------------------------------------------- the data set


def test_canaries_stand_behind_the_examples():
    data = Canaries([10, 11, 12], [20, 21], seed=1)
    assert [data[k] for k in range(len(data))] == [10, 11, 12, 20, 21]
    assert sorted([*data.absent, *(3 + np.flatnonzero(data.included))]) == [3, 4]
    with pytest.raises(MmccError, match="index"):
        data[5]


def test_coins_are_fair_and_independent_and_those_of_the_seed():
    coins = np.array([Canaries([0], range(64), seed).included for seed in range(200)])
    deviation = np.sqrt(coins.size) / 2
    assert abs(coins.sum() - coins.size / 2) < 5 * deviation
    assert abs((coins[:, 1:] != coins[:, :-1]).sum() - coins[:, 1:].size / 2) < 5 * deviation
    assert (coins[3] == Canaries([5], range(64), 3).included).all()
    assert (Canaries([0], range(64)).included != Canaries([0], range(64)).included).any()
    with pytest.raises(ValueError, match="read-only"):
        Canaries([0], range(4)).included[0] = True


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Canaries([1], []), "number of canaries"),
        (lambda: Canaries(Canaries([1], [2]), [3]), "has canaries already"),
        (lambda: Canaries([1], [2], seed=-1), "seed"),
    ],
)
def test_data_that_cannot_be_audited_are_refused(make, message):
    with pytest.raises(MmccError, match=message):
        make()


# ---------------------------------------------------------------- what is refused


def scored(optimizer, canaries, module=None):
    loss = nn.functional.cross_entropy
    return GradientScores(linear() if module is None else module, optimizer, canaries, loss)


def small(seed=2):
    one = TensorDataset(torch.zeros(12, 4, dtype=torch.float64), torch.zeros(12, dtype=torch.long))
    return Canaries(one, one, seed)


@pytest.mark.parametrize(
    "data",
    [
        lambda canaries: canaries.data,
        lambda canaries: small(3),
        lambda canaries: Subset(canaries, range(20)),
    ],
)
def test_scores_of_a_run_that_does_not_have_these_canaries(data):
    canaries = small()
    _, optimizer, _ = private(None, data(canaries))
    with pytest.raises(MmccError, match="give make_private this same Canaries object"):
        scored(optimizer, canaries)


def test_a_loader_of_canaries_will_do():
    canaries = small()
    _, optimizer, _ = private(None, DataLoader(canaries, batch_size=7))
    scored(optimizer, canaries)


def test_scores_of_a_run_that_is_not_done():
    canaries = small()
    _, optimizer, _ = private(None, canaries)
    with pytest.raises(MmccError, match="0 of 7 steps were watched"):
        scored(optimizer, canaries).scores()


def test_scores_need_a_private_run_and_a_module_without_its_hooks():
    canaries, model = small(), linear()
    with pytest.raises(MmccError, match="not SGD"):
        scored(torch.optim.SGD(model.parameters(), lr=1.0), canaries)
    module, optimizer, _ = private(model, canaries)
    with pytest.raises(MmccError, match="made before make_private"):
        scored(optimizer, canaries, module)
