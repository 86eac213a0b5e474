"""Claim: a DataLoader gets the participants of each step, once each, whole or in chunks."""

from __future__ import annotations

import json

import pytest

from mmcc.errors import ParameterError, SamplingError
from mmcc.sampling import (
    BallsInBins,
    CyclicPoisson,
    MinSeparation,
    Poisson,
    RandomAllocation,
    Shuffle,
)
from mmcc.training._participants import Participants

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

from mmcc.training._loader import BatchSampler  # noqa: E402

STEPS, EXAMPLES = 12, 30
ALL = (
    Poisson(0.1),
    CyclicPoisson(0.3, 3),
    MinSeparation(0.1, 4),
    BallsInBins(6),
    RandomAllocation(6, 2),
    Shuffle(6),
)


def participants(scheme=ALL[0], seed=1):
    return Participants(scheme, STEPS, EXAMPLES, seed)


def batches_of(drawn):
    return [drawn.at(step).tolist() for step in range(drawn.steps)]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # workers are forked
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("physical", [None, 2])
@pytest.mark.parametrize("scheme", [Poisson(0.1), MinSeparation(1, 2)], ids=str)
def test_a_data_loader_delivers_what_was_drawn(scheme, workers, physical):
    """Every other batch is empty under the second scheme."""
    drawn = participants(scheme)
    loader = DataLoader(
        range(EXAMPLES),  # its items are the indices
        batch_sampler=BatchSampler(drawn, physical=physical),
        num_workers=workers,
        collate_fn=list,
    )
    truth = batches_of(drawn)
    pieces = [
        batch[k : k + (physical or EXAMPLES)]
        for batch in truth
        for k in range(0, max(1, len(batch)), physical or EXAMPLES)
    ]
    assert len(loader) == len(pieces)
    assert list(loader) == pieces
    assert list(loader) == []  # every step is drawn once


@pytest.mark.parametrize("scheme", ALL, ids=str)
@pytest.mark.parametrize("physical", [1, 3, 5, 1000])
def test_chunks_make_up_the_logical_batch(scheme, physical):
    drawn = participants(scheme)
    sampler = BatchSampler(drawn, physical=physical)
    pieces = iter(list(sampler))
    for step in range(STEPS):
        batch = drawn.at(step).tolist()
        mine = [next(pieces) for _ in range(sampler.chunks(step))]
        assert [index for piece in mine for index in piece] == batch
        assert all(len(piece) == physical for piece in mine[:-1])
        assert len(mine[-1]) <= physical
        assert len(mine[-1]) > 0 or (not batch and len(mine) == 1)
    assert next(pieces, None) is None


@pytest.mark.parametrize("scheme", ALL, ids=str)
def test_without_chunks_a_step_is_one_batch_of_python_integers(scheme):
    drawn = participants(scheme)
    sampler = BatchSampler(drawn)
    assert len(sampler) == STEPS
    assert all(sampler.chunks(step) == 1 for step in range(STEPS))
    batches = list(sampler)
    assert batches == batches_of(drawn)
    assert all(type(index) is int for batch in batches for index in batch)


@pytest.mark.parametrize("scheme", ALL, ids=str)
@pytest.mark.parametrize("physical", [None, 2])
def test_a_state_taken_anywhere_gives_the_same_rest(scheme, physical):
    """Into a sampler with another key, through JSON, before the first batch and after the last."""
    whole_run = list(BatchSampler(participants(scheme), physical=physical))
    for done in range(len(whole_run) + 1):
        first = BatchSampler(participants(scheme), physical=physical)
        running = iter(first)
        assert [next(running) for _ in range(done)] == whole_run[:done]
        state = json.loads(json.dumps(first.state_dict()))
        second = BatchSampler(participants(scheme, seed=2), physical=physical)
        second.load_state_dict(state)
        assert len(second) == len(whole_run) - done
        assert list(second) == whole_run[done:]
        assert list(running) == whole_run[done:]  # the first is not disturbed


def test_an_iteration_goes_on_where_the_last_one_ended():
    sampler = BatchSampler(participants(), physical=2)
    whole_run = list(BatchSampler(participants(), physical=2))
    for done in range(len(whole_run)):
        assert len(sampler) == len(whole_run) - done
        assert next(iter(sampler)) == whole_run[done]
    assert list(sampler) == []
    assert len(sampler) == 0


def test_a_window_of_steps():
    truth = batches_of(participants())
    assert list(BatchSampler(participants(), start=3, stop=7)) == truth[3:7]
    assert list(BatchSampler(participants(), start=5)) == truth[5:]
    assert list(BatchSampler(participants(), start=12)) == []
    assert list(BatchSampler(participants(), start=4, stop=4)) == []


def test_seeking():
    truth = batches_of(participants())
    sampler = BatchSampler(participants(), start=2, stop=10, physical=2)
    list(sampler)
    step = max(range(2, 10), key=lambda step: len(truth[step]))
    sampler.seek(step, 1)
    assert next(iter(sampler)) == truth[step][2:4]
    sampler.seek(10)
    assert list(sampler) == []
    for step, chunk in [(1, 0), (11, 0), (10, 1), (2, sampler.chunks(2)), (2, -1)]:
        with pytest.raises(ParameterError, match="must lie between"):
            sampler.seek(step, chunk)


def test_physical_batches_may_change_between_logical_ones_only():
    sampler = BatchSampler(participants(Poisson(0.5)), physical=2)
    running = iter(sampler)
    next(running)
    within = sampler.state_dict()
    other = BatchSampler(participants(Poisson(0.5)), physical=3)
    with pytest.raises(SamplingError, match="within a logical batch"):
        other.load_state_dict(within)
    while sampler.chunk:
        next(running)
    other.load_state_dict(sampler.state_dict())
    assert [i for piece in other for i in piece] == [i for piece in running for i in piece]


def test_a_state_of_another_run_is_refused_and_changes_nothing():
    sampler = BatchSampler(participants())
    before = sampler.state_dict()
    with pytest.raises(SamplingError, match="saved sampler has scheme"):
        sampler.load_state_dict(BatchSampler(participants(Poisson(0.2))).state_dict())
    with pytest.raises(SamplingError, match="lacks chunk, part, step"):
        sampler.load_state_dict({"participants": {}, "physical": None})
    assert sampler.state_dict() == before


@pytest.mark.parametrize("physical", [None, 1])
@pytest.mark.parametrize("scheme", ALL, ids=str)
def test_parts_are_dealt_in_turn(scheme, physical):
    drawn = participants(scheme)
    dealt = []
    for i in range(3):
        sampler = BatchSampler(drawn, physical=physical, part=(i, 3))
        assert len(sampler) == sum(sampler.chunks(step) for step in range(STEPS))
        dealt.append([[] for _ in range(STEPS)])
        while sampler.step < STEPS:
            step = sampler.step
            dealt[i][step] += next(iter(sampler))
    for step, batch in enumerate(batches_of(drawn)):
        assert [part[step] for part in dealt] == [batch[0::3], batch[1::3], batch[2::3]]


def test_a_part_cannot_change_within_a_batch():
    drawn = participants(BallsInBins(1))
    sampler = BatchSampler(drawn, physical=4, part=(0, 2))
    next(iter(sampler))
    with pytest.raises(SamplingError, match=r"physical=4, part=\[0, 2\].*part=\[0, 1\]"):
        BatchSampler(drawn, physical=4).load_state_dict(sampler.state_dict())


def test_drawing_leaves_the_random_numbers_of_torch_alone():
    before = torch.random.get_rng_state()
    list(BatchSampler(participants(ALL[2])))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": 13}, "start must lie"),
        ({"start": 5, "stop": 4}, "stop must lie"),
        ({"stop": 13}, "stop must lie"),
        ({"physical": 0}, "physical must lie"),
        ({"physical": 2.0}, "physical must be a whole"),
        ({"part": (2, 2)}, "part must lie"),
        ({"part": (0, 0)}, "parts must lie"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ParameterError, match=message):
        BatchSampler(participants(), **arguments)


def test_only_participants_make_a_sampler():
    with pytest.raises(SamplingError, match="made from Participants"):
        BatchSampler(Poisson(0.5))
