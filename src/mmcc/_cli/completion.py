"""Completion by the shell: the lines that it reads, and where they are put.

In: the shell that `SHELL` names.  Out: a script; installed in the user's folder, one line in the
file that the shell reads when it starts.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from mmcc._cli.words import UsageError

PROGRAM, COMPLETION = "mmcc", "_MMCC_COMPLETE"
PLACES = {
    "bash": (".bash_completions/mmcc.sh", ".bashrc", "source {}"),
    "zsh": (".zfunc/_mmcc", ".zshrc", "source {}"),
    "fish": (".config/fish/completions/mmcc.fish", "", ""),
}
"""By shell: the file with the script, the file that is read at the start, the line in it."""


def complete(commands: click.Group, asked: str) -> str:
    """What could come next, as the script of a shell asks for it: `bash_complete`."""
    shell, _, what = asked.partition("_")
    answering = get_completion_class(shell)
    if answering is None:
        raise UsageError(f"completion is for {', '.join(PLACES)}, not for {shell!r}.")
    completion = answering(commands, {}, PROGRAM, COMPLETION)
    return completion.source() if what == "source" else completion.complete()


def script(commands: click.Group) -> str:
    """What the shell reads."""
    return complete(commands, f"{_shell()}_source")


def install(commands: click.Group) -> str:
    """Write the script where the shell finds it; return what was done."""
    place, start, line = PLACES[_shell()]
    file = Path.home() / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(script(commands) + "\n", encoding="utf-8")
    if start:
        read = Path.home() / start
        before = read.read_text(encoding="utf-8") if read.exists() else ""
        wanted = line.format(file)
        if wanted not in before.splitlines():
            gap = "" if before.endswith("\n") or not before else "\n"
            read.write_text(f"{before}{gap}{wanted}\n", encoding="utf-8")
    return f"{file} is written; it takes effect in a new terminal."


def _shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in PLACES:
        raise UsageError(
            f"completion is for {', '.join(PLACES)}; SHELL names {name or 'none of them'!r}."
        )
    return name
