"""Claim: the picture of a strategy shows its matrix, thinned where it is too large."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mmcc import strategies
from mmcc.report._pictures import CELLS, FIRST, strategy_pictures, thinned


def test_a_small_matrix_is_shown_entry_by_entry():
    tree = strategies.binary_tree(16)
    view = thinned(tree)
    assert np.array_equal(view.values, tree.to_dense())
    assert view.made == "every entry"


@pytest.mark.parametrize(
    "strategy", [strategies.binary_tree(300), strategies.toeplitz([1.0, 0.5, 0.2], 201)], ids=repr
)
def test_a_cell_is_the_largest_entry_of_its_block(strategy):
    matrix, view = strategy.to_dense(), thinned(strategy)
    rows, steps = matrix.shape
    down, across = view.values.shape
    assert max(down, across) <= CELLS
    for i in range(down):
        for j in range(across):
            block = matrix[
                i * rows // down : (i + 1) * rows // down,
                j * steps // across : (j + 1) * steps // across,
            ]
            assert view.values[i, j] == block.max()


@pytest.mark.parametrize(
    "strategy",
    [
        strategies.binary_tree(2**30),
        strategies.identity(10**9),
        strategies.continual_counting(10**5),
    ],
    ids=repr,
)
def test_a_matrix_of_any_size_is_drawn_by_its_first_steps(strategy):
    view = thinned(strategy)
    assert np.array_equal(view.values, strategy.prefix(FIRST).to_dense())
    pictures = strategy_pictures(strategy)
    assert f"the first {FIRST} of" in pictures[0].description
    assert len(pictures) == (2 if "counting" in repr(strategy) else 1)
    for picture in pictures:
        assert len(picture.body) < 100_000
        assert "<script" not in picture.body
        assert "http" not in picture.body


def test_pictures_are_in_the_house_style():
    """Lines, texts and shades have the colours of all other plots, and are told apart in grey."""
    from mmcc._picture import BLUE, DARK, GREY, PALE, SHADES

    heat, line = strategy_pictures(strategies.toeplitz([1.0, 0.5, 0.2], 20))
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", heat.body + line.body))
    assert BLUE in used
    assert used <= {BLUE, DARK, GREY, PALE, "#ffffff", "#000000"}
    red, green, blue = np.array([[int(one[k : k + 2], 16) for k in (1, 3, 5)] for one in SHADES]).T
    assert (np.diff(0.299 * red + 0.587 * green + 0.114 * blue) < 0).all()


def test_the_axes_of_many_coefficients_have_round_numbers():
    """1, 10, 100 and a power of ten for what is small; equal coefficients too."""
    for coefficients in ([0.9**k for k in range(200)], [1.0] * 200):
        _, line = strategy_pictures(strategies.toeplitz(coefficients, 200))
        texts = re.findall(r">([^<>]+)</text>", line.body)
        assert {"1", "10", "100"} <= set(texts)
        assert not any("e-" in text for text in texts)
