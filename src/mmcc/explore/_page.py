"""The page: its controls and its places for numbers and plots; nothing is computed here.

In: nothing.  Out: the layout, with native inputs that have labels.  Texts are children, which the
browser never interprets as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dash import dcc, html

from mmcc.explore._figures import empty_figure
from mmcc.explore._settings import DEFAULTS, FIELDS, LABELS, MODES, STRATEGIES
from mmcc.sampling._registry import SCHEMES

if TYPE_CHECKING:
    from mmcc.explore._comparison import Row

TITLE = "mmcc explore"
DESCRIPTION = "Certified privacy of correlated-noise mechanisms"
MOVED = ("steps", "prob", "sigma")
"""Fields that also have a slider, on a logarithmic scale."""
ENDS: dict[str, tuple[float, float]] = {"steps": (1, 1000), "prob": (1e-4, 1), "sigma": (0.1, 1000)}
NOTCHES = 200
TYPING = 0.35
"""Seconds after the last keystroke until a field is read."""
HINTS = {
    "target": "at which all mechanisms are held",
    "prob": "a decimal or a fraction, such as 1/256",
    "sigma": "standard deviation, in units of the clip norm",
    "separation": "steps from one turn of an example's group to the next",
    "bins": "steps of an epoch; must divide n",
}
UNASKED = {"data-stamp": ""}
"""Texts with a stamp: they are shown while the controls hold the values in the stamp."""
INDEX = """<!DOCTYPE html>
<html lang="en">
    <head>
        {%metas%}
        <title>{%title%}</title>
        {%favicon%}
        {%css%}
    </head>
    <body>
        <noscript>This page needs JavaScript, all of it from this machine.</noscript>
        {%app_entry%}
        {%config%}
        {%scripts%}
        {%renderer%}
    </body>
</html>"""


def layout() -> html.Div:
    """All parts, in reading order."""
    return html.Div(
        [
            html.Header(
                [
                    html.H1(TITLE),
                    html.P(f"{DESCRIPTION}. Every ε shown is proven."),
                ]
            ),
            html.Div([_controls(), _results()], className="columns"),
            dcc.Store(id="unfinished"),
            dcc.Store(id="again"),
            dcc.Store(id="uncompared"),
            dcc.Store(id="compared-again"),
            dcc.Store(id="aside", data=[]),
        ],
        className="page",
    )


def _controls() -> html.Aside:
    return html.Aside(
        [
            _choice("mode", "Question", MODES),
            html.H2("Mechanism"),
            _choice(
                "strategy", "Strategy", {name: entry.label for name, entry in STRATEGIES.items()}
            ),
            _choice("scheme", "Sampling", {name: one.label for name, one in SCHEMES.items()}),
            html.Div([_field(name) for name in (*FIELDS, "target")], className="fields"),
        ]
    )


def _choice(name: str, title: str, options: dict[str, str]) -> html.Fieldset:
    choices = [{"label": label, "value": value} for value, label in options.items()]
    return html.Fieldset(
        [
            html.Legend(title, id=f"{name}-title"),
            dcc.RadioItems(choices, DEFAULTS[name], id=name, className="choices"),
        ]
    )


def _field(name: str) -> html.Div:
    parts: list[Any] = [
        html.Label(LABELS[name], htmlFor=name),
        dcc.Input(
            id=name,
            value=DEFAULTS[name],
            type="text",
            inputMode="text",
            autoComplete="off",
            spellCheck="false",
            debounce=TYPING,
            className="typed",
        ),
    ]
    if name in MOVED:
        parts += [
            html.Label(f"{LABELS[name]}, slider", htmlFor=f"{name}-slider", className="unseen"),
            dcc.Input(
                id=f"{name}-slider",
                type="range",
                min=0,
                max=NOTCHES,
                step=1,
                value=0,
                className="slider",  # not debounced: dash would then look for a cursor in it
            ),
        ]
    if name in HINTS:
        parts.append(html.Small(HINTS[name]))
    return html.Div(parts, id=f"{name}-field", className="field")


def _results() -> html.Main:
    return html.Main(
        [
            html.H2("What is certified", className="unseen"),
            html.Div(id="problem", role="alert", className="problem"),
            html.Div(
                [
                    _number(
                        "epsilon",
                        "ε, certified",
                        html.Div(id="epsilon-flag", className="flag", **UNASKED),
                    ),
                    _number("bracket", "the true ε lies in"),
                    _number("rmse", "RMSE of prefix sums"),
                    _number("largest", "largest error"),
                ],
                className="numbers",
            ),
            _comparison(),
            html.P(id="remark", className="remark", **UNASKED),
            html.P(
                id="status",
                className="status",
                role="status",
                **{"aria-live": "polite"},
                **UNASKED,
            ),
            html.Div(
                [
                    _plot("epsilon-plot", "Privacy against noise", wide=True),
                    _plot("error-plot", "Error of each prefix sum"),
                    _plot("strategy-plot", "The strategy C, first steps"),
                ],
                className="plots",
            ),
            html.Div(
                [_text("command", "The same on the command line"), _text("snippet", "In Python")],
                className="texts",
            ),
        ]
    )


def _comparison() -> html.Section:
    """Shown in place of numbers and plots where epsilon is held."""
    return html.Section(
        [
            html.H3("At the same certified ε"),
            html.Div(id="comparison", className="rows", role="status", **UNASKED),
            dcc.Graph(
                id="comparison-plot",
                figure=empty_figure(),
                responsive=True,
                style={"height": "340px"},
                config={"displayModeBar": False, "displaylogo": False},
            ),
            html.Div(
                [
                    _button("keep", "Keep this one and change it"),
                    _button("clear", "Clear"),
                ],
                className="buttons",
            ),
        ],
        className="plot wide held",
        id="held",
    )


def _button(name: str, text: str) -> html.Button:
    return html.Button(text, id=name, type="button", **{"aria-label": text})


def comparison_table(rows: Sequence[Row], epsilon: str) -> Any:
    """The rows of the comparison."""
    titles = ("mechanism", "σ", "RMSE", "largest error", "RMSE against DP-SGD")  # noqa: RUF001
    body = [
        html.Tr(
            [
                html.Th(one.name, scope="row"),
                *map(html.Td, (one.sigma, one.rmse, one.largest)),
                html.Td([one.saving, html.Small(one.remark)] if one.remark else one.saving),
            ]
        )
        for one in rows
    ]
    head = html.Thead(html.Tr([html.Th(title, scope="col") for title in titles]))
    caption = f"Noise that certifies ε = {epsilon}, and errors of prefix sums in clip norms"
    return html.Table([html.Caption(caption), head, html.Tbody(body)])


def _number(name: str, title: str, *flags: html.Div) -> html.Div:
    return html.Div(
        [
            html.Div(title, className="title"),
            html.Div("…", id=name, className="value", **UNASKED),
            *flags,
            html.Div(id=f"{name}-note", className="note", **UNASKED),
        ],
        className=f"number {name}",
    )


def _plot(name: str, title: str, *, wide: bool = False) -> html.Section:
    graph = dcc.Graph(
        id=name,
        figure=empty_figure(),
        responsive=True,
        style={"height": "340px" if wide else "300px"},
        config={"displayModeBar": False, "displaylogo": False},
    )
    return html.Section([html.H3(title), graph], className="plot wide" if wide else "plot")


def _text(name: str, title: str) -> html.Section:
    return html.Section(
        [
            html.Div(
                [
                    html.H3(title),
                    html.Button(
                        "Copy", id=f"{name}-copy", type="button", **{"aria-label": f"Copy: {title}"}
                    ),
                ],
                className="over",
            ),
            html.Pre(html.Code(id=name, **UNASKED), tabIndex=0),
        ],
        className="text",
    )
