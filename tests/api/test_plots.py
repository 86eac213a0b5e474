"""Claim: pictures show what was computed, name what they show, and look alike."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import mmcc
from mmcc import plots, sampling, strategies
from mmcc.design import Comparison
from mmcc.design._comparison import BASELINE, LOSES, UNAMPLIFIED, Row
from mmcc.errors import ParameterError

pytest.importorskip("matplotlib")

DELTA = 1e-6


@pytest.fixture(autouse=True)
def few_points(monkeypatch):
    monkeypatch.setattr(plots, "POINTS", 3)


@pytest.fixture(scope="module")
def bracket():
    return mmcc.bracket(strategies.identity(8), sampling.Poisson(1 / 4), sigma=4.0, delta=DELTA)


@pytest.fixture(scope="module")
def drawn(bracket):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "POINTS", 3)
        return bracket.plot()


def row(strategy: str, scheme: str, epsilon: float, rmse: float, **more) -> Row:
    return Row(
        strategy=strategy,
        detail=strategy,
        scheme=scheme,
        sampling=scheme,
        separation=None,
        epsilon=epsilon,
        delta=DELTA,
        method="tight",
        correlated=strategy != BASELINE,
        certified=True,
        sigma=1.0,
        rmse=rmse,
        **{"verdict": LOSES, **more},
    )


def comparison(*epsilons: float) -> Comparison:
    base = tuple(
        row(BASELINE, "poisson", e, 20 / e, verdict=BASELINE, bound="mmcc") for e in epsilons
    )
    rows = [
        row(strategy, scheme, e, size / e, reservations=told)
        for e in epsilons
        for scheme, told in (("poisson", ()), ("fixed-order", (UNAMPLIFIED,)))
        for strategy, size in (("tree", 31.0 + len(told)), ("bands", 17.0 + len(told)))
    ]
    return Comparison(100, 0.01, DELTA, "tight", base, tuple(rows))


# -------------------------------------------------------------------------- epsilon against sigma


def test_the_legend_has_the_lines_that_are_seen(drawn):
    (axes,) = drawn.axes
    named = [line for line in axes.lines if not line.get_label().startswith("_")]
    (legend,) = drawn.legends
    shown = {text.get_text() for text in legend.get_texts()}
    assert shown == {line.get_label() for line in named} | {plots.BETWEEN}
    low, high = axes.get_ylim()
    for line in named:
        heights = np.asarray(line.get_ydata(), dtype=float)
        assert ((heights >= low) & (heights <= high)).any(), line.get_label()
    assert plots.LOWER in shown


def test_the_legend_covers_no_line(drawn):
    """It stands outside the axes."""
    drawn.draw_without_rendering()
    (axes,), (legend,) = drawn.axes, drawn.legends
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())


def test_a_small_delta_is_written_as_a_power_of_ten(drawn):
    (axes,) = drawn.axes
    assert "$10^{-6}$" in axes.get_ylabel()


def test_there_are_ticks_and_the_noise_asked_about_is_named(drawn):
    (axes,) = drawn.axes
    for ticks, (low, high) in (
        (axes.get_xticks(), axes.get_xlim()),
        (axes.get_yticks(), axes.get_ylim()),
    ):
        assert len([t for t in ticks if low <= t <= high]) >= 3
    assert "sigma = 4" in [text.get_text() for text in axes.texts]
    assert "clip norms" in axes.get_xlabel()
    assert "noise multiplier" in axes.get_xlabel()


@pytest.mark.parametrize("spread", [1.1, 1.5, 3.0, 30.0, 1e4, 1e9])
@pytest.mark.parametrize("low", [0.7, 13.0, 2.3e-5])
def test_axes_of_any_length_have_round_ticks(low, spread):
    from mmcc._ticks import MOST_TICKS, ticks_between

    ticks = ticks_between(low, low * spread)
    assert 3 <= len(ticks) <= MOST_TICKS + 2
    assert all(low * (1 - 1e-6) <= t <= low * spread * (1 + 1e-6) for t in ticks)
    assert all(len(f"{t:.3g}") <= len(f"{t:.12g}") + 1 for t in ticks)


def test_an_example_that_comes_often_is_compared_with_as_many_epochs(drawn):
    (axes,) = drawn.axes
    (line,) = (line for line in axes.lines if line.get_label() == plots.ORDERED)
    sigmas, epsilons = line.get_data()
    ordered = sampling.CyclicPoisson(1, 4)  # rate 1/4: two epochs of four steps
    for sigma, epsilon in zip(sigmas, epsilons, strict=True):
        found = mmcc.epsilon(strategies.identity(8), ordered, sigma=float(sigma), delta=DELTA)
        assert epsilon == found.epsilon


def test_a_guarantee_from_elsewhere_cannot_be_drawn(bracket):
    alone = replace(bracket, guarantee=replace(bracket.guarantee, curve=None))
    with pytest.raises(mmcc.MmccError, match="without its mechanism"):
        alone.plot()


# ------------------------------------------------------------------------- errors against epsilon


def test_one_epsilon_has_labelled_bars_by_error():
    (axes,) = comparison(2.0).plot().axes
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(widths)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[0] == "bands, poisson"
    assert labels[2] == "DP-SGD, poisson"
    assert labels[-1] == f"tree, fixed-order ({UNAMPLIFIED})"
    assert len(labels) == len(widths) == 5


def test_numbers_beside_bars_have_as_many_digits_and_savings_are_rounded_down():
    """24.90, not 24.9; a saving of 14.99 % is not 15.0 %, here as in the table."""
    found = comparison(2.0)
    rows = (row("bands", "poisson", 2.0, 8.501), row("tree", "poisson", 2.0, 24.9))
    (axes,) = replace(found, rows=rows).plot().axes
    shown = [text.get_text() for text in axes.texts]
    assert shown == ["8.501 (\N{MINUS SIGN}14.9 %)", "10.00", "24.90 (+149.0 %)"]


def test_against_several_epsilons_lines_are_multiples_of_the_baseline():
    """Absolute errors all fall alike: nobody could see who wins."""
    (axes,) = comparison(1.0, 2.0, 8.0).plot().axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert list(lines[BASELINE]) == [1.0, 1.0, 1.0]
    assert np.allclose(lines["tree, poisson"], 31 / 20)


def test_a_legend_names_each_strategy_and_each_scheme_once():
    (axes,) = comparison(1.0, 2.0).plot().axes
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown == ["DP-SGD, poisson", "tree", "bands", "poisson", "fixed-order", UNAMPLIFIED]


def test_a_strategy_has_a_colour_and_a_scheme_a_marker():
    (axes,) = comparison(1.0, 2.0, 8.0).plot().axes
    looks = {
        line.get_label().split(" (")[0]: (line.get_color(), line.get_marker())
        for line in axes.lines
    }
    tree, bands = looks["tree, poisson"], looks["bands, poisson"]
    other_tree, other_bands = looks["tree, fixed-order"], looks["bands, fixed-order"]
    assert tree[0] == other_tree[0] != bands[0] == other_bands[0]
    assert tree[1] == bands[1] != other_tree[1] == other_bands[1]
    assert axes.get_xticks().tolist() == [1.0, 2.0, 8.0]


def test_the_baseline_is_drawn_once():
    found = comparison(1.0)
    again = replace(found.baseline[0], strategy="identity", verdict=LOSES)
    (axes,) = replace(found, rows=(*found.rows, again)).plot().axes
    assert len(axes.patches) == 5


def test_colours_can_be_told_apart_in_grey():
    from matplotlib.colors import to_rgb

    from mmcc._picture import COLOURS

    grey = [float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) for colour in COLOURS]
    assert all(abs(a - b) > 0.12 for a, b in pairwise(grey))


# ------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(
    ("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_the_ending_says_the_kind_of_file(tmp_path, ending, start):
    files = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for file in files:
        comparison(2.0).plot(file)
    assert files[0].read_bytes().startswith(start)


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"\.png, \.svg, \.pdf"):
        comparison(2.0).plot(tmp_path / "errors.gif")


# -------------------------------------------------------------------------------------- notebooks


def test_notebooks_show_tables_and_pictures(bracket):
    found = bracket.guarantee._repr_html_()
    for text in (">epsilon<", "truth", "clip norms; noise multiplier", "identity(8)", "zero-out"):
        assert text in found
    both = bracket._repr_html_()
    for text in ("lower", "no method can prove less", "upper", bracket.method, "truth"):
        assert text in both
    table = comparison(1.0, 2.0)._repr_html_()
    assert table.count("<table>") == 2
    assert "DP-SGD" in table
    assert comparison(1.0).plot()._repr_png_().startswith(b"\x89PNG")


def test_what_is_shown_is_text_and_nothing_else():
    odd = row("<script>alert(1)</script>", "poisson", 1.0, 3.0)
    found = replace(comparison(1.0), rows=(odd,))
    assert "<script>" not in found._repr_html_()


def test_matplotlib_is_imported_by_nobody_who_draws_nothing():
    import subprocess

    code = "import sys, mmcc, mmcc.plots, mmcc.design; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
