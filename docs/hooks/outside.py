"""Files outside docs/ that the site shows, and links to those that it does not.

In: the files and pages of the site.  Out: CHANGELOG.md, CONTRIBUTING.md and SECURITY.md as pages,
and every link to another file outside docs/, or to a folder, as a name: the site has neither.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
PAGES = {
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that lie beside docs/, with links as if they lay in it."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=LINK.sub(_from_root, text)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links that leave docs/ into links to those pages, or into names."""
    return LINK.sub(_from_docs, markdown)


def _from_root(link: re.Match[str]) -> str:
    """A link of a file beside docs/."""
    return _link(link, link["target"])


def _from_docs(link: re.Match[str]) -> str:
    """A link of a page in docs/; those of pages in its folders stay as they are."""
    target = link["target"]
    outside = target.startswith("../")
    return (
        _link(link, target.removeprefix("../")) if outside or (DOCS / target).is_dir() else link[0]
    )


def _link(link: re.Match[str], target: str) -> str:
    """A link to what `target` is on the site, seen from the root of the repository."""
    if "://" in target or target.startswith("#"):
        return link[0]
    if target in PAGES:
        return f"[{link['text']}]({PAGES[target]})"
    if target.startswith("docs/"):
        return f"[{link['text']}]({target.removeprefix('docs/')})"
    return f"{link['text']} (`{target}`)"
