"""Claim: the shell completes commands, options and the names that options take."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from mmcc._cli.app import COMMANDS, main
from mmcc._cli.words import METHODS, SCHEMES, STRATEGIES


def environment(shell: str, line: str) -> dict[str, str]:
    """What the completion script of a shell sets when the cursor is at the end of the line."""
    asked = {"_MMCC_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        words = re.split(" +", line)
        return asked | {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"} if shell == "fish" else {}
    return asked | action | {"_TYPER_COMPLETE_ARGS": line}


def offered(shell: str, printed: str) -> list[str]:
    """The words that the shell would offer."""
    if shell == "zsh":
        return re.findall(r'"([\w-]+)"', printed)
    return [word.split("\t")[0] for word in printed.split("\n") if word]


@pytest.fixture
def completed(monkeypatch, capsys):
    """Ask for completions as bash does."""

    def ask(line: str) -> list[str]:
        for name, value in environment("bash", line).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main([])
        assert ended.value.code == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.split()

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mmcc ", COMMANDS),
        ("mmcc e", tuple(name for name in COMMANDS if name.startswith("e"))),
        ("mmcc epsilon --strategy ", tuple(STRATEGIES)),
        ("mmcc epsilon --strategy ba", ("banded", "banded-toeplitz", "banded-inverse")),
        ("mmcc epsilon --strategy matrix.n", ()),
        ("mmcc delta --sampling ", tuple(SCHEMES)),
        ("mmcc sigma --method ", METHODS),
        ("mmcc bracket --method mmcc --order r", ("release", "reversed")),
        ("mmcc epsilon --objective ", ("mean", "max")),
        ("mmcc audit --decoder ", ("honaker", "online")),
        ("mmcc audit --stream ", ("torch", "numpy")),
        ("mmcc audit --generator c", ("chacha",)),
        ("mmcc compare --schemes poisson,sh", ("poisson,shuffle",)),
        (
            "mmcc compare --strategies identity,banded",
            ("identity,banded:", "identity,banded-toeplitz:", "identity,banded-inverse:"),
        ),
        ("mmcc epsilon --str", ("--strategy",)),
    ],
)
def test_names_are_completed(completed, line, expected):
    assert sorted(completed(line)) == sorted(expected)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_answered_by_a_new_process(shell):
    line = "mmcc epsilon --sampling sh"
    run = subprocess.run(
        [sys.executable, "-m", "mmcc"],
        env=os.environ | environment(shell, line),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert offered(shell, run.stdout) == ["shuffle"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(monkeypatch, capsys, shell):
    """The one that `mmcc --show-completion` prints."""
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    monkeypatch.setenv("_MMCC_COMPLETE", f"source_{shell}")
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    script = capsys.readouterr().out
    assert f"_MMCC_COMPLETE=complete_{shell}" in script
    assert " mmcc" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_itself_completes(tmp_path):
    """The script in a real shell, with `mmcc` on its path."""
    command = tmp_path / "mmcc"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mmcc "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    script = """
        eval "$(env _MMCC_COMPLETE=source_bash mmcc)"
        COMP_WORDS=(mmcc epsilon --method un) COMP_CWORD=3
        _mmcc_completion mmcc
        printf '%s ' "${COMPREPLY[@]}"
    """
    run = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.split() == ["unamplified"]
