r"""What GitHub's Markdown has and Python-Markdown has not: formulas, `\|` in code in tables.

In: pages as GitHub shows them.  Out: the same on the site; formulas become MathML, which browsers
draw without a script.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

CODE = re.compile(r"`[^`]+`")
FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">(?:\\\(|\\\[)(?P<tex>.*?)(?:\\\)|\\\])</(?P=tag)>',
    flags=re.DOTALL,
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """In a table, GitHub wants the bars inside code escaped; here they are literal."""
    lines = markdown.split("\n")
    return "\n".join(CODE.sub(_bars, line) if line.startswith("|") else line for line in lines)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas between dollars, found by pymdownx.arithmatex, as MathML."""
    return FORMULA.sub(_mathml, content)


def _bars(code: re.Match[str]) -> str:
    return code[0].replace(r"\|", "|")


def _mathml(formula: re.Match[str]) -> str:
    display = "block" if formula["tag"] == "div" else "inline"
    return convert(html.unescape(formula["tex"]).strip(), display=display)
