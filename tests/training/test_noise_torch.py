"""Claim: torch tensors get the noise of the numpy stream, in their shapes, types and order."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
from cases.noise import CASES, MADE, decoded
from cases.samples import sampled

torch = pytest.importorskip("torch")

from mmcc import strategies  # noqa: E402
from mmcc.errors import ParameterError, StrategyError  # noqa: E402
from mmcc.training import NoiseStream  # noqa: E402
from mmcc.training._torch_noise import TorchNoiseStream  # noqa: E402

SHAPES = [(3, 4), (), (5,), (0, 2), (2, 1, 3)]
SIZE = 12 + 1 + 5 + 0 + 6


def parameters(*dtypes):
    return [
        torch.nn.Parameter(torch.zeros(shape, dtype=dtypes[k % len(dtypes)]))
        for k, shape in enumerate(SHAPES)
    ]


def flat(tensors):
    return np.concatenate([tensor.double().numpy().ravel() for tensor in tensors])


def noises(stream):
    return np.array([flat(tensors) for tensors in stream])


@pytest.mark.parametrize(("name", "decoder"), CASES)
def test_double_precision_has_the_bits_of_numpy(name, decoder):
    strategy = MADE[name]()
    expected = np.array(list(NoiseStream(strategy, 1.3, SIZE, 5, decoder=decoder)))
    stream = TorchNoiseStream(strategy, 1.3, parameters(torch.float64), 5, decoder=decoder)
    assert np.array_equal(noises(stream), expected)


@pytest.mark.parametrize("like", [None, torch.tensor(1.0)])
def test_parameters_that_are_no_list(like):
    with pytest.raises(ParameterError, match="like takes the parameters, a list of tensors"):
        TorchNoiseStream(strategies.identity(4), 1.0, like)


@pytest.mark.parametrize(("name", "decoder"), CASES)
def test_mixed_types_take_their_coordinates_from_one_row(name, decoder):
    strategy = MADE[name]()
    expected = np.array(list(NoiseStream(strategy, 1.3, SIZE, 5, decoder=decoder)))
    like = parameters(torch.float64, torch.float32, torch.bfloat16)
    stream = TorchNoiseStream(strategy, 1.3, like, 5, decoder=decoder)
    exact = np.concatenate(
        [np.full(tensor.numel(), torch.finfo(tensor.dtype).eps) for tensor in like]
    )
    for step, tensors in enumerate(stream):
        for tensor, parameter in zip(tensors, like, strict=True):
            assert tensor.shape == parameter.shape
            assert tensor.dtype == parameter.dtype
            assert not tensor.requires_grad
        # Each is rounded a few times, at the size of the largest term.
        assert (np.abs(flat(tensors) - expected[step]) <= 20 * exact).all()


@pytest.mark.parametrize(
    ("name", "decoder"),
    [
        ("identity", None),
        ("counting, blocks", None),
        ("banded", None),
        ("banded inverse", None),
        ("blt, three buffers", None),
        ("tree of 13", "honaker"),
        ("restart", "online"),
    ],
)
def test_covariance_in_single_precision(name, decoder):
    """As for numpy, with 10^5 coordinates and a piece that is cut; 7 standard errors."""
    strategy, coordinates = MADE[name](), 100_000
    stream = TorchNoiseStream(strategy, 2.5, [torch.zeros(coordinates)], 12, decoder=decoder)
    found = np.array([tensors[0].numpy() for tensors in stream], dtype=np.float64)
    matrix = 2.5 * decoded(strategy, decoder)
    expected = matrix @ matrix.T
    own = np.diag(expected)
    error = np.sqrt((np.outer(own, own) + expected**2) / coordinates)
    assert np.abs((found @ found.T / coordinates - expected) / error).max() < 7.0


DTYPES = {"one": (torch.float32,), "two": (torch.float64, torch.bfloat16)}


def saved_and_loaded(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(("name", "decoder", "types"), sampled(CASES, DTYPES, strength=1))
def test_restored_at_every_position(name, decoder, types):
    strategy, dtypes = MADE[name](), DTYPES[types]

    def stream(seed):
        return TorchNoiseStream(strategy, 1.3, parameters(*dtypes), seed, decoder=decoder)

    whole = noises(stream(3))
    running = stream(3)
    for position in range(strategy.steps + 1):
        state = running.state()
        before = copy.deepcopy(state)
        other = stream(4)
        next(other)
        other.restore(saved_and_loaded(state))
        assert np.array_equal(noises(other).reshape(-1, SIZE), whole[position:])
        if position < strategy.steps:
            next(running)
        assert all(map(torch.equal, state["buffers"], before["buffers"]))


def test_tensors_of_a_step_are_views_of_one_vector():
    tensors = next(TorchNoiseStream(strategies.identity(2), 1.0, parameters(torch.float32)))
    assert len({t.untyped_storage().data_ptr() for t in tensors if t.numel()}) == 1


def test_changing_the_tensors_changes_no_later_step():
    strategy = strategies.binary_tree(9)
    expected = noises(TorchNoiseStream(strategy, 1.0, parameters(torch.float64), 1))
    stream = TorchNoiseStream(strategy, 1.0, parameters(torch.float64), 1)
    for step, tensors in enumerate(stream):
        assert np.array_equal(flat(tensors), expected[step])
        for tensor in tensors:
            tensor.fill_(torch.nan)


def test_the_global_generator_is_left_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    next(TorchNoiseStream(strategies.blt(4, 1), 1.0, parameters(torch.float32)))
    assert torch.equal(torch.get_rng_state(), before)


def test_memory_kept_on_the_device():
    stream = TorchNoiseStream(strategies.blt(9, 3), 1.0, parameters(torch.float32))
    (kept,) = stream.state()["buffers"]
    assert kept.shape == (stream.memory - 1, SIZE)
    assert kept.dtype == torch.float32


def test_fresh_noise_is_that_of_numpy():
    stream = TorchNoiseStream(strategies.blt(9, 3), 1.0, parameters(torch.float64), 3)
    expected = NoiseStream(strategies.blt(9, 3), 1.0, SIZE, 3).fresh(4)
    assert np.array_equal(flat(stream.fresh(4)), expected)


def test_refusals():
    blt = strategies.blt(9, 2)
    with pytest.raises(ParameterError, match=r"numbers, got torch\.int64"):
        TorchNoiseStream(blt, 1.0, [torch.zeros(3, dtype=torch.int64)])
    with pytest.raises(ParameterError, match="floating-point numbers, got ndarray"):
        TorchNoiseStream(blt, 1.0, [np.zeros(3)])
    with pytest.raises(ParameterError, match="coordinates of all parameters"):
        TorchNoiseStream(blt, 1.0, [])
    with pytest.raises(StrategyError, match="not square"):
        TorchNoiseStream(strategies.dense(np.ones((3, 2))), 1.0, [torch.zeros(3)])
    state = TorchNoiseStream(blt, 1.0, [torch.zeros(3)], 1).state()
    with pytest.raises(ParameterError, match="another shape"):
        TorchNoiseStream(blt, 1.0, [torch.zeros(4)], 1).restore(state)
    with pytest.raises(ParameterError, match="another dtype"):
        TorchNoiseStream(blt, 1.0, [torch.zeros(3).double()], 1).restore(state)
    with pytest.raises(ParameterError, match="must hold 1 tensors"):
        TorchNoiseStream(blt, 1.0, [torch.zeros(3)], 1).restore(state | {"buffers": []})
    bad = {"buffers": [torch.full((2, 3), torch.nan)]}
    with pytest.raises(ParameterError, match="damaged"):
        TorchNoiseStream(blt, 1.0, [torch.zeros(3)], 1).restore(state | bad)
