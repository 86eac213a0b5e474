"""Claim: bad input to the Python API is an `MmccError` of one or two sentences."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import mmcc
from mmcc import MmccError, pld, sampling, strategies

NAN, INF = float("nan"), float("inf")
NOT_NUMBERS = (None, "1", True, 1 + 0j, [1.0], np.array([1.0]), object())
HUGE = 10**400
STRATEGY, SCHEME = strategies.binary_tree(4), sampling.Poisson(0.1)


def named(value: object) -> str:
    """A short name for a parameter, the same in every process."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))[:40]


def refused(call: Callable[[], object], *, longest: int = 400) -> str:
    """The message of the error, which must be one line that ends as a sentence does."""
    with pytest.raises(MmccError) as caught:
        call()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) <= longest
    return message


# ------------------------------------------------------------------------------------ sampling


@pytest.mark.parametrize("value", [0, -0.1, 1.0001, NAN, INF, -INF, HUGE, *NOT_NUMBERS], ids=named)
def test_probability(value):
    assert "probability" in refused(lambda: sampling.Poisson(value))
    assert "probability" in refused(lambda: sampling.CyclicPoisson(value, 2))


@pytest.mark.parametrize(
    "value", [0, -1, 1.0, 2.5, NAN, INF, 10**13, Fraction(3, 2), *NOT_NUMBERS], ids=named
)
def test_separation(value):
    assert "separation" in refused(lambda: sampling.CyclicPoisson(0.5, value))


# ----------------------------------------------------------------------------------- strategies


@pytest.mark.parametrize("value", [0, -1, 1.0, NAN, INF, 10**13, HUGE, *NOT_NUMBERS], ids=named)
@pytest.mark.parametrize(
    "make",
    [
        strategies.identity,
        strategies.binary_tree,
        strategies.continual_counting,
        lambda steps: strategies.tree_restart(steps, 2),
        lambda steps: strategies.toeplitz([1.0, 0.5], steps),
    ],
    ids=["identity", "binary_tree", "continual_counting", "tree_restart", "toeplitz"],
)
def test_steps(make, value):
    assert "steps" in refused(lambda: make(value), longest=600)


@pytest.mark.parametrize("value", [0, -1, 1.5, NAN, INF, 1000, HUGE, *NOT_NUMBERS], ids=named)
def test_height(value):
    assert "height" in refused(lambda: strategies.tree_restart(16, value), longest=600)


@pytest.mark.parametrize(
    "value",
    [
        [],
        [[1.0]],
        1.0,
        None,
        "abc",
        {1.0},
        [None],
        [0.0, 1.0],
        [1.0, -1.0],
        [1.0, NAN],
        [1.0, INF],
        [1e200],
        [1e-200],
        [HUGE],
        [1.0, 1j],
    ],
    ids=named,
)
def test_coefficients(value):
    assert "coefficients" in refused(lambda: strategies.toeplitz(value, 4))


def test_too_many_counting_steps():
    assert "toeplitz" in refused(lambda: strategies.continual_counting(10**9))


@pytest.mark.parametrize(
    "value", [None, "abc", [["a"]], [[None]], [[object()]], [[1j]], {1: 2}, [[HUGE]]], ids=named
)
def test_dense(value):
    refused(lambda: strategies.dense(value))


def test_dense_forms_that_would_not_fit():
    refused(strategies.identity(10**9).to_dense)
    refused(strategies.binary_tree(2**30).to_dense)


# ---------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("path", ["nothing.npy", "nothing.npz", "nothing.csv", "nothing/c.npy"])
def test_missing_file(tmp_path, path):
    assert "No such file" in refused(lambda: strategies.load(tmp_path / path))


@pytest.mark.parametrize("path", ["c", "c.txt", "c.mat", "c.npy.gz", ""])
def test_unknown_kind_of_file(tmp_path, path):
    assert "expected a .npy, .npz or .csv" in refused(lambda: strategies.load(path))


@pytest.mark.parametrize("kind", ["npy", "npz", "csv"])
def test_a_directory_is_not_a_file(tmp_path, kind):
    (tmp_path / f"c.{kind}").mkdir()
    refused(lambda: strategies.load(tmp_path / f"c.{kind}"))


@pytest.mark.parametrize("path", [None, 3, 2.5, b"\xff\xfe", ["c.npy"], "a\0b.npy"], ids=named)
def test_a_path_that_is_none(path):
    refused(lambda: strategies.load(path))


def write(path, content: bytes) -> None:
    path.write_bytes(content)


def valid_npy(tmp_path) -> bytes:
    np.save(tmp_path / "valid.npy", np.eye(3))
    return (tmp_path / "valid.npy").read_bytes()


def valid_npz(tmp_path) -> bytes:
    np.savez_compressed(tmp_path / "valid.npz", np.eye(30))
    return (tmp_path / "valid.npz").read_bytes()


@pytest.mark.parametrize("keep", [0, 1, 6, 8, 20, 100, 128, 150, 199])
def test_truncated_npy(tmp_path, keep):
    write(tmp_path / "c.npy", valid_npy(tmp_path)[:keep])
    refused(lambda: strategies.load(tmp_path / "c.npy"))


@pytest.mark.parametrize("keep", [0, 1, 4, 30, 100, 200])
def test_truncated_npz(tmp_path, keep):
    write(tmp_path / "c.npz", valid_npz(tmp_path)[:keep])
    refused(lambda: strategies.load(tmp_path / "c.npz"))


@pytest.mark.parametrize("place", [60, 70, 80])
def test_npz_with_flipped_bytes(tmp_path, place):
    content = bytearray(valid_npz(tmp_path))
    content[place : place + 4] = b"\xff\x00\xff\x00"
    write(tmp_path / "c.npz", bytes(content))
    refused(lambda: strategies.load(tmp_path / "c.npz"))


def test_npy_with_a_garbled_header(tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, "
    write(tmp_path / "c.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    refused(lambda: strategies.load(tmp_path / "c.npy"))


def test_npy_that_claims_to_be_enormous(tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000000), }\n"
    write(tmp_path / "c.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    refused(lambda: strategies.load(tmp_path / "c.npy"))


def test_npy_of_something_else(tmp_path):
    for name, array in [
        ("objects", np.array([[None]], dtype=object)),
        ("text", np.array([["a"]])),
        ("complex", np.array([[1j]])),
        ("dates", np.array([["2020-01-01"]], dtype="datetime64[D]")),
        ("fields", np.zeros(2, dtype=[("a", float)])),
        ("scalar", np.array(1.0)),
        ("vector", np.ones(3)),
        ("cube", np.ones((2, 2, 2))),
        ("empty", np.ones((0, 3))),
        ("nan", np.array([[NAN]])),
        ("negative", np.array([[-1.0]])),
    ]:
        np.save(tmp_path / f"{name}.npy", array, allow_pickle=True)
        refused(lambda name=name: strategies.load(tmp_path / f"{name}.npy"))


def test_npz_of_none_or_two_arrays(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.eye(2), b=np.eye(2))
    assert "2 arrays" in refused(lambda: strategies.load(tmp_path / "two.npz"))
    np.savez(tmp_path / "none.npz")
    assert "0 arrays" in refused(lambda: strategies.load(tmp_path / "none.npz"))


def test_npz_with_something_else_inside(tmp_path):
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("readme.txt", "no matrix here")
    refused(lambda: strategies.load(tmp_path / "c.npz"))


@pytest.mark.parametrize("kind", ["npy", "npz", "csv"])
def test_files_under_the_wrong_name(tmp_path, kind):
    contents = {"npy": valid_npy(tmp_path), "npz": valid_npz(tmp_path), "csv": b"1,0\n0,1\n"}
    for other, content in contents.items():
        if other != kind:
            write(tmp_path / f"c.{kind}", content)
            refused(lambda: strategies.load(tmp_path / f"c.{kind}"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"1,2\n3\n",
        b"a,b\n1,2\n",
        b"1,2\n3,\n",
        b"1,nan\n",
        b"1,inf\n",
        b"1,-1\n",
        b"1 2\n3 4\n",
        b"\xff\xfe\x00",
        b"\x00\x00",
        b"1,0\n1,0\n",
    ],
    ids=named,
)
def test_csv(tmp_path, content):
    write(tmp_path / "c.csv", content)
    refused(lambda: strategies.load(tmp_path / "c.csv"))


def test_csv_with_decimal_commas_is_not_misread(tmp_path):
    """`1,5;0` means [1.5, 0] to whoever wrote it, not [1, 5, 0]."""
    write(tmp_path / "c.csv", b"1,5;0\n0,5;1\n")
    refused(lambda: strategies.load(tmp_path / "c.csv"))


# ------------------------------------------------------------------------------------ questions

QUESTIONS = {
    "epsilon": (mmcc.epsilon, {"sigma": 2.0, "delta": 1e-5}),
    "delta": (mmcc.delta, {"sigma": 2.0, "epsilon": 1.0}),
    "sigma": (mmcc.sigma, {"epsilon": 1.0, "delta": 1e-5}),
}
RANGES = {
    "sigma": (0, -1, NAN, INF, -INF, 1e13, HUGE, *NOT_NUMBERS),
    "epsilon": (-1, NAN, INF, -INF, 1e7, HUGE, *NOT_NUMBERS),
    "delta": (0, 1, -1, 2, NAN, INF, -INF, HUGE, *NOT_NUMBERS),
}
CASES = [
    (question, name, value)
    for question, (_, numbers) in QUESTIONS.items()
    for name in numbers
    for value in RANGES[name]
]


@pytest.mark.parametrize(("question", "name", "value"), CASES, ids=named)
def test_numbers(question, name, value):
    function, numbers = QUESTIONS[question]
    message = refused(lambda: function(STRATEGY, SCHEME, **{**numbers, name: value}), longest=600)
    assert name in message


def test_sigma_needs_a_positive_epsilon():
    assert "epsilon" in refused(lambda: mmcc.sigma(STRATEGY, SCHEME, epsilon=0, delta=1e-5))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"strategy": np.eye(3)}, "mmcc.strategies.dense"),
        ({"strategy": [[1.0]]}, "mmcc.strategies.dense"),
        ({"strategy": "identity"}, "strategies"),
        ({"strategy": None}, "strategies"),
        ({"scheme": 0.1}, "sampling.Poisson"),
        ({"scheme": None}, "sampling.Poisson"),
        ({"scheme": "poisson"}, "sampling.Poisson"),
        ({"method": "mmc"}, "did you mean 'mmcc'"),
        ({"method": None}, "choose from"),
        ({"method": 3}, "choose from"),
        ({"method": "projecton"}, "choose from"),
        ({"method": "mmcc", "order": "heavi"}, "did you mean 'heavy'"),
        ({"method": "mmcc", "order": 3}, "choose from"),
        ({"order": "heavy"}, "mmcc"),
        ({"method": "unamplified", "order": "release"}, "mmcc"),
        ({"executor": 3}, "executor"),
        ({"progress": 3}, "progress"),
    ],
    ids=named,
)
def test_everything_else(question, changed, said):
    function, numbers = QUESTIONS[question]
    changed = dict(changed)
    arguments = (changed.pop("strategy", STRATEGY), changed.pop("scheme", SCHEME))
    assert said in refused(lambda: function(*arguments, **numbers, **changed))


@pytest.mark.parametrize("sigma", [1e-3, 1e-30, 1e-300])
def test_hardly_any_noise_is_answered_or_refused(sigma):
    """Any sigma > 0 is allowed; what cannot be certified must say so."""
    try:
        found = mmcc.epsilon(STRATEGY, SCHEME, sigma=sigma, delta=1e-5)
    except MmccError:
        return
    assert found.epsilon > 1e3


@pytest.mark.parametrize("delta", [1e-100, 1e-300, 5e-324])
def test_hardly_any_delta_is_answered_or_refused(delta):
    try:
        found = mmcc.epsilon(STRATEGY, SCHEME, sigma=2.0, delta=delta)
    except MmccError:
        return
    assert found.epsilon > 1


@pytest.mark.parametrize("method", ["tight", "mmcc", "unamplified"])
def test_delta_is_never_claimed_to_be_zero(method):
    """No Gaussian mechanism is purely private: a delta that underflows is not zero."""
    found = mmcc.delta(strategies.identity(3), SCHEME, sigma=1.0, epsilon=900.0, method=method)
    assert found.delta > 0


# ------------------------------------------------------------------------------- distributions

ONE = pld.mixture_of_gaussians([0, 1], [0.9, 0.1], 1.0)


@pytest.mark.parametrize(
    "value",
    [
        [],
        [-1.0, 1.0],
        [NAN, 1.0],
        [INF, 1.0],
        [1.0],
        [[0.0, 1.0]],
        1.0,
        None,
        "ab",
        [None, 1],
        [0.0, 1e9],
        [0.0, HUGE],
        np.array([0, 1j]),
    ],
    ids=named,
)
def test_sensitivities(value):
    refused(lambda: pld.mixture_of_gaussians(value, [0.5, 0.5], 1.0))


@pytest.mark.parametrize(
    "value",
    [
        [],
        [1.0],
        [0.5, 0.6],
        [0.5, 0.4],
        [1.5, -0.5],
        [NAN, 1.0],
        [INF, 0.0],
        [[0.5, 0.5]],
        None,
        "ab",
        [None, 1],
    ],
    ids=named,
)
def test_probabilities(value):
    refused(lambda: pld.mixture_of_gaussians([0, 1], value, 1.0))


@pytest.mark.parametrize("value", [0, -1, NAN, INF, 1e13, HUGE, *NOT_NUMBERS], ids=named)
def test_mixture_sigma(value):
    assert "sigma" in refused(
        lambda: pld.mixture_of_gaussians([0, 1], [0.5, 0.5], value), longest=600
    )


@pytest.mark.parametrize("value", [0, -1, NAN, INF, 1e4, "x"], ids=named)
def test_mixture_spacing(value):
    assert "spacing" in refused(
        lambda: pld.mixture_of_gaussians([0, 1], [0.5, 0.5], 1.0, spacing=value)
    )


@pytest.mark.parametrize("spacing", [1e-300, 1e-9, 100.0, 900.0])
def test_a_spacing_that_cannot_work_is_refused_when_used(spacing):
    """Or answered, if the grid can be afforded."""
    try:
        distribution = pld.mixture_of_gaussians([0, 1], [0.5, 0.5], 1.0, spacing=spacing)
        found = distribution.epsilon(1e-5)
    except MmccError:
        return
    assert found >= 4.0


def test_no_sensitivity_at_all_is_perfectly_private():
    nothing = pld.mixture_of_gaussians([0], [1], 1.0)
    assert nothing.epsilon(1e-5) <= 1e-3
    assert nothing.delta(0.0) <= 1e-3


@pytest.mark.parametrize("value", RANGES["delta"], ids=named)
def test_distribution_delta(value):
    assert "delta" in refused(lambda: ONE.epsilon(value), longest=600)


@pytest.mark.parametrize("value", RANGES["epsilon"], ids=named)
def test_distribution_epsilon(value):
    assert "epsilon" in refused(lambda: ONE.delta(value), longest=600)


@pytest.mark.parametrize("value", ["x", None, 3, "Remove"], ids=named)
def test_distribution_adjacency(value):
    assert "adjacency" in refused(lambda: ONE.epsilon(1e-5, value))
    assert "adjacency" in refused(lambda: ONE.delta(1.0, value))


@pytest.mark.parametrize("value", [0, -1, 1.5, NAN, INF, HUGE, *NOT_NUMBERS], ids=named)
def test_self_compose(value):
    assert "count" in refused(lambda: ONE.self_compose(value), longest=600)


@pytest.mark.parametrize("value", [None, 3, "x", [ONE]], ids=["None", "3", "x", "list"])
def test_compose(value):
    refused(lambda: ONE.compose(value))


@pytest.mark.parametrize(
    "value", [[], [3], [None], None, 3, ONE], ids=["empty", "[3]", "[None]", "None", "3", "alone"]
)
def test_conditional_composition(value):
    assert "distribution" in refused(lambda: pld.conditional_composition(value, 1e-7))


@pytest.mark.parametrize("value", [-0.1, 1, 2, NAN, INF, HUGE, *NOT_NUMBERS], ids=named)
def test_bad_event_probability(value):
    assert "bad_event_probability" in refused(
        lambda: pld.conditional_composition([ONE], value), longest=600
    )


def test_delta_within_the_bad_event_probability_is_refused():
    distribution = pld.conditional_composition([ONE], 1e-5)
    refused(lambda: distribution.epsilon(1e-5))
    assert distribution.delta(50.0) >= 1e-5
