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
BARS = {r"\lvert": "\ue000", r"\rvert": "\ue001"}
"""Bars that know their side: set close to what they enclose."""
FORMS = {"\ue000": "prefix", "\ue001": "postfix"}
FUNCTION = re.compile(
    r"(<m[io]>(?:log|exp|cosh|sinh|cos|max|min)</m[io]>)(?=<m(?:i|n|sub|sup|subsup|over|sqrt)[ >])"
)
SIMILAR = "<mo>&#x0223C;</mo>"
"""Between two sides, with the space of a relation."""


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
    tex = html.unescape(formula["tex"]).strip()
    for bar, mark in BARS.items():
        tex = tex.replace(bar, mark)
    drawn = convert(tex, display=display)
    for mark, form in FORMS.items():
        found = re.compile(f"<m[io]>(?:{mark}|&#x0{ord(mark):X};)</m[io]>")
        close = f'<mo form="{form}" stretchy="false" lspace="0" rspace="0">|</mo>'
        drawn = found.sub(close, drawn)
    drawn = drawn.replace("<mi>&#x0007E;</mi>", SIMILAR)
    return FUNCTION.sub(r'\1<mspace width="0.167em" />', drawn)
