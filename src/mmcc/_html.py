"""Tables for notebooks: rows of text as HTML, with the text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(
    rows: Iterable[Sequence[str]], header: Sequence[str] = (), strong: str | None = None
) -> str:
    """The rows as a table; the row whose first cell is `strong` is bold."""
    lines = ["<table>"]
    if header:
        lines.append(_row(header, "th"))
    lines += [_row(row, "td", bold=row[0] == strong) for row in rows]
    return "\n".join([*lines, "</table>"])


def paragraph(text: str) -> str:
    """A line of text above or below a table."""
    return f"<p>{escape(text.strip())}</p>"


def _row(cells: Sequence[str], tag: str, bold: bool = False) -> str:
    texts = (escape(cell) for cell in cells)
    shown = (f"<b>{text}</b>" if bold else text for text in texts)
    style = ' style="text-align: left"'
    return "<tr>" + "".join(f"<{tag}{style}>{text}</{tag}>" for text in shown) + "</tr>"
