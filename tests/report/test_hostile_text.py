"""Claim: titles, names and files are shown as text, whatever they look like."""

from __future__ import annotations

import pytest
from cases.reports import HOSTILE, Page, small
from markdown_it import MarkdownIt  # comes with rich: a reader of CommonMark, and tables

from mmcc.report._escape import markdown_block, markdown_code, markdown_text, visible

ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "div"),
    *("h1", "h2", "h3", "p", "strong", "em", "a", "var", "sup", "span", "bdi", "code", "pre"),
    *("dl", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td", "ol", "li"),
    *("figure", "figcaption", "svg", "desc", "defs", "g", "path", "use", "image", "text", "tspan"),
    *("clippath", "rect", "lineargradient", "stop"),
}


@pytest.fixture(scope="module")
def report():
    everything = " ".join(HOSTILE)
    return small(title=everything, unit=everything, data=everything)


@pytest.fixture(scope="module")
def page(report):
    return Page(report.html())


def test_a_page_has_the_elements_of_the_template_alone(page):
    assert page.tags() <= ELEMENTS
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes), tag
        for name in ("src", "href", "xlink:href", "action", "data"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:image/png;base64,")), target


def test_ids_are_unique_and_references_lead_somewhere(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name in ("aria-labelledby", "href", "xlink:href"):
            value = attributes.get(name) or ""
            for target in value.split() if name.startswith("aria") else [value]:
                if name.startswith("aria") or target.startswith("#"):
                    assert target.lstrip("#") in ids


def test_every_hostile_text_can_be_read(page, report):
    for text in HOSTILE:
        assert visible(text) in page.text
    assert visible(" ".join(HOSTILE)) in page.by_id["plain"] + page.text
    assert "{{ 7 * 7 }}" in page.text


def test_nothing_invisible_is_left(report):
    for text in (report.html(), report.markdown()):
        assert all(c.isprintable() or c == "\n" for c in text)


# Nothing is drawn for these, though str.isprintable() holds for all of them: joiners, fillers of
# Hangul and Khmer, variation selectors, the empty Braille cell, the null notehead.
EMPTY = (
    *("\u034f", "\u115f", "\u1160", "\u17b4", "\u17b5", "\u180b", "\u180d", "\u180f", "\u2800"),
    *("\u3164", "\ufe00", "\ufe0f", "\uffa0", "\U00016fe4", "\U0001d159", "\U000e0100"),
    *("\U000e01ef", "\u200b", "\u2060", "\ufeff", "\u00ad", "\u202e", "\u00a0", "\u3000"),
)


@pytest.mark.parametrize("empty", EMPTY, ids=lambda character: f"{ord(character):04X}")
def test_what_shows_nothing_is_named_by_its_number(empty):
    name = f"[U+{ord(empty):04X}]"
    assert visible(f"a{empty}b{empty}") == f"a{name}b{name}"


def test_a_report_has_nothing_that_shows_nothing():
    text = small(title="a".join(EMPTY)).markdown()
    assert not set(EMPTY) & set(text)


def test_marks_are_left_where_they_have_something_to_stand_on():
    for text in ("e\u0301", "e\u0301\u0323", "\u0915\u093f", "x\u20dd", "é ü 日本 \U0001f600"):
        assert visible(text) == text
    assert visible("\u0301a \u0338b\n\u20dd") == "[U+0301]a [U+0338]b[U+000A][U+20DD]"


def test_the_policy_forbids_everything_but_the_page_itself(page):
    policies = [
        attributes["content"]
        for tag, attributes in page.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policies[0].split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == "'unsafe-inline'"
    assert rules["img-src"] == "data:"
    assert "script-src" not in rules


# ---------------------------------------------------------------- Markdown


def parsed(text: str) -> list:
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [token for outer in tokens for token in (outer, *(outer.children or []))]


def test_markdown_has_no_links_pictures_or_html(report):
    kinds = {token.type for token in parsed(report.markdown())}
    assert not kinds & {"link_open", "image", "html_inline", "html_block", "s_open"}
    assert kinds >= {"table_open", "fence", "ordered_list_open", "heading_open"}


def test_markdown_has_the_headings_and_tables_of_the_template(report):
    plain, hostile = parsed(small(data="d").markdown()), parsed(report.markdown())
    for kind in ("heading_open", "table_open", "tr_open", "td_open", "fence", "list_item_open"):
        assert sum(t.type == kind for t in plain) == sum(t.type == kind for t in hostile), kind


@pytest.mark.parametrize("text", [*HOSTILE, "a", "", "|", "`", "1. x", "~~s~~", "\\"])
def test_markdown_says_the_text_and_nothing_else(text):
    tokens = parsed(f"x {markdown_text(text)} y")
    assert {token.type for token in tokens} <= {
        *("paragraph_open", "paragraph_close", "inline", "text", "text_special"),
    }
    said = "".join(t.content for t in tokens if t.type in ("text", "text_special"))
    assert said.split() == f"x {visible(text)} y".split()


@pytest.mark.parametrize("text", [*HOSTILE, "a", "`", "``", " ` ", "a`b``c", "|"])
def test_code_says_the_text_and_nothing_else(text):
    (cell,) = [
        token
        for token in parsed(f"| a |\n|---|\n| {markdown_code(text)} |\n")
        if token.type == "code_inline"
    ]
    assert cell.content.strip() == visible(text).strip()
    (block,) = [t for t in parsed(markdown_block(text, "sh")) if t.type == "fence"]
    assert block.content == "\n".join(visible(line) for line in text.split("\n")) + "\n"


def test_bare_addresses_are_not_made_links_by_readers_that_look_for_them():
    for address in ("https://example.org", "http://example.org", "www.example.org", "me@x.org"):
        assert address not in markdown_text(f"see {address} here")
