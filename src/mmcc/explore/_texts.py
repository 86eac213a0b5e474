"""What is shown, for reuse: a command and a Python snippet with the same answer.

Where no amplification is proven they ask for the bound without any, as the page does.

In: settings.  Out: text made of known names and numbers only, so it is safe to paste.
"""

from __future__ import annotations

from mmcc._methods import TIGHT
from mmcc.explore._settings import Settings
from mmcc.sampling._registry import SCHEMES


def command(shown: Settings) -> str:
    """The question as a command, one option a line."""
    options: list[tuple[str | None, object]] = [
        ("strategy", shown.strategy),
        ("steps", shown.steps),
    ]
    if shown.size is not None:
        options.append((shown.size_name, shown.size))
    options.append(("sampling", shown.scheme))
    if shown.prob is not None:
        options.append(("prob", shown.prob))
    options += shown.rounds
    options += [("sigma", _short(shown.sigma)), ("delta", _short(shown.delta))]
    if shown.method != TIGHT:
        options.append(("method", shown.method))
    words = [f"--{name} {value}" for name, value in options]
    return " \\\n    ".join(["mmcc bracket", *words])


def snippet(shown: Settings) -> str:
    """The question in Python."""
    name = shown.strategy.replace("-", "_")
    sizes = str(shown.steps) if shown.size is None else f"{shown.steps}, {shown.size}"
    whole = [str(value) for _, value in shown.rounds]
    rounds = ", ".join(whole if shown.prob is None else [shown.prob, *whole])
    sigma, delta = _short(shown.sigma), _short(shown.delta)
    method = "" if shown.method == TIGHT else f', method="{shown.method}"'
    return "\n".join(
        (
            "import mmcc",
            "from mmcc import sampling, strategies, utility",
            "",
            f"strategy = strategies.{name}({sizes})",
            f"scheme = sampling.{SCHEMES[shown.scheme].class_name}({rounds})",
            f"sigma, delta = {sigma}, {delta}",
            f"found = mmcc.bracket(strategy, scheme, sigma=sigma, delta=delta{method})",
            "print(found.lower, found.upper)",
            "print(utility.rmse(strategy, sigma), utility.max_error(strategy, sigma))",
        )
    )


def _short(value: float) -> str:
    """The shortest decimal that is this float."""
    return repr(int(value)) if value.is_integer() and value < 1e15 else repr(value)
