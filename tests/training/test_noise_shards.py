"""Claim: a coordinate's noise is its own however parameters are spread, and each process makes
only its part.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases.noise import CASES, MADE
from cases.samples import sampled

torch = pytest.importorskip("torch")

from mmcc import strategies  # noqa: E402
from mmcc.errors import ParameterError  # noqa: E402
from mmcc.training import NoiseStream, TorchNoiseStream  # noqa: E402
from mmcc.training._randomness import KeystreamNormals, PhiloxNormals  # noqa: E402

SIZE = 4 * 25_000


def quarters(generator=None, dtype=torch.float32):
    """Four processes; their parts begin in the middle of tiles and of segments."""
    cuts = [0, 25_001, 50_000, 74_990, SIZE]
    return [[(start, stop - start)] for start, stop in itertools.pairwise(cuts)]


def part_of(strategy, shards, **options):
    like = [torch.zeros(length) for _, length in shards]
    return TorchNoiseStream(strategy, 1.3, like, 5, shards=shards, **options)


@pytest.mark.parametrize("generator", ["device", "philox", "chacha"])
@pytest.mark.parametrize("name", ["identity", "blt, three buffers", "banded inverse", "tree of 13"])
def test_joined_parts_are_the_whole(name, generator):
    if generator == "chacha":
        pytest.importorskip("cryptography")
    strategy = MADE[name]()
    whole = TorchNoiseStream(strategy, 1.3, [torch.zeros(SIZE)], 5, generator=generator)
    parts = [part_of(strategy, shards, generator=generator) for shards in quarters()]
    for _ in range(6):
        joined = torch.cat([next(part)[0] for part in parts])
        assert torch.equal(joined, next(whole)[0])


class Counted:
    """How many numbers a generator was asked for, whole tiles or segments."""

    def __init__(self, monkeypatch, kind):
        self.numbers, self.asked = 0, 0
        real = kind.fill

        def fill(own, row, out, start=0):
            unit = kind.segment
            self.asked += len(out)
            self.numbers += unit * (-(-(start + len(out)) // unit) - start // unit)
            real(own, row, out, start)

        monkeypatch.setattr(kind, "fill", fill)


@pytest.mark.parametrize("name", ["identity", "bands", "blt, three buffers"])
def test_each_makes_a_quarter(name, monkeypatch):
    strategy = MADE[name]()
    for shards in quarters():
        stream = part_of(strategy, shards)
        counted = Counted(monkeypatch, KeystreamNormals)
        for _ in range(5):
            next(stream)
        assert counted.asked == 5 * shards[0][1]
        assert counted.numbers <= counted.asked + 5 * 2 * 1024
        monkeypatch.undo()


def test_the_host_s_generators_make_whole_segments(monkeypatch):
    counted = Counted(monkeypatch, PhiloxNormals)
    next(part_of(strategies.identity(3), [(2**16 + 5, 100)], generator="philox"))
    assert counted.numbers == 2**16


@pytest.mark.parametrize(("name", "decoder"), sampled(CASES, strength=1))
def test_parts_of_several_parameters_in_any_order(name, decoder):
    """As a process has them that holds rows of each; of two types, and one of them empty."""
    strategy = MADE[name]()
    expected = np.array(list(NoiseStream(strategy, 1.3, 3000, 5, decoder=decoder)))
    shards = [(2000, 900), (7, 100), (500, 0), (107, 6), (1500, 33)]
    like = [torch.zeros(size, dtype=torch.float64) for _, size in shards]
    like[3] = like[3].float()
    stream = TorchNoiseStream(strategy, 1.3, like, 5, decoder=decoder, shards=shards)
    for step, tensors in enumerate(stream):
        for (start, size), tensor in zip(shards, tensors, strict=True):
            own = expected[step, start : start + size]
            close = 1e-5 if tensor.dtype == torch.float32 else 1e-14
            np.testing.assert_allclose(tensor.double().numpy(), own, rtol=0, atol=close)


def test_a_part_goes_on_from_its_state_and_from_no_other():
    strategy, shards = strategies.blt(9, 2), quarters()
    streams = [part_of(strategy, own) for own in shards]
    for stream in streams:
        next(stream)
    for form in ("state", "state_dict"):
        back = {"state": "restore", "state_dict": "load_state_dict"}[form]
        state = getattr(streams[2], form)()
        other = part_of(strategy, shards[2])
        getattr(other, back)(state)
        assert torch.equal(next(other)[0], next(part_of_at(strategy, shards[2], 1))[0])
        with pytest.raises(ParameterError, match=r"another sha(pe|rds)"):
            getattr(streams[1], back)(state)


def part_of_at(strategy, shards, position):
    stream = part_of(strategy, shards)
    for _ in range(position):
        next(stream)
    return stream


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        ([(0, 5), (4, 5)], "both cover the place 4"),
        ([(0, 5)], "1 shards for 2 tensors"),
        ([(0, 5), (5, 4)], "that many numbers"),
        ([(-1, 5), (5, 5)], "offset of a shard"),
        ([(0, 5), (2**34, 5)], "end of a shard"),
    ],
)
def test_shards_that_are_refused(shards, words):
    with pytest.raises(ParameterError, match=words):
        TorchNoiseStream(strategies.identity(3), 1.0, [torch.zeros(5)] * 2, shards=shards)


@pytest.mark.parametrize(
    "name", ["blt, three buffers", "tree of 13", "identity", "counting, blocks"]
)
@pytest.mark.parametrize("memory", ["keep", "regenerate"])
def test_a_state_by_parameter(name, memory):
    strategy = MADE[name]()
    if memory == "regenerate":
        strategy = strategies.banded_inverse(14, 4)

    def stream(seed):
        like = [torch.zeros(3, 2), torch.zeros(()), torch.zeros(4).double(), torch.zeros(0, 2)]
        return TorchNoiseStream(strategy, 1.3, like, seed, memory=memory)

    running = stream(3)
    for _ in range(3):
        next(running)
    state = running.state_dict()
    for member, kept in state["buffers"].items():
        assert tuple(kept.shape[1:]) == [(3, 2), (), (4,), (0, 2)][int(member)]
    other = stream(4)
    other.load_state_dict(state)
    for one, two in zip(next(running), next(other), strict=True):
        assert torch.equal(one, two)
    if state["buffers"]:
        for damaged in ({}, state["buffers"] | {"0": torch.zeros(9, 3, 2)}, []):
            with pytest.raises(ParameterError, match="must hold"):
                stream(4).load_state_dict(state | {"buffers": damaged})
