"""Small reports for tests, and readers that know nothing of how pages are made."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from mmcc import report, strategies
from mmcc.report import Report
from mmcc.sampling import Poisson, Scheme
from mmcc.strategies import Strategy

HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=1">',
    "[click](javascript:alert(1)) ![x](http://example.org/x.png)",
    "`` `code` ``` | a | b | # *bold* _it_ <b>",
    "line\nbreak\r\n# heading\n\n---\n<div>",
    "\u202egnp.exe \u2066 \x00\x07 \u200b \u2028 \u034f\u3164\u2800 \u0301 {{ 7 * 7 }} {% raw %}",
    "https://example.org www.example.org me@example.org &lt;i&gt; $x$ \\",
)


def small(strategy: Strategy | None = None, scheme: Scheme | None = None, **options: Any) -> Report:
    """Independent noise in eight steps; no dots but the one asked for."""
    given = {"sigma": 10.0, "delta": 1e-6, "seconds": 0.0, **options}
    return report.of_mechanism(
        strategy or strategies.identity(8), scheme or Poisson(1 / 8), **given
    )


class Page(HTMLParser):
    """The elements of a page, the text of those with an id, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.by_id: dict[str, str] = {}
        self.text = ""
        self._open: list[tuple[str, str | None]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.elements.append((tag, named))
        if tag not in ("meta", "link", "br", "img"):
            self._open.append((tag, named.get("id")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if any(tag == "style" for tag, _ in self._open):
            return
        self.text += data
        for _, name in self._open:
            if name is not None:
                self.by_id[name] = self.by_id.get(name, "") + data

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}


def fenced(markdown: str, language: str) -> str:
    """The one block of a language."""
    (found,) = re.findall(rf"^(`{{3,}}){language}\n(.*?)\n\1$", markdown, re.MULTILINE | re.DOTALL)
    return found[1]
