"""Claim: a report opens from disk in a real browser: nothing runs, nothing is asked for."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from cases.reports import HOSTILE, small

import mmcc
from mmcc import report, sampling, strategies
from mmcc.ledger import Ledger

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
WAIT = 900_000
"""Milliseconds: the machine may be busy."""
CONTRAST = """
() => {
  const channel = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 };
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const parse = s => (s.match(/[0-9.]+/g) || []).map(Number);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || ['TITLE', 'DESC'].includes(e.tagName.toUpperCase())) continue;
    const style = getComputedStyle(e), svg = e.closest('svg');
    const ink = parse(svg ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), e.tagName, e.textContent.slice(0, 30)]);
  }
  return found;
}
"""


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("playwright is not installed: reports were NOT opened in a browser")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: reports were NOT opened in a browser")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"], timeout=WAIT
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    everything = " ".join(HOSTILE)
    file = tmp_path_factory.mktemp("reports") / "hostile.html"
    tree, words = strategies.binary_tree(8), dict.fromkeys(("title", "unit", "data"), everything)
    small(tree, method="unamplified", seconds=1e6, **words).save(file)
    return file


@pytest.fixture(params=[1200, 400])
def opened(request, browser, hostile):
    """The page, and everything that it said or asked for."""
    page = browser.new_page(viewport={"width": request.param, "height": 900})
    page.set_default_timeout(WAIT)
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda problem: heard.append(str(problem)))
    page.on("dialog", lambda dialog: heard.append(dialog.message))
    page.on("request", lambda asked: heard.append(asked.url))
    page.goto(hostile.as_uri())
    yield page, heard, request.param
    page.close()


def test_it_prints_on_pages_that_hold_all_of_it(browser, hostile):
    """As a PDF: nothing runs over the edge, no line is cut, and it is a few pages."""
    page = browser.new_page(viewport={"width": 673, "height": 980})  # A4 within its margins
    page.set_default_timeout(WAIT)
    page.goto(hostile.as_uri())
    page.emulate_media(media="print")
    wide = page.evaluate(
        "[...document.querySelectorAll('body, pre, table, svg, dl, p, h1')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth"
        " || (e.tagName !== 'svg' && e.scrollWidth > e.clientWidth + 1))"
        ".map(e => [e.tagName, e.textContent.slice(0, 40)])"
    )
    assert wide == []
    printed = page.pdf(format="A4")
    pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", printed))
    assert 4 <= pages <= 12
    page.close()


def test_a_hostile_report_opens_quietly(opened, hostile):
    page, heard, width = opened
    assert heard == [hostile.as_uri()]  # itself, and nothing else: no error, no request, no dialog
    assert "owned" in page.title()  # as text: the whole of it
    assert page.title().startswith("<script>document.title='owned'</script>")
    assert page.locator("script, iframe, object, embed, form, body img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shapes = page.evaluate(
        "[...document.querySelectorAll('figure svg')].map(s => [s.getAttribute('role'),"
        " s.querySelector('title').textContent, s.getBoundingClientRect().width])"
    )
    assert len(shapes) == 2
    for role, title, drawn in shapes:
        assert role == "img"
        assert title
        assert drawn > 250
    assert page.evaluate("document.querySelector('svg image').getBoundingClientRect().width") > 50
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("h1").count() == 1
    assert page.locator("table th:not([scope])").count() == 0
    contrasts = page.evaluate(CONTRAST)
    assert len(contrasts) > 100
    assert min(contrasts)[0] >= 4.5, min(contrasts)


@pytest.fixture
def runs(tmp_path) -> Path:
    """A report on a ledger with one run."""
    found = mmcc.epsilon(strategies.identity(8), sampling.Poisson(1 / 8), sigma=4.0, delta=1e-6)
    ledger, file = Ledger(tmp_path / "runs.jsonl"), tmp_path / "runs.html"
    ledger.begin(data="digits", mechanism="x" * 40, guarantee=found, steps=8, fingerprint="one")
    report.of_ledger(tmp_path / "runs.jsonl").save(file)
    return file


def test_on_a_telephone_runs_are_seen_without_scrolling_sideways(browser, runs):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.set_default_timeout(WAIT)
    page.goto(runs.as_uri())
    assert page.locator(".scroll").evaluate("at => at.scrollWidth - at.clientWidth") <= 0
    told = "[...document.querySelectorAll('.runs tbody :is(th, td)')].map(at => at.dataset.column)"
    assert page.evaluate(told) == ["Run", "State", "Steps", "ε ≤", "δ", "Mechanism"]
    page.close()


@pytest.mark.parametrize("width", [390, 1366])
def test_an_option_is_not_broken_from_its_dashes(browser, hostile, width):
    """On one line each: `--` at the end of a line is no option."""
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.set_default_timeout(WAIT)
    page.goto(hostile.as_uri())
    heights = page.locator("#command .option").evaluate_all(
        "all => all.map(at => at.getClientRects().length)"
    )
    assert len(heights) >= 6
    assert set(heights) == {1}
    assert "--sigma 10.0" in page.locator("#command").inner_text()
    page.close()
