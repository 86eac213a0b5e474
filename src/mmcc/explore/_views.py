"""From settings to the content of the page: one view of the privacy, one of the errors.

In: the values of the controls.  Out: texts and figures by their place.  Epsilons are rounded up,
lower ends down; a number that is only a first, looser proof is labelled as such.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mmcc._cli.mistakes import in_options
from mmcc._methods import TIGHT
from mmcc.accounting._guarantee import Bracket, Guarantee, rounded_down, rounded_up
from mmcc.errors import MmccError
from mmcc.explore import _answers as answers
from mmcc.explore import _figures as figures
from mmcc.explore import _texts as texts
from mmcc.explore._answers import BracketQuestion
from mmcc.explore._desk import Desk
from mmcc.explore._settings import SIGMA, FieldError, Settings, read

NONE = "\N{EM DASH}"
PATIENCE = 0.4
"""Seconds after which a page receives what is known so far."""
MODEST = 20.0
"""A first proof above this, and far above the lower end, says nothing: it is not shown."""
EDGES = "per coordinate, in units of the clip norm"

Answers = Desk[answers.Question, answers.Answer]
Known = Mapping[answers.Question, answers.Answer | MmccError]
View = dict[str, Any]


def privacy_view(values: Mapping[str, object], desk: Answers, patience: float = PATIENCE) -> View:
    """Epsilon, the bracket and their plot, as far as they are known, and how to reproduce them."""
    asks = {"command": "", "snippet": ""}
    try:
        shown = read(values)
        asks = {"command": texts.command(shown), "snippet": texts.snippet(shown)}
        answers.check_size(shown)
        answers.check_scheme(shown)
        plain = answers.unamplified_epsilon(shown)
    except MmccError as wrong:
        return _refused(wrong) | asks
    asked = answers.questions(shown)
    cheap = shown.method != TIGHT  # closed forms need not wait for long questions of others
    known: Known = {q: answers.answered(q) for q in asked} if cheap else desk.ask(asked, patience)
    chosen = known.get(BracketQuestion(shown))
    if isinstance(chosen, MmccError) and plain is None:
        return _refused(chosen) | asks
    if isinstance(chosen, MmccError) and plain is not None:
        view = _only_plain(chosen, plain)
    elif shown.steps > answers.LARGEST:
        view = _without_tight(shown.steps, plain, _lower(known, shown))
    elif isinstance(chosen, Bracket):
        view = _bracket(chosen, shown.proven)
    else:
        view = _first_proof(plain, _with_less_noise(known, shown), _lower(known, shown))
    return {
        **view,
        **asks,
        "problem": "",
        "epsilon-plot": _curves(shown, known),
        "status": _progress(shown, known, asked),
        "unfinished": len(known) < len(asked),
    }


def other_view(values: Mapping[str, object]) -> View:
    """Errors and the picture of the strategy."""
    view: View = {
        "rmse": NONE,
        "rmse-note": "",
        "largest": NONE,
        "largest-note": "",
        "error-plot": figures.empty_figure(),
        "strategy-plot": figures.empty_figure(),
    }
    try:
        shown = read(values)
        view["strategy-plot"] = figures.strategy_figure(answers.picture(shown))
        errors = answers.prefix_errors(shown)
    except MmccError:  # the other view shows what is wrong
        return view
    worst = int(errors.steps.argmax()) + 1
    return view | {
        "rmse": f"{errors.rmse:.5g}",
        "rmse-note": EDGES,
        "largest": f"{errors.largest:.5g}",
        "largest-note": f"at step {worst}",
        "error-plot": figures.error_figure(errors),
    }


def _refused(wrong: MmccError) -> View:
    field = wrong.field if isinstance(wrong, FieldError) else ""
    message = in_options(str(wrong))  # in the same terms as the command below
    return {
        "problem": message[:1].upper() + message[1:],
        "wrong": field,
        "epsilon": NONE,
        "epsilon-note": "",
        "epsilon-flag": "",
        "bracket": NONE,
        "bracket-note": "",
        "remark": "",
        "epsilon-plot": figures.empty_figure(),
        "status": "",
        "unfinished": False,
    }


def _first_proof(plain: float | None, less: Guarantee | None, lower: float | None) -> View:
    """Before the tight bound is known: what holds without sampling, or already with less noise."""
    view = {"wrong": "", "epsilon": NONE, "bracket": "…", "remark": ""}
    view |= {"epsilon-note": "being computed", "epsilon-flag": "", "bracket-note": ""}
    proofs = [(plain, "without amplification", "")] if plain is not None else []
    if less is not None:
        proofs.append((less.epsilon, f"already with {SIGMA} = {less.sigma:.4g}", _flag(less)))
    if not proofs:
        return view
    upper, why, flag = min(proofs)
    view |= {"epsilon-flag": flag} | _number(upper, lower, why, "the tight bound is being computed")
    if lower is None:
        return view
    return view | {
        "bracket": f"[{rounded_down(lower)}, {rounded_up(upper)}]",
        "bracket-note": "certified, soon narrower",
    }


def _number(upper: float, lower: float | None, why: str, then: str) -> View:
    """A proof that is not the tight one: in large print if it is useful, otherwise in small."""
    if upper <= max(MODEST, 3 * (lower or 0.0)):
        return {"epsilon": f"≤ {rounded_up(upper)}", "epsilon-note": f"{why}; {then}"}
    return {"epsilon": "…", "epsilon-note": f"{then}; at most {rounded_up(upper)} {why}"}


def _only_plain(refusal: MmccError, plain: float) -> View:
    """What holds although the tight bound is refused, and why it is."""
    return {
        "wrong": "",
        "epsilon": rounded_up(plain),
        "epsilon-note": "without amplification",
        "epsilon-flag": in_options(str(refusal)),
        "bracket": NONE,
        "bracket-note": "",
        "remark": "",
    }


def _without_tight(steps: int, plain: float | None, lower: float | None) -> View:
    """The cheap results for this many steps."""
    then = f"the tight bound of {steps} steps takes longer: run the command below"
    view = {"wrong": "", "epsilon": NONE, "epsilon-note": then, "epsilon-flag": ""}
    view |= {"bracket": NONE, "bracket-note": "", "remark": ""}
    if plain is None:
        return view
    view |= _number(plain, lower, "without amplification", then)
    if view["epsilon"].startswith("≤"):
        view["bracket"] = f"[{rounded_down(lower or 0.0)}, {rounded_up(plain)}]"
        view["bracket-note"] = "certified, and wide: the upper end makes no use of sampling"
    elif lower:
        view["bracket"], view["bracket-note"] = f"≥ {rounded_down(lower)}", "certified"
    return view


def _with_less_noise(known: Known, asked: Settings) -> Guarantee | None:
    """The result for the largest known noise below the chosen one: more noise keeps it valid."""
    found = [answer.guarantee for answer in known.values() if isinstance(answer, Bracket)]
    return max((g for g in found if g.sigma < asked.sigma), key=lambda g: g.sigma, default=None)


def _flag(guarantee: Guarantee, proven: bool = True) -> str:
    if not proven:
        return "No amplification is proven for this scheme here: sampling is not used"
    return f"Only in {guarantee.setting}" if guarantee.setting else ""


def _bracket(found: Bracket, proven: bool) -> View:
    guarantee = found.guarantee
    inputs = "adaptive inputs" if guarantee.adaptive else "inputs fixed in advance only"
    return {
        "wrong": "",
        "epsilon": rounded_up(found.upper),
        "epsilon-note": f"at δ = {rounded_up(guarantee.delta)}, by {found.method}",
        "epsilon-flag": _flag(guarantee, proven),
        "bracket": f"[{rounded_down(found.lower)}, {rounded_up(found.upper)}]",
        "bracket-note": _tightness(found),
        "remark": f"Adjacency {guarantee.adjacency}; {inputs}.",
    }


def _tightness(found: Bracket) -> str:
    if found.upper == 0:
        return "exact"
    if found.lower == 0:
        return "no lower bound is known here"
    return f"upper / lower {rounded_up(found.ratio)}" if math.isfinite(found.ratio) else ""


def _lower(known: Known, asked: Settings) -> float | None:
    """The certified lower end, if it is known and useful."""
    both, alone = (
        known.get(BracketQuestion(asked)),
        known.get(BracketQuestion(asked, lower_only=True)),
    )
    lower = both.lower if isinstance(both, Bracket) else alone
    return lower if isinstance(lower, float) and lower > 0 else None


def _curves(shown: Settings, known: Known) -> figures.Figure:
    levels = answers.noise_levels(shown)
    uppers = {
        q.asked.sigma: found.upper for q, found in known.items() if isinstance(found, Bracket)
    }
    return figures.epsilon_figure(
        shown.sigma,
        uppers=[(s, uppers[s]) for s in levels if uppers.get(s, 0.0) > 0],
        lowers=[(s, low) for s in levels if (low := _lower(known, shown.at(s))) is not None],
        unamplified=[(s, answers.unamplified_epsilon(shown.at(s)) or math.nan) for s in levels],
        one_pass=[(s, answers.one_pass_epsilon(shown.at(s)) or math.nan) for s in levels],
    )


def _progress(shown: Settings, known: Known, asked: Sequence[answers.Question]) -> str:
    if shown.steps > answers.LARGEST:
        return f"Above {answers.LARGEST} steps, this page shows only what is cheap to compute."
    wanted = sum(isinstance(q, BracketQuestion) and not q.lower_only for q in asked)
    done = sum(isinstance(q, BracketQuestion) and not q.lower_only for q in known)
    if len(known) == len(asked):
        return f"All {wanted} noise levels are computed."
    slow = f" {shown.steps} steps may take a minute." if shown.steps > answers.PROMPT else ""
    return f"Computing: {done} of {wanted} noise levels known.{slow}"
