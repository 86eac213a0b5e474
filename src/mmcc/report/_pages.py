"""Reports as pages: self-contained HTML, and Markdown.

In: a `Report`.  Out: text.  HTML is escaped by jinja2 wherever it is not written here; Markdown by
`mmcc.report._escape`.  The page's policy forbids scripts and every request.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mmcc._outputs import check_place
from mmcc.errors import MmccError, ParameterError, suggestion
from mmcc.report._escape import markdown_block, markdown_code, markdown_text, visible
from mmcc.report._facts import Report

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

if TYPE_CHECKING:
    from jinja2 import Environment

FORMATS = ("html", "markdown")
ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}
NEEDED = {"html": ("jinja2", "matplotlib"), "markdown": ("jinja2",)}


def page_format(path: str | Path, format: str | None = None) -> str:
    """The format, one of `FORMATS`: as asked for, or by the file's extension.

    Refuses what could not be written, so the error comes before the long work starts.
    """
    if not str(path):
        raise ParameterError("the report has no file name; give one that ends in .html or .md.")
    if format is not None and format not in FORMATS:
        raise ParameterError(f"unknown format {format!r}; {suggestion(format, FORMATS)}")
    found = format or ENDINGS.get(Path(path).suffix.lower())
    if found is None:
        raise ParameterError(
            f"a report is a {', '.join(ENDINGS)} file, got {Path(path).name!r}: rename it, or give "
            "the format."
        )
    check_place(path, "report")
    check_packages(found)
    return found


def check_packages(format: str) -> None:
    """Refuse a page for which a package is missing."""
    missing = [name for name in NEEDED[format] if find_spec(name) is None]
    if missing:
        raise MmccError(f"a report needs {' and '.join(missing)}: pip install 'mmcc[report]'.")


def html_page(report: Report) -> str:
    """One HTML file that contains its pictures."""
    check_packages("html")
    from mmcc.report._pictures import curve_picture, strategy_pictures

    curve = curve_picture(report.dots, report.claims[0]) if len(report.dots) > 1 else None
    drawn = [] if report.strategy is None else strategy_pictures(report.strategy)
    page = _environment(escaped=True).get_template("page.html.j2")
    return page.render(report=report, curve=curve, drawn=drawn)


def markdown_page(report: Report) -> str:
    """One Markdown file without pictures."""
    check_packages("markdown")
    return _environment(escaped=False).get_template("page.md.j2").render(report=report)


def _environment(escaped: bool) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mmcc.report", "."),
        autoescape=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_seen if escaped else None,
    )
    environment.filters |= {
        "text": markdown_text,
        "code": markdown_code,
        "lines": _lines,
        "options": _options,
        "power": _power_of_ten,
        "sh": partial(markdown_block, language="sh"),
        "python": partial(markdown_block, language="python"),
    }
    return environment


def _seen(value: object) -> object:
    """A value for a template, with invisible characters shown; marked HTML is left alone."""
    from markupsafe import Markup

    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value)


def _lines(text: str) -> str:
    """Text with its line breaks, for HTML."""
    from markupsafe import Markup, escape

    return Markup("\n").join(escape(visible(line)) for line in text.split("\n"))


def _options(text: str) -> str:
    """A command for HTML in which no option is broken from its value where there is room."""
    from markupsafe import Markup

    whole = Markup('<span class="option">{}</span>')
    return Markup("\n").join(
        Markup(" ").join(whole.format(visible(part)) for part in re.split(" (?=--)", line))
        for line in text.split("\n")
    )


def _power_of_ten(number: str) -> str:
    """A number below 1/100 as a paper prints it, with all its digits: 2.5e-07 is 2.5 x 10^-7.

    The raised digits are characters of their own, so that a copy of the text says the same.
    """
    value = Decimal(number)
    if not 0 < value < Decimal("0.01"):
        return number
    digits = value.scaleb(-value.adjusted()).normalize()
    power = f"10{str(value.adjusted()).translate(RAISED)}"
    return power if digits == 1 else f"{digits} \N{MULTIPLICATION SIGN} {power}"
