"""Completion by the shell: the script, and where it is installed.

In: the shell that is running.  Out: a script, in the user's folder, and a line that loads it in the
file that the shell reads when it starts.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    add_completion_class,
    get_completion_class,
)

from mmcc._cli.parsing import UsageError

PROGRAM, COMPLETION = "mmcc", "_MMCC_COMPLETE"
POWERSHELL = "powershell"
PLACES = {
    "bash": (".bash_completions/mmcc.sh", ".bashrc"),
    "zsh": (".zsh_completions/mmcc.sh", ".zshrc"),
    "fish": (".config/fish/completions/mmcc.fish", None),
}
"""By shell: the file for the script, and the file that loads it, if a line is needed there."""


class PowerShell(ShellComplete):
    """PowerShell, which click does not support."""

    name = POWERSHELL
    source_template = """\
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock {
    param($word, $line, $position)
    $Env:COMP_WORDS = $line.ToString()
    $Env:COMP_CWORD = $word
    $Env:%(complete_var)s = "powershell_complete"
    %(prog_name)s | ForEach-Object {
        [System.Management.Automation.CompletionResult]::new($_, $_, "ParameterValue", $_)
    }
    Remove-Item Env:COMP_WORDS, Env:COMP_CWORD, Env:%(complete_var)s
}
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, word = shlex.split(os.environ["COMP_WORDS"]), os.environ["COMP_CWORD"]
        return (words[1:-1] if word else words[1:]), word

    def format_completion(self, item: CompletionItem) -> str:
        return str(item.value)


add_completion_class(PowerShell)


def complete(commands: click.Group, asked: str) -> str:
    """The possible next words, as a shell's script asks for them: `bash_complete`."""
    shell, _, what = asked.partition("_")
    answering = get_completion_class(shell)
    if answering is None:
        raise UsageError(f"completion is for {_known()}, not for {shell!r}.")
    completion = answering(commands, {}, PROGRAM, COMPLETION)
    return completion.source() if what == "source" else completion.complete()


def script(commands: click.Group) -> str:
    """The script for the shell."""
    return complete(commands, f"{_shell()}_source")


def install(commands: click.Group) -> str:
    """Write the script where the shell finds it; return a sentence about it."""
    shell = _shell()
    if shell == POWERSHELL:
        file = _profile()
        _add(script(commands), file)
    else:
        place, start = PLACES[shell]
        file = Path.home() / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script(commands) + "\n", encoding="utf-8")
        if start is not None:
            _add(f"source {shlex.quote(str(file))}", Path.home() / start)
    return f"{file} is written; it takes effect in a new terminal."


def _add(lines: str, file: Path) -> None:
    """Append lines to a file, unless it already contains them."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if lines not in before:
        gap = "" if before.endswith("\n") or not before else "\n"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{before}{gap}{lines}\n", encoding="utf-8")


def _profile() -> Path:
    """The file that PowerShell reads when it starts."""
    asked = [POWERSHELL, "-NoProfile", "-Command", "echo $profile"]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


def _shell() -> str:
    """The shell that is running: PowerShell does not set SHELL, and has modules."""
    name = Path(os.environ.get("SHELL", "")).name
    if not name and "PSModulePath" in os.environ:
        return POWERSHELL
    if name not in PLACES:
        raise UsageError(f"completion is for {_known()}; SHELL names {name or 'none of them'!r}.")
    return name


def _known() -> str:
    return ", ".join((*PLACES, POWERSHELL))
