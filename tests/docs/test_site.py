"""Claim: the site builds without a warning, its links lead somewhere, and it needs no network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
MODULES = (
    "mmcc",
    "mmcc.accounting",
    "mmcc.audit",
    "mmcc.bridge",
    "mmcc.bridge.jax_privacy",
    "mmcc.design",
    "mmcc.ledger",
    "mmcc.mixtures",
    "mmcc.pld",
    "mmcc.report",
    "mmcc.sampling",
    "mmcc.strategies",
    "mmcc.training",
    "mmcc.utility",
)


@dataclass
class Page(HTMLParser):
    """What a page points at, what it loads, and where it can be pointed at."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        self.classes |= set(found.get("class", "").split())
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if LOADED.get(tag) in found:
            self.loads.append(found[LOADED[tag]])


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    found = {}
    for path in sorted(site.rglob("*.html")):
        page = found[path.resolve()] = Page()
        page.feed(path.read_text(encoding="utf-8"))
    return found


def test_every_page_of_docs_is_on_the_site(pages):
    names = {path.stem for path in pages}
    written = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert written | {"changes", "contributing", "security"} <= names


def test_every_link_leads_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for target in page.links + page.loads:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            start = site.resolve() if parts.path.startswith("/") else path.parent
            file = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if file.is_dir():
                file = file / "index.html"
            anchors = pages[file].ids if file in pages else set()
            if not file.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append((path.name, target))
    assert broken == []


def test_no_page_loads_anything_from_elsewhere(site, pages):
    for page in pages.values():
        assert [target for target in page.loads if urlsplit(target).netloc] == []
        assert "mermaid" not in page.classes  # the theme would fetch its script
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert "url(http" not in text
        assert "@import" not in text


def public_names(module: ModuleType) -> Iterator[str]:
    """What the module exports; other modules have sections of their own."""
    defined = (
        name
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", "") == module.__name__
    )
    for name in getattr(module, "__all__", tuple(defined)):
        if f"{module.__name__}.{name}" not in MODULES:
            yield name


def test_every_public_name_is_on_the_api_page(site, pages):
    """Under the module that exports it, or as the same object under another one."""
    described = pages[(site / "api.html").resolve()].ids
    shown, elsewhere = [], []
    for module in map(import_module, MODULES):
        for name in public_names(module):
            path, value = f"{module.__name__}.{name}", getattr(module, name)
            # A function that has the name of its module stands under both.
            if {path, f"{path}.{name}"} & described:
                shown.append(value)
            else:
                elsewhere.append((path, value))
    for path, value in elsewhere:
        assert any(value is other for other in shown), path
