"""Claim: torch's own operations make the noise that the compiled kernels make, on any device.

No accelerator was used: the road for other devices is driven on the CPU, where `on_host` says that
numpy can work on a group, and on `meta`, for shapes.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases.noise import CASES, MADE, decoded
from cases.samples import sampled
from scipy import stats

torch = pytest.importorskip("torch")

from mmcc import sampling, strategies  # noqa: E402
from mmcc.audit import audit  # noqa: E402
from mmcc.errors import PrecisionError  # noqa: E402
from mmcc.training import TorchNoiseStream  # noqa: E402
from mmcc.training import _keystream as host  # noqa: E402
from mmcc.training import _torch_keystream as device  # noqa: E402
from mmcc.training._randomness import normals  # noqa: E402
from mmcc.training._torch_layout import ParameterGroup  # noqa: E402

KINDS = {"float32": torch.float32, "float64": torch.float64}
CPU = torch.device("cpu")
TYPES = {"one": [torch.float32], "three": [torch.float64, torch.float32, torch.bfloat16]}
SHAPES = [(30, 40), (), (5,), (0, 2), (2, 1, 3)]


@pytest.fixture
def elsewhere(monkeypatch):
    """All groups as if numpy could not see them."""
    monkeypatch.setattr(ParameterGroup, "on_host", property(lambda self: False))


@pytest.fixture
def exact_root(monkeypatch):
    """torch's square root on the CPU is MKL's, which may be a unit in the last place off."""
    monkeypatch.setattr(device, "root", lambda x: torch.from_numpy(np.sqrt(x.numpy())))


@pytest.mark.parametrize(
    ("row", "block"), [(0, 0), (2**40 + 3, 2**31 - 60), (2**64 - 1, 2**32 - 200)]
)
def test_words_are_those_of_the_host(row, block):
    key = normals(5, "device").words
    expected = np.empty((16, 128), np.uint32)
    host.keystream(key, np.uint64(row), block, expected)
    found = device.keystream(key, row, block, 128, CPU).reshape(16, 128)
    assert np.array_equal(found.numpy().view(np.uint32), expected)


@pytest.mark.parametrize("piece", [2**11, device.PIECE])
@pytest.mark.parametrize("start", [0, 1, 1500, 2**34 - 12_345])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_have_the_bits_of_the_host(kind, start, piece, exact_root, monkeypatch):
    monkeypatch.setattr(device, "PIECE", piece)
    source, expected = normals(5, "device"), np.empty(12_345, kind)
    source.fill(77, expected, start)
    found = torch.empty(12_345, dtype=KINDS[kind])
    source.fill(77, found, start)
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_an_inexact_root_moves_them_by_a_last_place(kind):
    source, expected = normals(5, "device"), np.empty(50_000, kind)
    source.fill(77, expected)
    found = torch.empty(50_000, dtype=KINDS[kind])
    source.fill(77, found)
    assert (np.abs(found.numpy() - expected) <= np.spacing(np.abs(expected)) * 2).all()


@pytest.mark.parametrize("size", [10**5, pytest.param(10**7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_law(kind, size):
    drawn = torch.empty(size, dtype=KINDS[kind])
    normals(6, "device").fill(3, drawn)
    drawn = drawn.double().numpy()
    assert stats.kstest(drawn, stats.norm.cdf).pvalue > 1e-6
    counts, edges = np.histogram(
        drawn, np.concatenate([[-np.inf], np.linspace(-3, 3, 25), [np.inf]])
    )
    expected = size * np.diff(stats.norm.cdf(edges))
    assert stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), counts.size - 1) > 1e-6
    for power, moment, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs(np.mean(drawn**power) - moment) < 5.5 * np.sqrt(variance / size)


@pytest.mark.parametrize(
    ("name", "decoder", "types"),
    sampled(CASES, TYPES, strength=1),
)
def test_recursions_have_the_bits_of_the_host(name, decoder, types, exact_root, monkeypatch):
    types = TYPES[types]
    like = [torch.zeros(s, dtype=types[k % len(types)]) for k, s in enumerate(SHAPES)]
    expected = list(TorchNoiseStream(MADE[name](), 1.3, like, 5, decoder=decoder))
    monkeypatch.setattr(ParameterGroup, "on_host", property(lambda self: False))
    stream = TorchNoiseStream(MADE[name](), 1.3, like, 5, decoder=decoder)
    for step, tensors in enumerate(stream):
        for one, other in zip(tensors, expected[step], strict=True):
            assert torch.equal(one, other)
        if step == 3:  # a state of the one is a state of the other
            monkeypatch.undo()
            resumed = TorchNoiseStream(MADE[name](), 1.3, like, 6, decoder=decoder)
            resumed.restore(stream.state())
            for one, other in zip(next(resumed), expected[4], strict=True):
                torch.testing.assert_close(one, other)
            break


@pytest.mark.parametrize("generator", ["philox", "chacha"])
def test_the_generators_of_0_9_are_copied_there(generator, elsewhere):
    if generator == "chacha":
        pytest.importorskip("cryptography")
    like = [torch.zeros(s) for s in SHAPES]
    found = next(TorchNoiseStream(strategies.blt(9, 2), 1.3, like, 5, generator=generator))
    host_row = np.empty(sum(tensor.numel() for tensor in like))
    normals(5, generator).fill(0, host_row)
    joined = torch.cat([tensor.reshape(-1) for tensor in found])
    expected = torch.from_numpy(host_row).float() * 1.3
    assert torch.equal(joined, expected)


ALL = [
    strategies.identity(8),
    strategies.binary_tree(8),
    strategies.banded_toeplitz(8, 3),
    strategies.banded_inverse(8, 3),
    strategies.blt(8, 2),
]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ALL, ids=repr)
def test_the_audit_passes_there(strategy, elsewhere):
    """The claim is so large that only the tests of the law can fail."""
    found = audit(
        strategy,
        sampling.Poisson(1 / 4),
        sigma=3.0,
        delta=1e-3,
        runs=3000,
        seed=1,
        epsilon=1000.0,
        stream="torch",
    )
    assert found.passed, str(found)
    assert found.generator == "device"


def test_covariance_there(elsewhere):
    """7 standard errors over 5000 coordinates."""
    strategy, coordinates = MADE["tree of 13"](), 5000
    stream = TorchNoiseStream(strategy, 2.5, [torch.zeros(coordinates)], 12)
    found = np.array([tensors[0].double().numpy() for tensors in stream])
    matrix = 2.5 * decoded(strategy, "honaker")
    expected = matrix @ matrix.T
    own = np.diag(expected)
    error = np.sqrt((np.outer(own, own) + expected**2) / coordinates)
    assert np.abs((found @ found.T / coordinates - expected) / error).max() < 7.0


@pytest.mark.parametrize(
    "name", ["identity", "blt, three buffers", "tree of 13", "counting, blocks"]
)
def test_shapes_on_meta(name):
    like = [torch.zeros(s, device="meta", dtype=torch.bfloat16) for s in SHAPES]
    stream = TorchNoiseStream(MADE[name](), 1.0, like, 5)
    for _ in range(2):
        tensors = next(stream)
    assert [t.shape for t in tensors] == [t.shape for t in like]
    assert {(t.device.type, t.dtype) for t in tensors} == {("meta", torch.bfloat16)}


def test_a_device_that_makes_other_numbers_is_refused(elsewhere, monkeypatch):
    device.check.cache_clear()
    TorchNoiseStream(strategies.identity(3), 1.0, [torch.zeros(3)], 5)
    device.check.cache_clear()
    monkeypatch.setattr(device, "_shifted", lambda words, bits: words >> bits)  # signs come in
    with pytest.raises(PrecisionError, match=r"other numbers on cpu .* Use generator='philox'"):
        TorchNoiseStream(strategies.identity(3), 1.0, [torch.zeros(3)], 5)
    TorchNoiseStream(strategies.identity(3), 1.0, [torch.zeros(3)], 5, generator="philox")
    device.check.cache_clear()
