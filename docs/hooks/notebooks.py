"""Notebooks as pages of the site: text, code, what it printed and what it drew.

In: the notebooks of docs/notebooks, with their outputs.  Out: one page and its pictures for each;
links to a notebook lead to its page.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FOLDER = Path(__file__).parents[1] / "notebooks"
LINK = re.compile(r"\]\((notebooks/\w+)\.ipynb\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add a page for every notebook."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        name = f"{FOLDER.name}/{path.stem}"
        text, pictures = _page(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"{name}.md", content=text))
        for picture, content in pictures.items():
            place = f"{FOLDER.name}/{picture}"
            files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """GitHub shows notebooks by itself, the site has their pages."""
    return LINK.sub(r"](\1.md)", markdown)


def _page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """The page, and its pictures by their file."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else _block(source, "python"))
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode(data["image/png"])
                parts.append(f"![What the code above draws]({picture})")
            else:
                text = output.get("text", data.get("text/plain", ""))
                parts.append(_block("".join(text), "text"))
    parts.append(f"*The notebook itself: `docs/{FOLDER.name}/{name}.ipynb`.*")
    return "\n\n".join(parts) + "\n", pictures


def _block(text: str, language: str) -> str:
    return f"~~~~{language}\n{text.rstrip()}\n~~~~"
