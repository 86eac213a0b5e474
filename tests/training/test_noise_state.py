"""Claim: a stream stopped anywhere goes on with the same bits; memory is as documented; what has no
noise step by step, and states of other streams, are refused.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from cases.noise import CASES, MADE, random_lower
from cases.samples import sampled

from mmcc import strategies
from mmcc.errors import MethodError, MmccError, ParameterError, PrecisionError, StrategyError
from mmcc.strategies._decoders import noise_memory
from mmcc.training import NoiseStream
from mmcc.training import _randomness as randomness

BLOCKS = ("counting, blocks", "optimal, blocks", "dense")


def through_json(state):
    return json.loads(json.dumps(state | {"buffers": state["buffers"].tolist()}))


def through_npz(state, folder):
    np.savez(folder / "state.npz", **state)
    with np.load(folder / "state.npz", allow_pickle=False) as loaded:
        return dict(loaded)


@pytest.mark.parametrize(
    ("name", "decoder", "dtype"), sampled(CASES, [np.float64, np.float32], strength=1)
)
def test_restored_at_every_position(name, decoder, dtype, tmp_path):
    strategy = MADE[name]()

    def stream(seed):
        return NoiseStream(strategy, 1.3, (2, 3), seed, decoder=decoder, dtype=dtype)

    whole = np.array(list(stream(3)))
    running = stream(3)
    for position in range(strategy.steps + 1):
        assert running.position == position
        state = running.state()
        for form in (state, through_json(state), through_npz(state, tmp_path)):
            other = stream(4)
            for _ in range(position % 3):  # it need not be new
                next(other, None)
            other.restore(form)
            assert other.position == position
            rest = np.array(list(other), dtype=dtype).reshape(-1, 2, 3)
            assert np.array_equal(rest, whole[position:])
            assert other.state()["key"] == state["key"]
        if position < strategy.steps:
            next(running)


def test_a_state_is_a_copy():
    stream = NoiseStream(strategies.blt(20, 2), 1.0, 4, seed=1)
    next(stream)
    state = stream.state()
    kept = state["buffers"].copy()
    later = [next(stream) for _ in range(3)]
    assert np.array_equal(state["buffers"], kept)
    stream.restore(state)
    state["buffers"][...] = 0.0
    assert np.array_equal([next(stream) for _ in range(3)], later)


def test_the_callers_array_is_his_own():
    stream = NoiseStream(strategies.banded_toeplitz(20, 3), 1.0, 4, seed=1)
    expected = np.array(list(NoiseStream(strategies.banded_toeplitz(20, 3), 1.0, 4, seed=1)))
    for step, noise in enumerate(stream):
        assert np.array_equal(noise, expected[step])
        noise[...] = np.nan


@pytest.mark.parametrize("name", BLOCKS)
def test_the_callers_array_is_his_own_in_blocks(name):
    expected = np.array(list(NoiseStream(MADE[name](), 1.0, 4, seed=1)))
    for step, noise in enumerate(NoiseStream(MADE[name](), 1.0, 4, seed=1)):
        assert np.array_equal(noise, expected[step])
        assert noise.base is None or noise.base.size == 4  # it does not keep a block alive
        noise[...] = np.nan


def test_the_stream_ends():
    stream = NoiseStream(strategies.identity(3), 1.0, 2, seed=1)
    assert len(list(stream)) == stream.position == stream.steps == 3
    with pytest.raises(StopIteration):
        next(stream)


def test_without_a_seed_each_stream_is_another():
    streams = [NoiseStream(strategies.identity(3), 1.0, 2) for _ in range(4)]
    assert len({float(next(stream)[0]) for stream in streams}) == 4


def test_another_strategy_has_the_same_fresh_noise():
    """A pure function of key and row: noise can be compared across strategies."""
    one = NoiseStream(strategies.identity(3), 1.0, 5, seed=1)
    other = NoiseStream(strategies.blt(9, 2), 7.0, 5, seed=1)
    assert np.array_equal(one.fresh(2), other.fresh(2))


@pytest.mark.parametrize(("name", "decoder"), CASES)
def test_memory_is_what_strategies_say(name, decoder):
    strategy = MADE[name]()
    stream = NoiseStream(strategy, 1.0, 3, decoder=decoder)
    if name in BLOCKS:
        assert stream.memory < noise_memory(strategy, decoder)
        assert len(stream.state()["buffers"]) == 0
    else:
        assert stream.memory == noise_memory(strategy, decoder)
        assert len(stream.state()["buffers"]) == stream.memory - 1


@pytest.mark.parametrize(
    "strategy",
    [
        strategies.identity(64),
        strategies.binary_tree(64),
        strategies.tree_restart(64, 4),
        strategies.banded_toeplitz(64, 16),
        strategies.banded_inverse(64, 8),
        strategies.blt(64, 3),
    ],
    ids=repr,
)
def test_memory_measured(strategy, monkeypatch):
    measured(strategy, monkeypatch, memory="keep")


@pytest.mark.parametrize(
    ("strategy", "decoder"),
    [(strategies.banded_inverse(64, 8), None), (strategies.binary_tree(64), "online")],
    ids=repr,
)
def test_one_vector_where_noise_is_made_again(strategy, decoder, monkeypatch):
    assert NoiseStream(strategy, 1.0, 10, memory="regenerate", decoder=decoder).memory == 1
    measured(strategy, monkeypatch, memory="regenerate", decoder=decoder)


def measured(strategy, monkeypatch, **options):
    """What is held between steps, and at most during one: two pieces of 2^16 numbers a thread."""
    monkeypatch.setattr(randomness, "MAX_THREADS", 1)
    size = 300_000
    first = NoiseStream(strategy, 1.0, 10, seed=1, **options)  # whatever is loaded once
    list(first)
    tracemalloc.start()
    stream = NoiseStream(strategy, 1.0, size, seed=1, **options)
    for noise in stream:
        del noise
    held, peak = (number / (8 * size) for number in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    assert held == pytest.approx(stream.memory - 1, abs=0.1)
    assert peak <= stream.memory + 2 * 2**16 / size + 0.1


def test_memory_of_a_dense_toeplitz_strategy():
    """Two thousand steps in the place of as many vectors: 45 outputs and 16 fresh rows."""
    strategy, size = strategies.continual_counting(2000), 50_000
    next(NoiseStream(strategy, 1.0, 1, seed=1))  # loads what is loaded once
    tracemalloc.start()
    stream = NoiseStream(strategy, 1.0, size, seed=1)
    next(stream)
    stream.restore(stream.state() | {"position": 1999})  # nothing is kept from earlier steps
    (last,) = stream
    peak = tracemalloc.get_traced_memory()[1] / (8 * size)
    tracemalloc.stop()
    assert stream.memory == 45 + 16
    assert 61 < peak < 61 + 10
    # c^-1 of the counting matrix: the coefficients of (1 - x)^1/2
    inverse = np.cumprod(np.concatenate([[1.0], 1 - 1.5 / np.arange(1.0, 2000)]))
    some = NoiseStream(strategy, 1.0, 50, seed=1)  # the same coordinates, fewer of them
    fresh = np.array([some.fresh(row) for row in range(2000)])
    np.testing.assert_allclose(last[:50], inverse[::-1] @ fresh, rtol=0, atol=1e-12)


class Interrupted:
    """Normals that fail at one row, once."""

    segment = 1

    def __init__(self, normals, row):
        self.normals, self.row = normals, row

    def fill(self, row, out, start=0):
        if row == self.row:
            self.row = -1
            raise KeyboardInterrupt
        self.normals.fill(row, out, start)

    def state(self):
        return self.normals.state()


def test_an_interrupted_step_is_not_gone_on_with():
    strategy = strategies.binary_tree(8)
    expected = np.array(list(NoiseStream(strategy, 1.0, 3, seed=1)))
    stream = NoiseStream(strategy, 1.0, 3, seed=1)
    for _ in range(3):
        next(stream)
    state = stream.state()
    stream._normals = Interrupted(stream._normals, 6)  # the last node that step 3 completes
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    for attempt in (stream.__next__, stream.state):
        with pytest.raises(ParameterError, match="interrupted in the middle of step 3"):
            attempt()
    stream.restore(state)
    assert np.array_equal(np.array(list(stream)), expected[3:])


BASE = {"strategy": strategies.banded_toeplitz(12, 3), "sigma": 1.0, "shape": 4}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"strategy": strategies.banded_toeplitz(12, 4)}, "strategy"),
        ({"strategy": strategies.banded_toeplitz(13, 3)}, "strategy"),
        ({"strategy": strategies.identity(12)}, "strategy"),
        ({"sigma": 1.0 + 1e-15}, "sigma"),
        ({"shape": (2, 2)}, "shape"),
        ({"dtype": np.float32}, "dtype"),
    ],
)
def test_a_state_of_another_stream_is_refused(changed, what):
    state = NoiseStream(**BASE, seed=1).state()
    other = NoiseStream(**(BASE | changed), seed=1)
    with pytest.raises(ParameterError, match=f"another {what} "):
        other.restore(state)


def test_a_state_of_another_decoder_is_refused():
    tree = strategies.binary_tree(8)
    state = NoiseStream(tree, 1.0, 4, 1, decoder="online").state()
    with pytest.raises(ParameterError, match="another decoder"):
        NoiseStream(tree, 1.0, 4, 1).restore(state)


def test_a_state_that_kept_noise_is_not_one_that_makes_it_again():
    strategy = strategies.banded_inverse(12, 3)
    state = NoiseStream(strategy, 1.0, 4, 1).state()
    with pytest.raises(ParameterError, match="another memory"):
        NoiseStream(strategy, 1.0, 4, 1, memory="regenerate").restore(state)


def test_a_state_of_other_blocks_is_refused():
    """The noise would be the same but for its last bits."""
    counting = strategies.continual_counting(40)
    state = NoiseStream(counting, 1.0, 4, 1, block=6).state()
    with pytest.raises(ParameterError, match="another block"):
        NoiseStream(counting, 1.0, 4, 1).restore(state)


def test_a_state_of_another_generator_is_refused():
    state = NoiseStream(**BASE, seed=1).state()
    with pytest.raises(ParameterError, match="another generator"):
        NoiseStream(**BASE, seed=1, generator="philox").restore(state)
    with pytest.raises(ParameterError, match="another generator"):
        NoiseStream(**BASE, seed=1).restore(state | {"generator": "mersenne"})


@pytest.mark.parametrize("generator", ["philox", "device"])
def test_a_stream_without_a_generator_of_its_own_takes_that_of_the_state(generator):
    running = NoiseStream(**BASE, seed=1, generator=generator)
    next(running)
    other = NoiseStream(**BASE)
    assert other.generator == "device"
    other.restore(running.state())
    assert other.generator == generator
    assert np.array_equal(np.array(list(other)), np.array(list(running)))


def test_states_of_0_9_go_on():
    """They do not say whether noise is kept, which it was."""
    running = NoiseStream(**BASE, seed=1, generator="philox")
    next(running)
    state = running.state()
    assert state.pop("memory") == "keep"
    other = NoiseStream(**BASE)
    other.restore(state)
    assert np.array_equal(np.array(list(other)), np.array(list(running)))


@pytest.mark.parametrize(
    "damage",
    [
        {"position": 13},
        {"position": -1},
        {"position": 1.5},
        {"key": "00"},
        {"key": 5},
        {"key": "00" * 16},
        {"key": "00" * 32},
        {"probe": "00"},
        {"buffers": np.zeros((3, 4))},
        {"buffers": np.full((2, 4), np.nan)},
        {"version": 0},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage):
    stream = NoiseStream(**BASE, seed=1)
    state = stream.state()
    next(stream)
    with pytest.raises(ParameterError):
        stream.restore(state | damage)
    with pytest.raises(ParameterError, match="has no 'key'"):
        stream.restore({name: value for name, value in state.items() if name != "key"})
    expected = np.array(list(NoiseStream(**BASE, seed=1)))
    assert np.array_equal(np.array(list(stream)), expected[1:])


def test_a_library_that_makes_other_numbers_is_refused(monkeypatch):
    """As a later numpy may: the same key then stands for other noise."""
    state = NoiseStream(**BASE, seed=1, generator="philox").state()
    real = np.random.Generator

    class Changed(real):
        def standard_normal(self, *args, **kwargs):
            out = super().standard_normal(*args, **kwargs)
            out *= -1
            return out

    monkeypatch.setattr(np.random, "Generator", Changed)
    with pytest.raises(ParameterError, match="numpy or scipy changed"):
        NoiseStream(**BASE, seed=1).restore(state)


LOWER = random_lower(6, 6)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"strategy": strategies.dense(np.ones((7, 6)))}, StrategyError, "not square"),
        ({"strategy": strategies.dense(LOWER, adaptive=False)}, StrategyError, "adaptive=True"),
        ({"strategy": strategies.dense([[1.0, 1.0], [0.0, 1.0]])}, StrategyError, "triangular"),
        ({"strategy": strategies.dense([[0.0, 0.0], [1.0, 1.0]])}, StrategyError, "singular"),
        ({"strategy": strategies.toeplitz([1.0, 3.0], 100)}, PrecisionError, "grows"),
        (
            {"strategy": strategies.dense(strategies.toeplitz([1.0, 3.0], 100).to_dense())},
            PrecisionError,
            "grows",
        ),
        ({"strategy": 5}, StrategyError, "must come from mmcc.strategies"),
        ({"decoder": "online"}, MethodError, "binary trees"),
        (
            {"strategy": strategies.binary_tree(4), "decoder": "honaker-full"},
            MethodError,
            "later steps",
        ),
        ({"strategy": strategies.binary_tree(4), "decoder": "exact"}, MethodError, "no inverse"),
        ({"decoder": "honacker"}, MethodError, "did you mean 'honaker'"),
        ({"sigma": 0.0}, ParameterError, "sigma must lie"),
        ({"sigma": np.nan}, ParameterError, "sigma must lie"),
        ({"sigma": "1"}, ParameterError, "sigma must be a number"),
        ({"shape": (3, 0)}, ParameterError, "shape must lie"),
        ({"shape": 2.5}, ParameterError, "shape must be a whole number"),
        ({"shape": (2**20, 2**20)}, ParameterError, "coordinates"),
        ({"dtype": np.float16}, ParameterError, "float64 or float32"),
        ({"dtype": "int"}, ParameterError, "float64 or float32"),
        ({"dtype": "nothing"}, ParameterError, "float64 or float32"),
        ({"block": 0}, ParameterError, "block must lie"),
        ({"generator": "mersenne"}, ParameterError, "unknown generator"),
        ({"memory": "forget"}, ParameterError, "unknown memory"),
        ({"memory": "regenerate"}, MethodError, "not. Use banded_inverse .* keeps 3 vectors"),
        ({"memory": "regenerate", "strategy": strategies.blt(9, 2)}, MethodError, "short sum"),
        ({"memory": "regenerate", "strategy": strategies.binary_tree(9)}, MethodError, "honaker"),
        ({"seed": -1}, ParameterError, "seed must be"),
    ],
    ids=str,
)
def test_refusals(arguments, error, words):
    with pytest.raises(error, match=words) as caught:
        NoiseStream(**(BASE | arguments))
    assert isinstance(caught.value, MmccError)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("row", [-1, 12, 0.5])
def test_rows_that_are_none(row):
    with pytest.raises(ParameterError, match="row must"):
        NoiseStream(**BASE).fresh(row)


def test_torch_is_not_imported():
    code = "import sys, mmcc, mmcc.training; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
