"""Claim: a strategy's structure says the same as its matrix written out."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from cases.samples import sampled

from mmcc import MmccError, epsilon
from mmcc.sampling import CyclicPoisson, Poisson
from mmcc.strategies import (
    binary_tree,
    continual_counting,
    dense,
    identity,
    load,
    toeplitz,
    tree_restart,
)
from mmcc.strategies._base import ORDERS, Strategy

# ---------------------------------------------------------------- the same matrices, by definition


def tree_matrix(steps: int, height: int) -> np.ndarray:
    """Every complete node of at most `height` levels, by the step that completes it."""
    nodes = [
        ((index + 1) * 2**level, level, index)
        for level in range(height)
        for index in range(steps)
        if (index + 1) * 2**level <= steps
    ]
    matrix = np.zeros((len(nodes), steps))
    for row, (end, level, _) in zip(matrix, sorted(nodes), strict=True):
        row[end - 2**level : end] = 1
    return matrix


def toeplitz_matrix(coefficients: list[float], steps: int) -> np.ndarray:
    matrix = np.zeros((steps, steps))
    for i, j in product(range(steps), range(steps)):
        if 0 <= i - j < len(coefficients):
            matrix[i, j] = coefficients[i - j]
    return matrix


def counting_coefficients(steps: int) -> list[float]:
    """binom(2k, k) / 4^k."""
    found = [1.0]
    for k in range(1, steps):
        found.append(found[-1] * (2 * k - 1) / (2 * k))
    return found


BANDS = ([1.0, 0.5], [1.0, 0.5, 0.25], [1.0, 0.0, 0.5], [0.5, 2.0, 1.0], [0.3, 0.0, 0.0, 0.7])
FAMILY = [
    *((binary_tree(n), tree_matrix(n, 40)) for n in range(1, 21)),
    *((tree_restart(n, h), tree_matrix(n, h)) for n in (1, 5, 8, 13, 16, 20) for h in range(1, 6)),
    *((identity(n), np.eye(n)) for n in (1, 2, 9)),
    *(
        (continual_counting(n), toeplitz_matrix(counting_coefficients(n), n))
        for n in (1, 2, 3, 5, 8, 13, 20)
    ),
    *((toeplitz(c, n), toeplitz_matrix(c, n)) for c in BANDS for n in (1, 2, 3, 7, 12, 31)),
]
NAMES = [repr(strategy) for strategy, _ in FAMILY]
family = pytest.mark.parametrize(("strategy", "matrix"), FAMILY, ids=NAMES)


@family
def test_dense_form(strategy, matrix):
    assert (strategy.rows, strategy.steps) == matrix.shape
    assert strategy.adaptive
    np.testing.assert_allclose(strategy.to_dense(), matrix, rtol=1e-14)


@family
def test_sensitivity_is_the_worst_group_rounded_up(strategy, matrix):
    for separation in range(1, matrix.shape[1] + 2):
        exact = max(
            np.linalg.norm(matrix[:, group::separation].sum(axis=1))
            for group in range(min(separation, matrix.shape[1]))
        )
        for described in (strategy, dense(matrix)):
            found = described.sensitivity(separation)
            assert exact * (1 - 1e-14) <= found <= exact * (1 + 1e-9)


# ------------------------------------------------------------------------------------- geometry


def blocks_of(strategy: Strategy, order: str, separation: int, group: int) -> Counter:
    """Every block as the multiset of its entries (value, square, sum), with multiplicity."""
    found: Counter = Counter()
    for block in strategy.geometry(order, separation, group).blocks():
        entries = np.column_stack([block.values, block.squares, block.sums])
        entries = np.repeat(entries, block.repeats, axis=0)
        found[tuple(sorted(map(tuple, entries.round(9).tolist())))] += block.count
    return found


@pytest.mark.parametrize(("strategy", "matrix", "order"), sampled(FAMILY, ORDERS, strength=1))
def test_structure_and_matrix_have_the_same_geometry(strategy, matrix, order):
    written_out = dense(matrix)
    for separation in range(1, matrix.shape[1] + 1):
        for group in strategy.groups(separation):
            ours = strategy.geometry(order, separation, group)
            theirs = written_out.geometry(order, separation, group)
            assert ours.columns == theirs.columns
            assert ours.events == theirs.events
            assert ours.rows == theirs.rows
            found = blocks_of(strategy, order, separation, group)
            expected = blocks_of(written_out, order, separation, group)
            assert found == expected, f"separation {separation}, group {group}"


def random_causal(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, 9))
    matrix = rng.uniform(0.1, 2, (columns + 3, columns)) * (
        rng.random((columns + 3, columns)) < 0.5
    )
    matrix[:columns] += np.eye(columns)
    matrix = matrix[matrix.any(axis=1)]
    last = [int(np.flatnonzero(row)[-1]) for row in matrix]
    return matrix[np.argsort(last, kind="stable")]


def expected_entries(matrix: np.ndarray, order: str, separation: int, group: int) -> list:
    """Blocks straight from the definition: values, squares and sums of each, largest overlap."""
    last = np.array([np.flatnonzero(row)[-1] for row in matrix])
    part = matrix[:, group::separation]
    number = np.arange(len(matrix)) if separation == 1 else (last - group) // separation
    rows = [np.flatnonzero(number == k) for k in np.unique(number)]
    if order != "release":
        rows.reverse()
    if order == "heavy":
        rows.sort(key=lambda chosen: -part[chosen].sum())
    before = np.zeros((0, part.shape[1]))
    blocks = []
    for chosen in rows:
        gram = before.T @ before
        touched = np.flatnonzero(part[chosen].any(axis=0))
        if touched.size:
            blocks.append(
                {
                    "values": np.linalg.norm(part[chosen], axis=0)[touched],
                    "squares": np.diag(gram)[touched],
                    "sums": gram.sum(axis=1)[touched],
                    "peaks": gram.max(axis=1)[touched],
                    "overlaps": gram[touched],
                }
            )
        before = np.vstack([before, part[chosen]])
    return blocks


def same_width(*arrays: np.ndarray) -> list[np.ndarray]:
    """Columns that no row has touched yet may be missing: they are zero."""
    width = max(array.shape[1] for array in arrays)
    return [np.pad(array, ((0, 0), (0, width - array.shape[1]))) for array in arrays]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(12))
def test_dense_geometry_is_the_definition(seed, order):
    matrix = random_causal(seed)
    for separation in range(1, matrix.shape[1] + 1):
        strategy = dense(matrix)
        for group in strategy.groups(separation):
            found = list(strategy.geometry(order, separation, group).blocks())
            expected = expected_entries(matrix, order, separation, group)
            assert len(found) == len(expected)
            for block, entries in zip(found, expected, strict=True):
                for name in ("values", "squares", "sums"):
                    np.testing.assert_allclose(
                        getattr(block, name), entries[name], rtol=1e-12, atol=1e-12
                    )
                assert (block.peaks >= entries["peaks"] * (1 - 1e-12)).all()
                if block.overlaps is not None:
                    np.testing.assert_allclose(
                        *same_width(block.overlaps, entries["overlaps"]), rtol=1e-12, atol=1e-12
                    )


@pytest.mark.parametrize("steps", range(1, 21))
@pytest.mark.parametrize("order", ["release", "reversed"])
def test_overlaps_of_tree_levels(steps, order):
    """Trees give the overlaps as counted values; here they are counted one by one."""
    expected: Counter = Counter()
    for block in dense(tree_matrix(steps, 40)).geometry(order, 1, 0).blocks():
        rows = np.zeros((block.values.size, 1)) if block.overlaps is None else block.overlaps
        key = [tuple(sorted(row[row > 0].tolist(), reverse=True)) for row in rows]
        expected[tuple(sorted(key))] += 1
    found: Counter = Counter()
    for block in binary_tree(steps).geometry(order, 1, 0).blocks():
        row: tuple[float, ...] = ()
        if block.overlaps is not None:
            row = tuple(np.repeat(block.overlaps[0], block.overlap_counts).tolist())
            row = tuple(value for value in row if value > 0)
            assert row == tuple(sorted(row, reverse=True))
        found[(row,) * block.repeats] += block.count
    assert found == expected


@pytest.mark.parametrize("steps", [700, 1000])
@pytest.mark.parametrize("separation", [1, 2, 3])
@pytest.mark.parametrize("order", ["release", "reversed"])
def test_long_banded_matrices_show_their_middle_once(steps, separation, order):
    coefficients = [1.0, 0.5, 0.25]
    strategy = toeplitz(coefficients, steps)
    geometry = strategy.geometry(order, separation, 0)
    assert geometry.distinct < 30
    written_out = dense(toeplitz_matrix(coefficients, steps))
    assert geometry.events == written_out.geometry(order, separation, 0).events
    assert blocks_of(strategy, order, separation, 0) == blocks_of(written_out, order, separation, 0)


@pytest.mark.parametrize(
    ("strategy", "scheme"),
    [
        (binary_tree(13), Poisson(0.1)),
        (tree_restart(12, 3), CyclicPoisson(0.3, 4)),
        (continual_counting(9), Poisson(0.2)),
        (toeplitz([1.0, 0.5], 9), CyclicPoisson(0.3, 3)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("method", ["mmcc", "unamplified"])
def test_structure_and_matrix_have_the_same_epsilon(strategy, scheme, method):
    found = epsilon(strategy, scheme, sigma=4, delta=1e-5, method=method)
    again = epsilon(dense(strategy.to_dense()), scheme, sigma=4, delta=1e-5, method=method)
    assert found.epsilon == pytest.approx(again.epsilon, rel=2e-3)


def test_huge_strategies_stay_small():
    for strategy in (binary_tree(2**30), toeplitz([1.0, 0.5], 10**9), identity(10**12)):
        assert strategy.steps >= 10**9
        assert strategy.sensitivity(1) > 0
        with pytest.raises(MmccError, match="GiB"):
            strategy.to_dense()


# ----------------------------------------------------------------------- refused and accepted


@pytest.mark.parametrize(
    ("matrix", "because"),
    [
        ([[1.0, -0.5], [0.0, 1.0]], "negative"),
        ([[1.0, float("nan")]], "not finite"),
        ([[1.0, float("inf")]], "not finite"),
        ([], "at least one row"),
        ([[]], "at least one row"),
        ([1.0, 2.0], "shape"),
        (np.ones((2, 2, 2)), "shape"),
        (3.0, "shape"),
        ([[1.0, 0.0], [1.0, 0.0]], "column 1 is zero"),
        (np.zeros((3, 3)), "column 0 is zero"),
        ([[1.0], [1.0, 2.0]], "rectangular"),
        ([["a", "b"]], "real numbers"),
        ([[1e-200, 1.0]], "Rescale"),
        ([[1e200, 1.0]], "Rescale"),
        ([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]], "causal"),
    ],
)
def test_refused_matrices(matrix, because):
    with pytest.raises(MmccError, match=because):
        dense(matrix)


def test_complex_matrices_are_refused():
    with pytest.raises(MmccError):
        dense(np.array([[1.0 + 1.0j]]))
    with pytest.raises(MmccError):
        toeplitz(np.array([1.0 + 1.0j]), 3)


def test_causal_order():
    dense([[1, 1], [0, 1]], adaptive=False)
    with pytest.raises(MmccError, match="adaptive=False"):
        dense([[1, 1], [1, 0]])
    dense([[1, 0], [1, 1]])  # lower triangular
    dense([[1, 0], [1, 0], [1, 1]])  # rows may share their last step
    dense([[1, 0, 0], [0, 0.0, 1], [0, 1, 1]])  # sorted by last column, though not triangular
    dense([[1, 0, 0], [1, 1, 0], [1, 0, 1]])
    dense(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]))


def test_a_row_of_zeros_is_harmless():
    """It releases noise alone: its place in the order of release does not matter."""
    rows = [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]]
    found = epsilon(dense(rows), Poisson(0.1), sigma=3, delta=1e-5, method="mmcc")
    without = epsilon(dense([rows[0], rows[2]]), Poisson(0.1), sigma=3, delta=1e-5, method="mmcc")
    assert found.epsilon == pytest.approx(without.epsilon, rel=1e-3)


def test_non_adaptive_guarantees_say_so():
    rows = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    strategy = dense(rows, adaptive=False)
    assert not strategy.adaptive
    assert "adaptive=False" in repr(strategy)
    found = epsilon(strategy, Poisson(0.1), sigma=3, delta=1e-5)
    assert found.adaptive is False
    assert found.to_dict()["adaptive"] is False
    assert "non-adaptive" in str(found)
    assert epsilon(identity(3), Poisson(0.1), sigma=3, delta=1e-5).adaptive is True


@pytest.mark.parametrize("scheme", [Poisson(0.2), CyclicPoisson(0.4, 2), CyclicPoisson(1, 3)])
def test_a_bound_does_not_depend_on_the_order_of_release_when_inputs_are_fixed(scheme):
    """|C 1_S| is the same for any order of the rows."""
    matrix = random_causal(3)
    shuffled = dense(matrix[np.random.default_rng(0).permutation(len(matrix))], adaptive=False)
    found = epsilon(shuffled, scheme, sigma=3, delta=1e-5, method="unamplified")
    in_order = epsilon(dense(matrix), scheme, sigma=3, delta=1e-5, method="unamplified")
    assert found.epsilon == pytest.approx(in_order.epsilon, rel=1e-9)


def test_strategies_own_their_arrays():
    array = np.eye(3)
    strategy = dense(array)
    array[0, 0] = 5.0
    assert strategy.to_dense()[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        strategy.to_dense()[0, 0] = 2.0


def test_repr_reads_back():
    for strategy, again in [
        (identity(5), "identity(5)"),
        (binary_tree(12), "binary_tree(12)"),
        (tree_restart(32, 3), "tree_restart(32, 3)"),
        (continual_counting(7), "continual_counting(7)"),
        (toeplitz([1.0, 0.5], 7), "toeplitz([1, 0.5], 7)"),
    ]:
        assert repr(strategy) == again


# ---------------------------------------------------------------------------------------- files


def test_files_read_back(tmp_path):
    matrix = tree_matrix(4, 40)
    np.save(tmp_path / "c.npy", matrix)
    np.savez(tmp_path / "c.npz", matrix)
    np.savez_compressed(tmp_path / "d.npz", C=matrix)
    np.savetxt(tmp_path / "c.csv", matrix, delimiter=",")
    (tmp_path / "d.CSV").write_text("1;0\n\n0.5; 1\n")
    for name in ("c.npy", "c.npz", "d.npz", "c.csv"):
        np.testing.assert_array_equal(load(tmp_path / name).to_dense(), matrix)
        np.testing.assert_array_equal(load(str(tmp_path / name)).to_dense(), matrix)
    np.testing.assert_array_equal(load(tmp_path / "d.CSV").to_dense(), [[1, 0], [0.5, 1]])
    np.save(tmp_path / "i.npy", np.eye(3, dtype=np.int32))
    assert load(tmp_path / "i.npy").steps == 3


def test_files_may_be_non_adaptive(tmp_path):
    np.save(tmp_path / "c.npy", [[1.0, 1.0], [1.0, 0.0]])
    with pytest.raises(MmccError, match="causal"):
        load(tmp_path / "c.npy")
    assert not load(tmp_path / "c.npy", adaptive=False).adaptive
