"""Text from elsewhere that must stay text, whatever it looks like.

In: any text.  Out: text whose characters are all visible, and Markdown that shows exactly it.
Titles and names of data sets and files may be made to deceive: with markup, links, code, and
characters that reverse the direction of writing or have no width.
"""

from __future__ import annotations

import re
import unicodedata

ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|~&!@$]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
"""What starts markup within a line of Markdown, including bare addresses."""

BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)
"""Letters, marks and symbols that show nothing, although their class makes Python print them.

They are the default-ignorable characters of Unicode, and a few that are drawn empty."""


def visible(text: str) -> str:
    """Text on one line, with invisible characters replaced by their numbers.

    So are marks without a character to combine with: they would change the text before them.
    """
    shown: list[str] = []
    stands = False
    for character in text:
        seen = character.isprintable() and not BLANK.match(character)
        if unicodedata.category(character) in ("Mn", "Me"):
            seen = seen and stands
        else:
            stands = seen and character != " "
        shown.append(character if seen else f"[U+{ord(character):04X}]")
    return "".join(shown)


def markdown_text(text: object) -> str:
    """Markdown that shows this text, anywhere but at the start of a line."""
    shown = visible(str(text)).strip(" ")
    return ACTIVE.sub(r"\\\1", shown)


def markdown_code(text: object) -> str:
    """A code span, also for table cells: its fences are longer than any run of backticks inside."""
    shown = visible(str(text)).replace("|", r"\|")
    fence = "`" * (_longest(shown) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{space}{shown}{space}{fence}"


def markdown_block(text: str, language: str) -> str:
    """A fenced block of code."""
    lines = "\n".join(visible(line) for line in text.split("\n"))
    fence = "`" * max(_longest(lines) + 1, 3)
    return f"{fence}{language}\n{lines}\n{fence}"


def _longest(text: str) -> int:
    """The length of the longest run of backticks."""
    return max((len(row) for row in re.findall("`+", text)), default=0)
