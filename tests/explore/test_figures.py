"""Claim: the explorer's plots have ticks, name the chosen noise, and stand on their page."""

from __future__ import annotations

import numpy as np
import pytest

from mmcc.explore._figures import epsilon_figure, strategy_figure


@pytest.fixture
def layout():
    uppers = [(8.0, 1.1), (14.0, 0.5), (22.0, 0.27)]
    return epsilon_figure(14.0, uppers=uppers, lowers=uppers, unamplified=[], one_pass=[])["layout"]


def test_both_axes_have_several_ticks(layout):
    for axis, low, high in (("xaxis", 8, 22), ("yaxis", 0.27, 1.1)):
        places = layout[axis]["tickvals"]
        assert len(places) >= 3
        assert low <= min(places) <= max(places) <= high
        assert layout[axis]["ticktext"] == [f"{place:g}" for place in places]


def test_the_chosen_noise_is_named_and_the_legend_is_in_order(layout):
    assert [note["text"] for note in layout["annotations"]] == ["σ = 14"]  # noqa: RUF001
    assert layout["legend"]["traceorder"] == "normal"


def test_no_points_and_equal_points_leave_the_ticks_to_plotly():
    for points in ([], [(3.0, 1.0)], [(1e-3, 1e5), (1.0, 1.0)]):
        found = epsilon_figure(3.0, uppers=points, lowers=[], unamplified=[], one_pass=[])
        assert "tickvals" not in found["layout"]["yaxis"]


def test_where_c_is_zero_the_page_is_seen():
    """In the dark a white ground became a black one."""
    (heat,) = strategy_figure(np.eye(4))["data"]
    assert heat["colorscale"][0][1].endswith(", 0)")
