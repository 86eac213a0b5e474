"""Claim: the loader hands out the accounted batches, in order, whatever loads them."""

from __future__ import annotations

import random
from collections import namedtuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import (  # noqa: E402
    EXAMPLES,
    STEPS,
    backward,
    data,
    looked_at,
    parameters,
    private,
    train,
)
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from mmcc import MmccError, strategies  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import Participants  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")


class Numbers(Dataset):
    """Example i is the number i."""

    def __init__(self, wrap=lambda number: number) -> None:
        self.wrap = wrap

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int):
        return self.wrap(torch.tensor(float(index)))


def members(scheme, steps: int, seed: int) -> list[list[int]]:
    who = Participants(scheme, steps, EXAMPLES, seed)
    return [who.at(step).tolist() for step in range(steps)]


@pytest.mark.parametrize("physical", [None, 1, 4, 100])
def test_batches_are_the_participants(physical):
    _, optimizer, loader = private(
        dataset=Numbers(), strategy=strategies.identity(40), physical_batch_size=physical
    )
    batches = [[int(x) for x in batch] for batch in looked_at(loader)]
    joined = [index for batch in batches for index in batch]
    expected = members(Poisson(0.3), 40, 11)
    assert joined == [index for batch in expected for index in batch]
    if physical is None:
        assert batches == expected
    else:
        assert max(map(len, batches)) <= physical
    assert optimizer.position == 0  # looking at batches is no step
    assert len(loader) == len(batches)


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True, "prefetch_factor": 4}])
def test_workers_do_not_matter(options):
    plain = private(sampling=Poisson(0.05), physical_batch_size=2)
    train(*plain)
    source = DataLoader(data(), batch_size=2, num_workers=2, **options)
    worked = private(
        dataset=source, sampling=Poisson(0.05), physical_batch_size=2, steps_per_epoch=4
    )
    while not worked[1].finished:
        train(*worked)
    assert all(map(torch.equal, parameters(plain[0]), parameters(worked[0])))


def test_epochs_end_at_the_same_steps_wherever_they_start():
    module, optimizer, loader = private(steps_per_epoch=3)
    ends = []
    for batch in loader:
        backward(module, batch)
        optimizer.step()
        break
    while not optimizer.finished:
        train(module, optimizer, loader)
        ends.append(optimizer.position)
    assert ends == [3, 6, STEPS]


def test_length_is_what_is_left_of_the_epoch():
    module, optimizer, loader = private(steps_per_epoch=3)
    assert len(loader) == 3
    for batch in loader:
        backward(module, batch)
        optimizer.step()
        break
    assert len(loader) == 2


def global_states() -> list[bytes]:
    numpy = np.random.get_state()[1]  # noqa: NPY002
    return [bytes(torch.get_rng_state()), bytes(numpy), repr(random.getstate()).encode()]


@pytest.mark.parametrize("workers", [0, 1])
def test_loading_draws_nothing_from_global_generators(workers):
    source = DataLoader(data(), batch_size=9, num_workers=workers)
    _, _, loader = private(dataset=source)
    before = global_states()
    looked_at(loader)
    assert global_states() == before


Pair = namedtuple("Pair", ["number", "label"])


@pytest.mark.parametrize(
    ("wrap", "check"),
    [
        (lambda x: x, lambda b: b.shape == (0,)),
        (lambda x: x.expand(2, 5), lambda b: b.shape == (0, 2, 5)),
        (lambda x: (x, 3), lambda b: [part.shape for part in b] == [(0,), (0,)]),
        (lambda x: {"x": x, "y": [x, 1]}, lambda b: len(b["x"]) == len(b["y"][1]) == 0),
        (lambda x: Pair(x, 1), lambda b: isinstance(b, Pair) and len(b.label) == 0),
        (lambda x: (x, "name"), lambda b: len(b[1]) == 0),
    ],
)
def test_empty_batches_have_the_usual_structure(wrap, check):
    _, _, loader = private(dataset=Numbers(wrap), sampling=Poisson(1e-9))
    batches = looked_at(loader)
    assert len(batches) == STEPS
    assert all(map(check, batches))


def test_empty_batch_has_the_types_of_a_full_one():
    _, _, loader = private(sampling=Poisson(1e-9))
    inputs, labels = next(iter(loader))
    full = next(iter(DataLoader(data(), batch_size=2)))
    assert (inputs.dtype, labels.dtype) == (full[0].dtype, full[1].dtype)
    assert inputs.shape[1:] == full[0].shape[1:]


def test_batch_that_cannot_be_emptied():
    source = DataLoader(Numbers(), batch_size=1, collate_fn=lambda examples: object())
    with pytest.raises(MmccError, match="an empty batch of object cannot be made"):
        private(dataset=source, sampling=Poisson(1e-3))
