"""How fast the explorer is: the tables of docs/explore.md.

    python benchmarks/explore.py brackets     # processor seconds of a bracket at 1000 steps
    python benchmarks/explore.py redraw       # clock: from a move of a slider to the drawn plot

`redraw` moves sliders in Chromium and checks the page before every frame.  Neither has a time
limit, as the machine may be busy.
"""

from __future__ import annotations

import math
import shutil
import sys
import threading
import time
from collections.abc import Iterator

from playwright.sync_api import Page, sync_playwright

from mmcc.errors import MmccError
from mmcc.explore import _answers as answers
from mmcc.explore import _server as server
from mmcc.explore._page import ENDS, NOTCHES
from mmcc.explore._settings import DEFAULTS, read

STEPS = "1000"
STRATEGIES = (
    {"strategy": "identity"},
    {"strategy": "binary-tree"},
    {"strategy": "tree-restart", "height": "5"},
    {"strategy": "continual-counting"},
    {"strategy": "banded-toeplitz", "bands": "8"},
    {"strategy": "banded-toeplitz", "bands": "64"},
    {"strategy": "blt", "buffers": "1"},
    {"strategy": "blt", "buffers": "3"},
)
SCHEMES = (
    {"scheme": "poisson", "prob": "1/1000"},
    {"scheme": "poisson", "prob": "0.01"},
    {"scheme": "cyclic-poisson", "prob": "0.08", "separation": "8"},
    {"scheme": "balls-in-bins", "bins": "100"},
    {"scheme": "balls-in-bins", "bins": "1000"},
)


def name(choice: dict[str, str]) -> str:
    return " ".join(choice.values())


def controls(strategy: dict[str, str], scheme: dict[str, str], columns: float) -> dict[str, str]:
    """The values on the page, with noise of so many column norms."""
    values = {**DEFAULTS, "steps": STEPS, **strategy, **scheme}
    norm = read(values).build_strategy().sensitivity(int(STEPS))
    return values | {"sigma": f"{columns * norm:.4g}"}


def warm() -> None:
    """Load or compile the kernels, which happens on first use."""
    for strategy in STRATEGIES:
        for scheme in SCHEMES:
            values = controls(strategy, scheme, 4) | {"steps": "16", "bins": "4", "bands": "4"}
            answers.certified_bracket(read(values | {"height": "3"}))


def bracket_seconds(values: dict[str, str]) -> str:
    start = time.process_time()
    try:
        answers.certified_bracket(read(values))
    except MmccError as refusal:
        return str(refusal)
    return f"{time.process_time() - start:.2f}"


def bracket_lines() -> Iterator[str]:
    yield f"| | {' | '.join(name(scheme) for scheme in SCHEMES)} |"
    yield "|---" * (len(SCHEMES) + 1) + "|"
    for strategy in STRATEGIES:
        cells = [
            ", ".join(bracket_seconds(controls(strategy, scheme, columns)) for columns in (2, 8))
            for scheme in SCHEMES
        ]
        yield f"| {name(strategy)} | {' | '.join(cells)} |"


MOVE = """([name, notch]) => new Promise(done => {
    const [slider, plot, epsilon, status] = [
        name + "-slider", "epsilon-plot", "epsilon", "status",
    ].map(id => document.getElementById(id));
    const drawn = plot.querySelector(".js-plotly-plot");
    const [found, before, since] = [{}, epsilon.dataset.stamp, performance.now()];
    const note = place => { found[place] = found[place] || (performance.now() - since) / 1000; };
    let redrawn = false;
    drawn.on("plotly_afterplot", () => { redrawn = true; });
    const frame = () => {
        const current = epsilon.dataset.stamp !== before && !epsilon.classList.contains("stale");
        if (redrawn && current) {
            note("plot");
            if (!/[≤…—]/.test(epsilon.textContent)) note("tight");
            if (status.textContent.startsWith("All")) { note("all"); done(found); return; }
        }
        requestAnimationFrame(frame);
    };
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(slider, notch);
    slider.dispatchEvent(new Event("input", {bubbles: true}));
    requestAnimationFrame(frame);
})"""
"""Seconds from the move of a slider to the first plot, the tight number and the whole curve."""

SETTLED = """() => {
    const [epsilon, status] = ["epsilon", "status"].map(id => document.getElementById(id));
    const sigma = JSON.parse(epsilon.dataset.stamp || "{}").sigma;
    return sigma === "900" && status.textContent.startsWith("All");
}"""


def redraw_lines() -> Iterator[str]:
    """Every mechanism, none of whose numbers is known yet."""
    yield "| | first plot | tight number | whole curve |"
    yield "|---|---|---|---|"
    listening, desk = server.make_listening(0)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"]
            )
            page = chromium.new_page()
            page.set_default_timeout(0)
            page.goto(f"http://127.0.0.1:{listening.port}/")
            for strategy in STRATEGIES:
                for scheme in SCHEMES:
                    cells = [*moved(page, strategy, scheme)]
                    yield f"| {name(strategy)}, {name(scheme)} | {' | '.join(cells)} |"
            chromium.close()
    finally:
        listening.shutdown()
        thread.join()
        desk.close()
        listening.server_close()


def moved(page: Page, strategy: dict[str, str], scheme: dict[str, str]) -> Iterator[str]:
    """Choose the mechanism with other noise, then move sigma to eight column norms."""
    values = controls(strategy, scheme, 8)
    for group in ("strategy", "scheme"):
        page.locator(f"#{group} input[value={values[group]}]").check()
    for field in (*strategy, *scheme, "steps"):
        if field not in ("strategy", "scheme"):
            page.locator(f"#{field}").fill(values[field])
    low, high = ENDS["sigma"]
    notch = round(NOTCHES * math.log(float(values["sigma"]) / low) / math.log(high / low))
    page.locator("#sigma").fill("900")
    page.wait_for_function(SETTLED)
    for cell in page.evaluate(MOVE, ["sigma", str(notch)]).values():
        yield f"{cell:.2f}"


TABLES = {"brackets": bracket_lines, "redraw": redraw_lines}


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted not in TABLES:
        raise SystemExit(f"choose a table: {', '.join(TABLES)}")
    warm()
    for line in TABLES[wanted]():
        print(line, flush=True)


if __name__ == "__main__":
    main()
