"""Claim: the shell completes commands, options and the names that options take."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mmcc._cli.app import COMMANDS, main
from mmcc._methods import CERTIFYING
from mmcc.sampling._registry import SCHEMES
from mmcc.strategies._registry import TYPED as STRATEGIES


def environment(shell: str, line: str) -> dict[str, str]:
    """What the completion script of a shell sets when the cursor is at the end of the line."""
    asked = {"_MMCC_COMPLETE": f"{shell}_complete"}
    words = re.split(" +", line)
    if shell in ("fish", "powershell"):
        return asked | {"COMP_WORDS": line, "COMP_CWORD": words[-1]}
    return asked | {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}


def offered(shell: str, printed: str) -> list[str]:
    """The words that the shell would offer; where a file is asked for it looks for them itself."""
    lines = printed.splitlines()
    if shell == "powershell":
        return lines
    if shell == "zsh":
        return [word for kind, word in zip(lines[::3], lines[1::3], strict=True) if kind != "file"]
    pairs = [line.split("\t")[0].partition(",") for line in lines]
    return [word for kind, _, word in pairs if kind != "file"]


@pytest.fixture
def completed(monkeypatch, capsys):
    """Ask for completions as bash does."""

    def ask(line: str) -> list[str]:
        for name, value in environment("bash", line).items():
            monkeypatch.setenv(name, value)
        assert main([]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return offered("bash", printed.out)

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
        ("mmcc sigma --method ", CERTIFYING),
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_every_shell_is_answered_by_a_new_process(shell):
    line = "mmcc epsilon --sampling sh"
    run = subprocess.run(
        [sys.executable, "-m", "mmcc"],
        env=os.environ | environment(shell, line),
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert offered(shell, run.stdout) == ["shuffle"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_for_a_shell(monkeypatch, capsys, shell):
    """The one that `mmcc --show-completion` prints."""
    monkeypatch.setenv("SHELL", "" if shell == "powershell" else f"/bin/{shell}")
    monkeypatch.setenv("PSModulePath", "modules")
    assert main(["--show-completion"]) == 0
    script = capsys.readouterr().out
    assert f"{shell}_complete" in script
    assert "_MMCC_COMPLETE" in script
    assert " mmcc" in script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_is_installed_once(monkeypatch, capsys, tmp_path, shell):
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / f".{shell}rc").write_text("alias ll='ls -l'")
    assert [main(["--install-completion"]) for _ in range(2)] == [0, 0]
    (written,) = {line.split(" is written")[0] for line in capsys.readouterr().out.splitlines()}
    assert f"_MMCC_COMPLETE={shell}_complete" in Path(written).read_text()
    start = (tmp_path / f".{shell}rc").read_text().splitlines()
    assert start[0] == "alias ll='ls -l'"
    assert start[1:] == ([] if shell == "fish" else [f"source {written}"])


@pytest.mark.parametrize("switch", ["--install-completion", "--show-completion", "--version"])
def test_a_word_after_a_switch_is_refused(switch, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main([switch, "fish"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"mmcc: {switch} stands alone; leave out 'fish'.\n"
    assert not list(tmp_path.iterdir())


def test_an_unknown_shell_is_told(monkeypatch, capsys):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["--install-completion"]) == 2
    assert capsys.readouterr().err.endswith("SHELL names 'tcsh'.\n")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_itself_completes(tmp_path):
    """The script in a real shell, with `mmcc` on its path."""
    command = tmp_path / "mmcc"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mmcc "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    script = """
        eval "$(env _MMCC_COMPLETE=bash_source mmcc)"
        COMP_WORDS=(mmcc epsilon --method un) COMP_CWORD=3
        _mmcc_completion mmcc
        printf '%s ' "${COMPREPLY[@]}"
    """
    run = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.split() == ["unamplified"]
