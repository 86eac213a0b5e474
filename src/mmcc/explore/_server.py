"""The page behind an address of this machine only.

In: a port.  Out: a WSGI application and the server that runs it, bound to 127.0.0.1.  A request
that names another host is refused: a foreign page could otherwise make its own name point here.
Nothing is loaded from elsewhere, and the browser is told to refuse it.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flask
from dash import ClientsideFunction, Dash, Input, Output, State
from dash.exceptions import PreventUpdate
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from mmcc.errors import ParameterError
from mmcc.explore import _page as page
from mmcc.explore import _views as views
from mmcc.explore._answers import answer
from mmcc.explore._comparison import compare
from mmcc.explore._desk import Desk
from mmcc.explore._settings import ERRORS, FIELDS, applicable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOST = "127.0.0.1"
HTTP_PORT = 80
"""The port that browsers leave out of the names of hosts and origins."""
CONTROLS = ("mode", "strategy", "scheme", *FIELDS, "target")
FIGURES = ("epsilon-plot", "error-plot", "strategy-plot", "comparison-plot")
UNSTAMPED = (*FIGURES, "problem")
"""Plots fade with the number they belong to; a problem stays until there is an answer."""
PRIVACY = (
    "problem",
    "epsilon",
    "epsilon-note",
    "epsilon-flag",
    "bracket",
    "bracket-note",
    "remark",
    "status",
    "epsilon-plot",
    "command",
    "snippet",
)
"""Parts that come in one answer: a command is for the epsilon that is shown."""
OTHERS = (
    "rmse",
    "rmse-note",
    "largest",
    "largest-note",
    "error-plot",
    "strategy-plot",
)
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""The renderer starts from a script inside the page, and plotly sets styles."""


class QuietHandler(WSGIRequestHandler):
    """A handler that does not log requests."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def make_app(port: int, desk: views.Answers) -> Dash:
    """The page with its callbacks, which keep no state: everything comes with the request."""
    app = Dash(
        "mmcc.explore",
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        title=page.TITLE,
        update_title="",
        index_string=page.INDEX,
        meta_tags=[
            {"name": "viewport", "content": "width=device-width, initial-scale=1"},
            {"name": "description", "content": page.DESCRIPTION},
        ],
        add_log_handler=False,
    )
    app.layout = page.layout()
    _guard(app.server, port)
    _expect_questions(app)
    _connect(app, desk)
    return app


def make_desk() -> views.Answers:
    """The desk that computes for all pages."""
    return Desk(answer)


def open_port(port: int) -> socket.socket:
    """A socket on this machine's own address; port 0 picks a free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((HOST, port))
        listener.listen(64)
    except OSError as problem:
        listener.close()
        raise ParameterError(
            f"port {port} of {HOST} cannot be used ({problem.strerror or problem}): choose another "
            "one with --port, or --port 0 for a free one."
        ) from None
    return listener


def make_listening(port: int) -> tuple[BaseWSGIServer, views.Answers]:
    """A server that is ready to `serve_forever`, and its desk."""
    with open_port(port) as listener:
        chosen: int = listener.getsockname()[1]
        desk = make_desk()
        app = make_app(chosen, desk)
        server = make_server(
            HOST,
            chosen,
            app.server,
            threaded=True,
            request_handler=QuietHandler,
            fd=listener.fileno(),  # werkzeug duplicates it
        )
    return server, desk


def _guard(server: flask.Flask, port: int) -> None:
    """Refuse other hosts and other origins; allow no other source."""
    names = (HOST, "localhost")
    hosts = {f"{name}:{port}" for name in names}
    if port == HTTP_PORT:
        hosts |= {*names}
    origins = {f"http://{host}" for host in hosts}

    def refuse_strangers() -> flask.Response | None:
        origin = flask.request.headers.get("Origin")
        if flask.request.host in hosts and (origin is None or origin in origins):
            return None
        return flask.Response(
            f"This page is at http://{HOST}:{port}/ only.\n", 403, mimetype="text/plain"
        )

    def add_headers(response: flask.Response) -> flask.Response:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    server.before_request(refuse_strangers)
    server.after_request(add_headers)


def _expect_questions(app: Dash) -> None:
    """Answer 400 to requests that the page never makes: dash would raise an error."""

    def refuse_others() -> flask.Response | None:
        if flask.request.method != "POST":
            return None
        body = flask.request.get_json(silent=True)
        output = body.get("output") if isinstance(body, dict) else None
        if isinstance(output, str) and output in app.callback_map:
            return None
        return flask.Response("The page never asks this.\n", 400, mimetype="text/plain")

    app.server.before_request(refuse_others)


def _connect(app: Dash, desk: views.Answers) -> None:
    controls = {name: Input(name, "value") for name in CONTROLS}

    def show_privacy(values: Mapping[str, object], **_: object) -> dict[str, Any]:
        view = views.privacy_view(values, desk)
        # A different value each time, so that another unfinished answer counts as a change.
        unfinished = view["unfinished"] and time.monotonic()
        fields = _classes(values, view.pop("wrong"))
        stamps = _stamps(values, PRIVACY)
        return view | {"fields": fields, "unfinished": unfinished, "stamps": stamps}

    def show_comparison(
        values: Mapping[str, object], aside: Sequence[Mapping[str, object]], **_: object
    ) -> dict[str, Any]:
        if values.get("mode") != ERRORS:
            raise PreventUpdate
        found = compare(values, aside, desk)
        table = page.comparison_table(found.rows, str(values.get("target")))
        return {
            "comparison": found.problem or table,
            "comparison-plot": found.figure,
            "unfinished": found.unfinished and time.monotonic(),
            "stamps": _stamps(values, ("comparison",)),
        }

    def show_others(values: Mapping[str, object]) -> dict[str, Any]:
        return views.other_view(values) | {"stamps": _stamps(values, OTHERS)}

    app.callback(
        output={
            **{name: _place(name) for name in PRIVACY},
            "stamps": _stamp_places(PRIVACY),
            "unfinished": Output("unfinished", "data"),
            "fields": {name: Output(f"{name}-field", "className") for name in FIELDS},
        },
        inputs={"values": controls, "again": Input("again", "data")},
    )(show_privacy)
    app.callback(
        output={**{name: _place(name) for name in OTHERS}, "stamps": _stamp_places(OTHERS)},
        inputs={"values": controls},
    )(show_others)
    app.callback(
        output={
            "comparison": _place("comparison"),
            "comparison-plot": _place("comparison-plot"),
            "unfinished": Output("uncompared", "data"),
            "stamps": _stamp_places(("comparison",)),
        },
        inputs={
            "values": controls,
            "aside": Input("aside", "data"),
            "again": Input("compared-again", "data"),
        },
    )(show_comparison)
    app.clientside_callback(
        ClientsideFunction("explore", "set_aside"),
        Output("aside", "data"),
        Input("keep", "n_clicks"),
        Input("clear", "n_clicks"),
        State("aside", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("explore", "remember"),
        Input("aside", "data"),
        Input("mode", "value"),
    )
    app.clientside_callback(
        ClientsideFunction("explore", "wait_compared"),
        Input("uncompared", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(ClientsideFunction("explore", "judge"), [*controls.values()])
    for name in page.MOVED:
        low, high = page.ENDS[name]
        app.clientside_callback(
            f"""(text, notch) => dash_clientside.explore.follow(
                text, notch, "{name}", {low}, {high}, {page.NOTCHES})""",
            [Output(name, "value"), Output(f"{name}-slider", "value")],
            [Input(name, "value"), Input(f"{name}-slider", "value")],
        )
    app.clientside_callback(
        ClientsideFunction("explore", "name_choices"),
        [Input("strategy", "value"), Input("scheme", "value")],
    )
    app.clientside_callback(
        ClientsideFunction("explore", "wait"),
        Input("unfinished", "data"),
        prevent_initial_call=True,
    )
    for name in ("command", "snippet"):
        app.clientside_callback(
            ClientsideFunction("explore", "copy"),
            Output(f"{name}-copy", "children"),
            Input(f"{name}-copy", "n_clicks"),
            State(name, "children"),
            prevent_initial_call=True,
        )


def _place(name: str) -> Output:
    return Output(name, "figure" if name in FIGURES else "children")


def _stamp_places(names: Sequence[str]) -> dict[str, Output]:
    """A text and its stamp are properties of one component, which the browser changes together."""
    return {name: Output(name, "data-stamp") for name in names if name not in UNSTAMPED}


def _stamps(values: Mapping[str, object], names: Sequence[str]) -> dict[str, str]:
    """The values of all controls for which the texts hold."""
    stamp = json.dumps({name: values.get(name) for name in CONTROLS})
    return {name: stamp for name in names if name not in UNSTAMPED}


def _classes(values: Mapping[str, object], wrong: str) -> dict[str, str]:
    """Hide fields that do not apply, and mark the wrong one."""
    shown = (
        FIELDS
        if wrong in ("strategy", "scheme")
        else applicable(values.get("strategy"), values.get("scheme"))
    )
    return {
        name: " ".join(["field", *["away"] * (name not in shown), *["wrong"] * (name == wrong)])
        for name in FIELDS
    }
