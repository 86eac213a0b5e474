"""Claim: no example in the docs has more error than DP-SGD would have without saying so."""

from __future__ import annotations

import ast
import json
import re
import shlex
from contextlib import suppress
from pathlib import Path

import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc._cli.app import main
from mmcc.design._error_beside_dp_sgd import beside_dp_sgd

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *NOTEBOOKS]
SAYS_SO = re.compile(r"more( error)? than\s+DP-SGD|worse than\s+DP-SGD|not made to beat\s+DP-SGD")
"""How a page admits it."""
MECHANISM = [
    "strategy",
    "steps",
    "bands",
    "buffers",
    "height",
    "decay",
    "scale",
    "coefficients",
    "power",
    "cancel",
    "sampling",
    "prob",
    "separation",
    "bins",
    "epoch-steps",
    "participations",
    "warm-start",
    "largest-batch",
    "examples",
]
MADE = re.compile(r"\(?(mmcc\.)?(strategies|sampling)\.(?!optimise)")
"""What follows the sign of equality where a name is given to a strategy or a scheme."""
NUMBERS = ("sigma", "epsilon", "delta")
PRIVATE = re.compile(r"make_private\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")


def text_of(page: Path) -> str:
    if page.suffix != ".ipynb":
        return page.read_text(encoding="utf-8")
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def sections(text: str) -> list[str]:
    return re.split(r"^#+ .*$", text, flags=re.MULTILINE)


def commands(section: str) -> list[dict[str, str]]:
    """Options of the commands that show a mechanism with its noise or its target."""
    joined = section.replace("\\\n", " ")
    found = []
    for line in re.findall(r"mmcc (?:epsilon|sigma|bracket|report) (--.*)$", joined, re.MULTILINE):
        try:
            words = shlex.split(line.split("`")[0])
        except ValueError:
            continue
        options: dict[str, str] = {}
        for place, word in enumerate(words):
            if word.startswith("--"):
                value = words[place + 1] if place + 1 < len(words) else ""
                options[word[2:]] = "" if value.startswith("--") else value
        whole = {"strategy", "sampling", "delta"} <= options.keys()
        if whole and ("sigma" in options) != ("epsilon" in options) and "..." not in line:
            found.append(options)
    return found


def calls(section: str) -> list[ast.Call]:
    """Calls of make_private that name a strategy, a scheme and a target or noise."""
    found = []
    for text in PRIVATE.findall(re.sub(r"^(>>>|\.\.\.) ?", "", section, flags=re.MULTILINE)):
        try:
            call = ast.parse(text, mode="eval").body
        except SyntaxError:
            continue
        assert isinstance(call, ast.Call)
        named = {one.arg for one in call.keywords}
        if {"strategy", "sampling", "delta"} <= named and "epochs" not in named:
            found.append(call)
    return found


def code_of(page: Path) -> list[ast.Module]:
    """The Python that a page shows, block by block."""
    if page.suffix == ".ipynb":
        cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
        blocks = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    else:
        blocks = []
        for kind, block in re.findall(r"```(pycon|python)\n(.*?)```", text_of(page), re.DOTALL):
            typed = re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", block, re.MULTILINE)
            blocks.append("\n".join(typed) if kind == "pycon" else block)
    found = []
    for block in blocks:
        with suppress(SyntaxError):
            found.append(ast.parse(block))
    return found


def asked_in_python(page: Path) -> list[str]:
    """Calls of mmcc.epsilon, sigma and bracket with all their numbers."""
    calls = [
        ast.unparse(node)
        for block in code_of(page)
        for node in ast.walk(block)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("mmcc.epsilon", "mmcc.sigma", "mmcc.bracket")
        and "delta" in {one.arg for one in node.keywords}
    ]
    return list(dict.fromkeys(calls))


def made_on(page: Path) -> dict[str, object]:
    """What a page gives a name to that is a strategy or a scheme, or a tuple of these."""
    names = vars(sampling) | {"mmcc": mmcc, "strategies": strategies, "sampling": sampling}
    for block in code_of(page):
        for line in block.body:
            text = ast.unparse(line)
            if isinstance(line, ast.Assign) and MADE.match(ast.unparse(line.value)):
                with suppress(Exception):  # it needs what is not made here
                    exec(text, names)
    return names


def admitted(page: str, saving: float | None) -> bool:
    return saving is None or saving >= 0 or SAYS_SO.search(page) is not None


def cases(kind):
    return [
        pytest.param(text_of(page), one, id=f"{page.name}-{number}")
        for page in PAGES
        for number, section in enumerate(sections(text_of(page)))
        for one in kind(section)
    ]


@pytest.mark.parametrize(("page", "options"), cases(commands))
def test_commands(page, options, capsys):
    if options["strategy"].endswith(".npz"):
        pytest.skip("a file that the page makes")
    asked = "sigma" if "epsilon" in options else "epsilon"
    words = [
        word
        for name in (*MECHANISM, *NUMBERS)
        if name in options
        for word in (f"--{name}", options[name])
        if word
    ]
    assert main([asked, *words, "--json"]) == 0
    error = json.loads(capsys.readouterr().out).get("error")
    assert admitted(page, None if error is None else error["saving"]), (words, error)


@pytest.mark.parametrize(("page", "call"), cases(calls))
def test_training(page, call):
    names = vars(sampling) | {"mmcc": mmcc, "strategies": strategies, "sampling": sampling}
    named = {}
    for one in call.keywords:
        if one.arg in ("strategy", "sampling", *NUMBERS):
            try:
                expression = compile(ast.Expression(one.value), "docs", "eval")
                named[one.arg] = eval(expression, names)
            except NameError:
                pytest.skip("made earlier on the page")
    numbers = {name: named[name] for name in NUMBERS if name in named}
    question = mmcc.sigma if "epsilon" in numbers else mmcc.epsilon
    found = question(named["strategy"], named["sampling"], **numbers)
    beside = beside_dp_sgd(named["strategy"], named["sampling"], found)
    assert admitted(page, None if beside is None else beside.saving), str(beside)


@pytest.mark.parametrize(
    ("page", "call"),
    [
        pytest.param(page, call, id=f"{page.name}-{call}")
        for page in PAGES
        if not SAYS_SO.search(text_of(page))
        for call in asked_in_python(page)
    ],
)
def test_questions_in_python(page, call):
    node = ast.parse(call, mode="eval").body
    names = made_on(page)
    try:
        strategy, scheme = (eval(ast.unparse(one), names) for one in node.args)
        given = {
            one.arg: eval(ast.unparse(one.value), names)
            for one in node.keywords
            if one.arg in (*NUMBERS, "method")
        }
    except (NameError, ValueError):
        pytest.skip("made by more than a strategy's or a scheme's constructor")
    question = mmcc.sigma if "epsilon" in given else mmcc.epsilon
    beside = beside_dp_sgd(strategy, scheme, question(strategy, scheme, **given))
    assert beside is None or not beside.worse, str(beside)


def test_the_examples_are_found():
    assert len(cases(commands)) >= 8
    assert len(cases(calls)) >= 2
    assert sum(len(asked_in_python(page)) for page in PAGES) >= 20
