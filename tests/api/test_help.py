"""Claim: every option is explained, and every command has an example that runs as it stands."""

from __future__ import annotations

import os
import re
import shlex
import webbrowser
from pathlib import Path

import pytest
from cases.ledgers import begin
from werkzeug.serving import BaseWSGIServer

from mmcc import _doctor as doctor
from mmcc._cli.app import COMMANDS, cli, main
from mmcc._cli.commands import audit
from mmcc._methods import CERTIFYING
from mmcc.accounting import _questions as solve
from mmcc.audit import _streams as streams
from mmcc.ledger import Ledger
from mmcc.strategies import _decoders as decoders
from mmcc.training import _randomness as randomness

GROUP = cli
GUIDE = {
    purpose: {str(command.name): command.example for command in commands}
    for purpose, commands in cli.sections.items()
}
DOCS = Path(__file__).parents[2] / "docs" / "command-line.md"


def parameters():
    """Every option and argument, with the words that lead to it."""
    for param in GROUP.params:
        yield pytest.param(param, id=f"mmcc {param.opts[0]}")
    for name, command in GROUP.commands.items():
        for param in command.params:
            yield pytest.param(param, id=f"mmcc {name} {param.opts[0]}")


@pytest.mark.parametrize("param", list(parameters()))
def test_every_option_and_argument_is_explained(param):
    assert param.help
    assert param.help[0].isupper() or ":" in param.help or "," in param.help
    assert param.help.endswith(".")


def test_the_guide_has_a_line_for_every_command():
    guided = [name for commands in GUIDE.values() for name in commands]
    assert set(guided) == set(COMMANDS) == set(GROUP.commands)
    assert len(guided) == len(set(guided))


def printed_help(capsys, monkeypatch, *arguments: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*arguments, "--help"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_the_top_shows_commands_by_purpose_and_an_example(capsys, monkeypatch):
    printed = printed_help(capsys, monkeypatch)
    places = [printed.index(f"\n{purpose}:\n") for purpose in GUIDE]
    assert places == sorted(places)
    for place, (purpose, commands) in zip(places, GUIDE.items(), strict=True):
        section = printed[place + 1 :].split("\n\n")[0]
        listed = re.findall(r"^  (\S+) ", section, flags=re.MULTILINE)
        assert listed == list(commands), purpose
    assert examples(printed)[0].startswith("mmcc epsilon ")


def examples(printed: str) -> list[str]:
    """Lines that begin with mmcc, joined where they go on: what a reader would copy."""
    joined = re.sub(r" \\\n +", " ", printed)
    return [line.strip() for line in joined.splitlines() if line.startswith("   mmcc ")]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_and_ends_with_the_example(capsys, monkeypatch, name):
    printed = printed_help(capsys, monkeypatch, name)
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    (example,) = examples(printed)
    assert example == next(commands[name] for commands in GUIDE.values() if name in commands)
    assert example.split()[:2] == ["mmcc", name]
    for param in GROUP.commands[name].params:
        assert param.opts[-1] in printed or (param.metavar or "") in printed


@pytest.mark.parametrize("arguments", [[], ["epsilon"]])
def test_help_is_whole_in_a_narrow_terminal(capsys, monkeypatch, arguments):
    wanted = printed_help(capsys, monkeypatch, *arguments)
    monkeypatch.setenv("COLUMNS", "20")
    assert main([*arguments, "--help"]) == 0
    assert capsys.readouterr().out == wanted
    assert os.environ["COLUMNS"] == "20"


@pytest.mark.parametrize("words", [["--sigma", "1", "--sigma", "2"], ["--strategy", "qqqq"]])
def test_help_comes_before_mistakes(capsys, monkeypatch, words):
    assert printed_help(capsys, monkeypatch, "epsilon", *words) == printed_help(
        capsys, monkeypatch, "epsilon"
    )


def interrupted(server):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_the_doctor_imports_all_that_is_installed(capsys):
    assert main(["doctor"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_runs(capsys, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(BaseWSGIServer, "serve_forever", interrupted)  # explore runs until Ctrl-C
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    few = dict.fromkeys(doctor.IMPORTS, "pass") | {"report": doctor.IMPORTS["report"]}
    monkeypatch.setattr(doctor, "IMPORTS", few)  # all of them: above
    monkeypatch.setattr("mmcc.report._epsilon_curve.DECADES", (1,))  # as many as time allows
    begin(Ledger(tmp_path / "runs.jsonl"), data="patients")
    line = next(commands[name] for commands in GUIDE.values() if name in commands)
    arguments = shlex.split(line)[1:]
    if name == "recommend":
        arguments += ["--seconds", ".01"]  # tests/api/test_recommend.py waits for answers
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out
    told = printed.err.splitlines()  # a verdict says what it costs, whoever looks
    assert not told or (name == "verify" and len(told) == 1 and "about" in told[0])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_an_example_of_every_command(name):
    page = DOCS.read_text(encoding="utf-8")
    assert f"\n| `mmcc {name}` | " in page
    line = next(commands[name] for commands in GUIDE.values() if name in commands)
    assert line in re.sub(r" \\\n +", " ", page)


def test_the_command_line_knows_the_names_of_the_library():
    """They are listed for help and completion, which do not wait for numpy."""
    assert set(CERTIFYING) == set(solve.methods())
    assert set(audit.DECODERS) < set(decoders.DECODERS)
    assert set(audit.STREAMS) == set(streams.NAMES)
    assert audit.GENERATORS == randomness.GENERATORS
