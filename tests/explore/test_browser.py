"""Claim: in a real browser the page shows certified numbers, survives bad input, and can be used.

Needs playwright and Chromium; skipped, with the reason, where one is missing.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import threading
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction

import pytest

import mmcc
from mmcc import sampling, strategies, utility
from mmcc._ticks import MOST_TICKS

pytest.importorskip("dash", reason="dash is not installed: no explorer to open in a browser")
pytest.importorskip("playwright", reason="playwright is not installed: the page is NOT tested")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
if not CHROMIUM:
    pytest.skip("no Chromium on the path: the page is NOT tested", allow_module_level=True)

from playwright.sync_api import expect, sync_playwright  # noqa: E402

from mmcc.explore import _server as server  # noqa: E402

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT = 120_000
"""Milliseconds: the page is quick, the machine may be busy."""
expect.set_options(timeout=WAIT)
SHOWN = ("epsilon", "bracket", "rmse", "largest", "command", "snippet")
SILENCE = "No answer from the server; is `mmcc explore` still running?"
WATCH = """() => {
    window.seen = new Set();
    const text = id => {
        const at = document.getElementById(id);
        return getComputedStyle(at).visibility === "visible" ? at.textContent : "";
    };
    const look = () => {
        const [epsilon, command, snippet] = ["epsilon", "command", "snippet"].map(text);
        const [sigma, prob] = ["sigma", "prob"].map(id => document.getElementById(id).value);
        window.seen.add(JSON.stringify({epsilon, command, snippet, sigma, prob}));
    };
    const frame = () => { look(); requestAnimationFrame(frame); };
    new MutationObserver(look).observe(document.querySelector(".page"), {
        attributes: true, characterData: true, childList: true, subtree: true,
    });
    document.addEventListener("input", look);
    frame();
}"""
"""Note what can be read together, after every change of the page and before every frame."""
UNTIL = """([wanted, seconds]) => new Promise(done => {
    const end = performance.now() + 1000 * seconds;
    const holds = ([id, text]) => {
        const here = document.getElementById(id)?.textContent;  // none while the page is loaded
        return text ? here?.includes(text) : here === "";
    };
    const look = () => {
        const all = Object.entries(wanted).every(holds);
        all || performance.now() > end ? done() : setTimeout(look, 5);
    };
    look();
})"""
"""Wait for texts, or for none: `expect` would look again after half a second only."""
LATE = """() => {
    const [plain, delays] = [window.fetch, [300, 0, 100]];
    let asked = 0;
    window.fetch = (...question) => new Promise(
        go => setTimeout(go, delays[asked++ % delays.length])
    ).then(() => plain(...question));
}"""
"""Answers come late, some later than others."""
LOUD = """node => {
    const parse = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const below = node => {
        for (let at = node; at; at = at.parentElement) {
            const color = parse(getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const at of node.querySelectorAll("*")) {
        const own = [...at.childNodes].some(c => c.nodeType === 3 && c.textContent.trim());
        const style = getComputedStyle(at);
        const svg = at instanceof SVGElement;
        if (!own || at.closest("noscript, script, style") || !at.getClientRects().length) continue;
        if (style.visibility === "hidden") continue;
        const [a, b] = [light(parse(svg ? style.fill : style.color)), light(below(at))];
        found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), at.textContent.trim()]);
    }
    return found;
}"""
"""Contrast of every text with what is behind it, by the formula of WCAG."""


@pytest.fixture(scope="module")
def address():
    listening, desk = server.make_listening(0)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listening.port}/"
    listening.shutdown()
    thread.join()
    desk.close()
    listening.server_close()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=WAIT)
        yield started
        started.close()


@pytest.fixture(scope="module")
def heard():
    """Complaints of pages, and requests to anybody else."""
    return []


@pytest.fixture(scope="module")
def open_page(browser, address, heard):
    """Loading takes longest: tests share a page, and open more where they need them."""
    contexts = []

    def note_console(message):
        if message.type in ("error", "warning"):
            heard.append(message.text)

    def note_request(request):
        if not request.url.startswith((address, "data:", "blob:")):
            heard.append(request.url)

    def make():
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(WAIT)
        contexts.append(context)
        page = context.new_page()
        page.on("console", note_console)
        page.on("pageerror", lambda problem: heard.append(str(problem)))
        page.on("request", note_request)
        page.goto(address)
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def shared_page(open_page):
    return open_page()


@pytest.fixture
def page(shared_page, heard):
    """A page that shows a small mechanism; it must not complain or talk to anybody else."""
    yield begin(shared_page)
    said = [*heard]
    heard.clear()
    assert said == []


def begin(page):
    """Independent noise in eight steps."""
    page.locator("#strategy input[value=identity]").check()
    page.locator("#scheme input[value=poisson]").check()
    page.locator("#mode input[value=noise]").check()
    fill(page, steps="8", prob="1/8", sigma="3", delta="1e-6")
    settled(page, strategies.identity(8), sampling.Poisson(1 / 8), 3.0)
    return page


def fill(page, **fields: str) -> None:
    for name, text in fields.items():
        page.locator(f"#{name}").fill(text)


def soon(page, **texts: str) -> None:
    """Wait until these are there, if they come; it is `expect` that says what is not."""
    page.evaluate(UNTIL, [texts, 60])


def settled(page, strategy, scheme, sigma: float, delta: float = 1e-6) -> None:
    """The page comes to show what the library certifies, on the safe side."""
    found = mmcc.bracket(strategy, scheme, sigma=sigma, delta=delta)
    lower, upper = printed(found.lower, ROUND_FLOOR), printed(found.upper, ROUND_CEILING)
    soon(page, command=f"--steps {strategy.steps}", epsilon=upper, bracket=f"[{lower}, {upper}]")
    expect(page.locator("#command")).to_contain_text(f"--steps {strategy.steps}")
    expect(page.locator("#epsilon")).to_have_text(upper)
    expect(page.locator("#bracket")).to_have_text(f"[{lower}, {upper}]")
    rmse = f"{utility.rmse(strategy, sigma):.5g}"
    expect(page.locator("#rmse")).to_have_text(rmse)
    for name in SHOWN:
        expect(page.locator(f"#{name}")).to_be_visible()


def printed(value: float, rounding: str) -> str:
    """Rounded the safe way, by decimal arithmetic."""
    exact = Decimal(value)
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), rounding)):.4g}"


def test_every_control_moves_the_numbers_to_certified_ones(page):
    poisson = sampling.Poisson(1 / 8)
    choose = {
        name: page.locator(f"input[value='{name}']").check
        for name in ("tree-restart", "banded-toeplitz", "blt", "continual-counting", "binary-tree")
    }
    fill(page, sigma="4")
    settled(page, strategies.identity(8), poisson, 4.0)
    fill(page, delta="1e-5")
    settled(page, strategies.identity(8), poisson, 4.0, 1e-5)
    fill(page, prob="0.25")
    settled(page, strategies.identity(8), sampling.Poisson(0.25), 4.0, 1e-5)
    fill(page, steps="12")
    settled(page, strategies.identity(12), sampling.Poisson(0.25), 4.0, 1e-5)
    page.locator("input[value=cyclic-poisson]").check()
    fill(page, separation="3")
    settled(page, strategies.identity(12), sampling.CyclicPoisson(0.25, 3), 4.0, 1e-5)
    page.locator("input[value=balls-in-bins]").check()
    fill(page, bins="2", steps="4")
    expect(page.locator("#prob")).to_be_hidden()
    bins = sampling.BallsInBins(2)
    choose["continual-counting"]()
    settled(page, strategies.continual_counting(4), bins, 4.0, 1e-5)
    choose["blt"]()
    fill(page, buffers="1")
    settled(page, strategies.blt(4, 1), bins, 4.0, 1e-5)
    choose["banded-toeplitz"]()
    fill(page, bands="2")
    settled(page, strategies.banded_toeplitz(4, 2), bins, 4.0, 1e-5)
    choose["tree-restart"]()
    fill(page, height="1")
    settled(page, strategies.tree_restart(4, 1), bins, 4.0, 1e-5)
    choose["binary-tree"]()
    page.locator("input[value=shuffle]").check()
    settled(page, strategies.binary_tree(4), sampling.Shuffle(), 4.0, 1e-5)
    flag = page.locator("#epsilon-flag")
    expect(flag).to_contain_text("Only in the 0-1 setting")
    expect(flag).to_be_visible()
    page.locator("input[value=min-separation]").check()
    expect(flag).to_contain_text("No amplification is proven")
    expect(page.get_by_role("alert")).to_be_empty()


def test_nothing_is_ever_shown_for_other_values_than_the_fields_hold(open_page, heard):
    """Watched all the time, with answers that come late: not only when the page has settled."""
    page = begin(open_page())
    page.evaluate(WATCH)
    page.evaluate(LATE)
    for sigma in ("4", "41", "4", "0.9"):
        fill(page, sigma=sigma)
        page.wait_for_timeout(150)
    fill(page, sigma="5", prob="0.25")
    settled(page, strategies.identity(8), sampling.Poisson(0.25), 5.0)
    page.locator("#sigma-slider").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#sigma")).not_to_have_value("5")
    moved = page.locator("#sigma").input_value()
    settled(page, strategies.identity(8), sampling.Poisson(0.25), float(moved))
    seen = [json.loads(entry) for entry in page.evaluate("() => [...window.seen]")]
    assert {entry["sigma"] for entry in seen} >= {"3", "4", "41", "0.9", "5", moved}
    assert any(not entry["epsilon"] for entry in seen)
    for entry in seen:
        sigma, prob = entry["sigma"], float(Fraction(entry["prob"]))
        if entry["command"]:
            words = shlex.split(entry["command"].replace("\\\n", " "))
            asked = dict(zip(words[2::2], words[3::2], strict=True))
            assert asked["--sigma"] == sigma, entry
            assert float(Fraction(asked["--prob"])) == prob, entry
        if entry["snippet"]:
            assert f"sigma, delta = {sigma}, 1e-06" in entry["snippet"], entry
            assert f"Poisson({entry['prob']})" in entry["snippet"], entry
        if re.search(r"\d", entry["epsilon"]):
            certified = mmcc.bracket(
                strategies.identity(8), sampling.Poisson(prob), sigma=float(sigma), delta=1e-6
            )
            exact = printed(certified.upper, ROUND_CEILING)
            looser = entry["epsilon"].removeprefix("≤ ")
            assert entry["epsilon"] == exact or float(looser) > certified.upper, entry
            assert entry["epsilon"] == exact or entry["epsilon"].startswith("≤ "), entry


@pytest.mark.parametrize("failure", ["gone", "fault", "silence"])
def test_without_an_answer_no_old_number_is_shown(open_page, heard, failure):
    page = begin(open_page())

    def fail(route):
        if failure == "gone":
            route.abort("connectionrefused")
        elif failure == "fault":
            route.fulfill(status=500, body="a fault")

    page.route("**/_dash-update-component*", fail)
    fill(page, sigma="2")
    for name in SHOWN:  # at once, before dash has heard of it
        assert not page.locator(f"#{name}").is_visible()
    if failure == "silence":
        expect(page.get_by_role("alert")).to_be_empty()
        page.evaluate("() => { const now = Date.now; Date.now = () => now() + 16000; }")
    soon(page, problem=SILENCE)
    expect(page.get_by_role("alert")).to_have_text(SILENCE)
    for name in SHOWN:
        expect(page.locator(f"#{name}")).to_be_hidden()
    for name in ("command", "snippet"):
        expect(page.locator(f"#{name}-copy")).to_be_disabled()
    page.unroute_all(behavior="ignoreErrors")
    fill(page, sigma="2.5")
    settled(page, strategies.identity(8), sampling.Poisson(1 / 8), 2.5)
    expect(page.get_by_role("alert")).to_be_empty()
    assert heard or failure == "silence"  # the browser itself complains of failed requests
    heard.clear()


def test_an_old_number_comes_back_with_its_values(page):
    fill(page, sigma="31")
    assert not page.locator("#epsilon").is_visible()
    fill(page, sigma="3")
    settled(page, strategies.identity(8), sampling.Poisson(1 / 8), 3.0)


def test_wrong_values_are_said_and_the_page_goes_on(page):
    alert = page.get_by_role("alert")
    for field, text, said in (
        ("steps", "abc", "Steps needs a whole number"),
        ("steps", "99999999", "This page answers up to 100000 steps"),
        ("steps", "", "Steps is empty"),
        ("sigma", "-3", "Sigma must lie in"),
        ("prob", "2", "Prob must lie in (0, 1]"),
        ("prob", "<img src=x onerror=alert(1)>", "not '<img src=x onerror=alert(1)>'"),
    ):
        kept = page.locator(f"#{field}").input_value()
        fill(page, **{field: text})
        soon(page, problem=said)
        expect(alert).to_contain_text(said)
        expect(page.locator(f"#{field}-field")).to_have_class(re.compile("wrong"))
        expect(page.locator("#epsilon")).to_have_text("\N{EM DASH}")
        fill(page, **{field: kept})
        soon(page, problem="")
        expect(alert).to_be_empty()
    assert page.locator("img").count() == 0
    settled(page, strategies.identity(8), sampling.Poisson(1 / 8), 3.0)


def test_a_plot_over_a_hundred_decades_has_few_ticks(page):
    """Hundreds of labels froze the tab; where there is room the ticks are round numbers."""
    ticks = page.locator("#epsilon-plot .ytick")
    expect(ticks.nth(1)).to_be_attached()
    assert 3 <= ticks.count() <= MOST_TICKS + 2
    assert all(len(text.strip("0.").replace(".", "")) <= 2 for text in ticks.all_text_contents())
    page.locator("input[value=binary-tree]").check()
    fill(page, sigma="2e-50")
    settled(page, strategies.binary_tree(8), sampling.Poisson(1 / 8), 2e-50)
    expect(page.locator("#status")).to_contain_text("All")
    expect(ticks.filter(has_text="e+")).not_to_have_count(0)
    assert ticks.count() <= 20


def test_two_tabs_do_not_disturb_each_other(page, open_page):
    first, second = page, begin(open_page())
    fill(first, sigma="5")
    fill(second, sigma="6", prob="0.5")
    settled(second, strategies.identity(8), sampling.Poisson(0.5), 6.0)
    settled(first, strategies.identity(8), sampling.Poisson(1 / 8), 5.0)
    expect(second.locator("#sigma")).to_have_value("6")
    expect(first.locator("#sigma")).to_have_value("5")


def test_sliders_move_their_fields_and_the_other_way_round(page):
    slider = page.locator("#sigma-slider")
    before = int(slider.input_value())
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#sigma")).not_to_have_value("3")
    moved = float(page.locator("#sigma").input_value())
    assert 3 < moved < 3.3
    settled(page, strategies.identity(8), sampling.Poisson(1 / 8), moved)
    fill(page, sigma="1000")
    expect(slider).to_have_value("200")
    fill(page, sigma="3")
    expect(slider).to_have_value(str(before))


def test_texts_can_be_copied(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for name in ("command", "snippet"):
        page.locator(f"#{name}-copy").click()
        expect(page.locator(f"#{name}-copy")).to_have_text("Copied")
        copied = page.evaluate("() => navigator.clipboard.readText()")
        assert copied == page.locator(f"#{name}").inner_text()


def test_a_narrow_screen_scrolls_one_way_only(page):
    page.set_viewport_size({"width": 400, "height": 800})
    plot = page.locator("#epsilon-plot .main-svg").first
    expect(plot).to_have_css("width", re.compile(r"^3\d\d"))
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 400
    for name in ("strategy", "sigma", "epsilon", "epsilon-plot", "command-copy", "snippet"):
        box = page.locator(f"#{name}").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 400, name
    page.set_viewport_size({"width": 1280, "height": 900})


def test_everything_has_a_name_and_can_be_reached_with_the_keyboard(page):
    assert page.title() == "mmcc explore"
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.get_by_role("heading", level=1).count() == 1
    for group in ("Question", "Strategy", "Sampling"):
        assert page.get_by_role("radiogroup", name=group).count() == 1
    for label in ("Steps n", "Probability p", "Noise σ", "δ"):  # noqa: RUF001
        assert page.get_by_label(label, exact=True).count() == 1
    for control in page.locator("input, button").all():
        assert control.evaluate("e => e.labels?.length || e.getAttribute('aria-label') ? 1 : 0")
    page.locator("#strategy input:checked").focus()
    page.keyboard.press("ArrowDown")
    settled(page, strategies.binary_tree(8), sampling.Poisson(1 / 8), 3.0)
    page.keyboard.press("ArrowUp")
    settled(page, strategies.identity(8), sampling.Poisson(1 / 8), 3.0)
    reached = []
    for _ in range(20):
        page.keyboard.press("Tab")
        here = page.evaluate(
            "() => { const at = document.activeElement;"
            " return [at.id || at.name || at.tagName, getComputedStyle(at).outlineStyle,"
            " parseFloat(getComputedStyle(at).outlineWidth)]; }"
        )
        if here[0] == "BODY":
            break
        reached.append(here[0])
        assert here[1] != "none", here
        assert here[2] >= 2, here
    wanted = ["scheme", "steps", "steps-slider", "prob", "prob-slider", "sigma", "sigma-slider"]
    wanted += ["delta", "command-copy", "PRE", "snippet-copy", "PRE"]
    assert [name for name in reached if name in wanted] == wanted


def test_texts_stand_out_from_what_is_behind_them(page):
    page.locator("#strategy-plot .main-svg").first.wait_for()
    fill(page, sigma="x")
    soon(page, problem="Sigma needs")
    expect(page.get_by_role("alert")).to_contain_text("Sigma needs")
    faint = [entry for entry in page.locator("body").evaluate(LOUD) if entry[0] < 4.5]
    assert faint == []
    fill(page, sigma="3")
    settled(page, strategies.identity(8), sampling.Poisson(1 / 8), 3.0)
    seen = page.locator("body").evaluate(LOUD)
    assert len(seen) > 40
    assert [entry for entry in seen if entry[0] < 4.5] == []


DIRECTION = """() => {
    const range = document.querySelector("#strategy-plot .js-plotly-plot").layout.yaxis.range;
    return range[0] - range[1];
}"""


def test_c_is_the_right_way_up_after_every_load(open_page):
    """Loaded again and again: the first row on top."""
    page = begin(open_page())
    for _ in range(4):
        page.reload()
        settled(page, strategies.identity(8), sampling.Poisson(1 / 8), 3.0)
        page.locator("#strategy-plot .hm image, #strategy-plot .heatmaplayer").first.wait_for()
        assert page.evaluate(DIRECTION) == 8
        ticks = page.locator("#strategy-plot .ytick text")
        expect(ticks.nth(1)).to_be_attached()
        drawn = ticks.evaluate_all(
            "all => all.map(one => [+one.textContent, one.getBoundingClientRect().y])"
        )
        assert [row for row, _ in sorted(drawn, key=lambda one: one[1])] == sorted(
            row for row, _ in drawn
        )


def test_an_address_brings_back_what_it_was_copied_from(page, open_page):
    """Strategy, scheme, fields and the question, in the part that is not sent to the server."""
    page.locator("input[value=binary-tree]").check()
    fill(page, sigma="4.5", prob="1/4")
    settled(page, strategies.binary_tree(8), sampling.Poisson(1 / 4), 4.5)
    assert "?" not in page.url
    other = open_page()
    other.goto("about:blank")
    other.goto(page.url)
    settled(other, strategies.binary_tree(8), sampling.Poisson(1 / 4), 4.5)
    assert other.url == page.url


def test_errors_are_compared_at_one_epsilon(page, open_page):
    page.locator("#mode input[value=errors]").check()
    fill(page, target="1.5")
    page.locator("input[value=binary-tree]").check()
    rows = page.locator("#comparison tbody tr")
    expect(rows).to_have_count(2)
    tree = mmcc.sigma(strategies.binary_tree(8), sampling.Poisson(1 / 8), epsilon=1.5, delta=1e-6)
    expect(rows.nth(1)).to_contain_text(printed(tree.sigma, ROUND_CEILING))
    page.locator("#keep").click()
    page.locator("input[value=tree-restart]").check()
    fill(page, height="1")
    expect(rows).to_have_count(3)
    expect(page.locator("#comparison")).not_to_contain_text("being computed")
    expect(page.locator("#comparison-plot .scatterlayer .trace")).to_have_count(3)
    for name in ("epsilon", "command", "sigma"):
        assert not page.locator(f"#{name}").is_visible()
    other = open_page()
    other.goto("about:blank")
    other.goto(page.url)
    expect(other.locator("#comparison tbody tr")).to_have_count(3)
    expect(other.locator("#comparison")).not_to_contain_text("being computed")
    assert other.locator("#comparison").inner_text() == page.locator("#comparison").inner_text()
    page.locator("#clear").click()
    expect(rows).to_have_count(2)


def test_on_a_telephone_the_answer_comes_first(page):
    page.set_viewport_size({"width": 390, "height": 844})
    plot = page.locator("#epsilon-plot .main-svg").first
    expect(plot).to_have_css("width", re.compile(r"^3\d\d"))
    top = "at => at.getBoundingClientRect().top"
    answer, controls, plot = (
        page.locator(name).first.evaluate(top) for name in ("#epsilon", "aside", "#epsilon-plot")
    )
    assert answer < 844
    assert answer < controls < plot
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1280, "height": 900})


def test_in_the_dark_texts_stand_out_too(page):
    page.emulate_media(color_scheme="dark")
    outside = [one for one in page.locator("body").evaluate(LOUD) if one[0] < 4.5]
    ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    drawn = page.locator("svg text").all_text_contents()
    page.emulate_media(color_scheme="light")
    assert sum(map(int, re.findall(r"\d+", ground)[:3])) < 120
    assert [one for one in outside if one[1] not in drawn] == []  # plots are turned over
