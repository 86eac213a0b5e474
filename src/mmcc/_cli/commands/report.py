"""The command `mmcc report`: reports on a mechanism, a checkpoint or a ledger in one file.

In: the options as typed.  Out: an HTML or Markdown file, and a line on stdout that sums it up; with
`--out -` the page itself on stdout.
An option that does not apply is an error: it is never ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcc._cli import output
from mmcc._cli.command import FILE, NUMBER, OUTPUT, QUESTION, TEXT, Command, Option, one_of
from mmcc._cli.mechanism_options import (
    BOUND,
    DELTA,
    GROUP_SIZE,
    MECHANISM,
    NAME,
    OF_STRATEGY,
    ROUNDS,
    SAMPLING,
    SIGMA,
    Given,
    check_bound,
    mechanism,
    released,
)
from mmcc._cli.parsing import UsageError, names_a_file, whole_number
from mmcc._cli.question_options import UNITS, said
from mmcc._methods import TIGHT
from mmcc.strategies._registry import TYPED

if TYPE_CHECKING:
    from mmcc.accounting._parallel import Progress
    from mmcc.report import Report
    from mmcc.report._facts import Claim

FORMATS = ("html", "markdown")
PAGES = {"html": "privacy-report.html", "markdown": "privacy-report.md"}
STDOUT = "-"
NEEDED = (NAME, SAMPLING, SIGMA, DELTA)
"""Options for the report of a mechanism; a checkpoint and a ledger have their own values."""
SIGNED = ("model", "commit", "author", "tuning")
"""Options for what only the author knows."""
OF_MECHANISM = tuple(str(option.name) for option in MECHANISM)


def run(out: str | None, format: str | None, **given: Any) -> None:
    """Check that the page can be written, make the report, write it."""
    from mmcc.report._pages import check_packages, page_format

    if out is None:
        out = PAGES.get(format or "html", PAGES["html"])
    if out == STDOUT:
        kind = format or "html"
        page_format(PAGES["html"], kind)
        check_packages(kind)
    else:
        _keep_inputs(given, Path(out))
        kind = page_format(out, format)
    with output.progress_bar() as progress:
        report = _report(given, progress)
    text = report.html() if kind == "html" else report.markdown()
    if out == STDOUT:
        print(text)
        return
    Path(out).write_text(text, encoding="utf-8")
    print(f"{out}: {'; '.join(_said(claim) for claim in report.claims if not claim.remark)}")


def _keep_inputs(given: Given, out: Path) -> None:
    """Refuse to overwrite a file that the report is about."""
    for name in ("ledger", "checkpoint", "strategy", "record"):
        try:
            same = given[name] is not None and out.samefile(given[name])
        except (OSError, ValueError):  # one of them is not a file
            continue
        if same:
            raise UsageError(
                f"--out {str(out)!r} is the file given with --{name}, which the report would "
                "replace; name another file."
            )


def _said(claim: Claim) -> str:
    """A claim in a few words; claims with conditions are only in the file."""
    reserved = ", not a guarantee for training" if claim.reserved else ""
    return f"{claim.heading}: ({', '.join(claim.shown)})-DP, {claim.kind}{reserved}"


def _report(given: Given, progress: Progress | None) -> Report:
    if given["checkpoint"] is not None and given["ledger"] is not None:
        raise UsageError("--checkpoint and --ledger are two reports; make one at a time.")
    shown = {"title": given["title"], "data": given["data"], "progress": progress}
    shown |= said(unit=given["unit"]) | {name: given[name] for name in SIGNED}
    if given["ledger"] is not None:
        return _of_ledger(given, shown)
    shown |= said(seconds=given["seconds"]) | {"units": given["units"]}
    if given["groups"] is not None:
        shown["groups"] = [whole_number("groups", size) for size in given["groups"].split(",")]
    name = given["strategy"]
    filed = name is not None and name not in TYPED and names_a_file(name)
    shown["file"] = name if filed else None
    if given["checkpoint"] is not None:
        return _of_checkpoint(given, shown)
    from mmcc.report import of_mechanism

    _need(given, NEEDED, "a report of a mechanism (or use --checkpoint or --ledger)")
    check_bound(given["method"], given["order"])
    strategy, scheme = mechanism(given)
    names = ("sigma", "delta", "method", "order", "clip_norm")
    shown |= said(group_size=given["group_size"])
    if given["record"] is not None:
        shown["verified"] = _verdict(given["record"], strategy, scheme, given)
    return of_mechanism(strategy, scheme, **{name: given[name] for name in names}, **shown)


def _verdict(file: str, strategy: Any, scheme: Any, given: Given) -> Any:
    """The smallest epsilon that a record has verified for the mechanism at this noise and delta."""
    from mmcc import replay

    asked = given["sigma"], given["delta"], given["group_size"] or 1
    found = [
        one.guarantee
        for one in replay(file, strategy, scheme, blocks=0).attempts
        if one.guarantee is not None
        and (one.question.sigma, one.question.delta, one.question.group_size) == asked
    ]
    if not found:
        raise UsageError(f"--record {file!r} has no verdict that passed for this sigma and delta.")
    return min(found, key=lambda one: one.epsilon)


def _of_checkpoint(given: Given, shown: dict[str, Any]) -> Report:
    from mmcc.report import of_checkpoint

    has = "the checkpoint has it"
    _refuse(given, ("sampling", *ROUNDS, "sigma", "clip_norm"), "checkpoint", has)
    _refuse(given, ("order",), "checkpoint", "a run is accounted by --method alone")
    _refuse(given, ("record",), "checkpoint", "it belongs to the report of a mechanism")
    _refuse(given, ("group_size",), "checkpoint", "a run is accounted for one example")
    _need(given, (DELTA,), "--checkpoint, which does not know it")
    if not given["strategy"]:
        names = [str(option.name) for option in OF_STRATEGY]
        belongs = "it belongs to --strategy, which was not given"
        _refuse(given, names, "checkpoint", belongs)
    check_bound(given["method"], None)
    return of_checkpoint(
        given["checkpoint"],
        delta=given["delta"],
        strategy=released(given) if given["strategy"] else None,
        method=given["method"],
        **shown,
    )


def _of_ledger(given: Given, shown: dict[str, Any]) -> Report:
    from mmcc.report import of_ledger

    has = "a ledger has the runs' own"
    _refuse(
        given,
        (*OF_MECHANISM, "sigma", "clip_norm", "order", "seconds", "group_size", "record"),
        "ledger",
        has,
    )
    _refuse(given, ("units", "groups"), "ledger", "its totals are pairs of numbers without a curve")
    if given["method"] != TIGHT:
        raise UsageError(f"--method does not apply to --ledger: {has}; leave it out.")
    return of_ledger(given["ledger"], delta=given["delta"], **shown)


def _need(given: Given, options: Iterable[Option], what: str) -> None:
    for option in options:
        if given[str(option.name)] in (None, ""):
            raise UsageError(f"--{option.name} is needed for {what}.")


def _refuse(given: Given, names: Iterable[str], source: str, why: str) -> None:
    """Refuse the report if any of these options was given."""
    for name in names:
        if given[name] not in (None, False):
            shown = name.replace("_", "-")
            raise UsageError(f"--{shown} does not apply to --{source}: {why}; leave it out.")


COMMAND = Command(
    "report",
    run,
    *(option.optional() for option in (*MECHANISM, SIGMA, DELTA)),
    GROUP_SIZE,
    *BOUND,
    Option(
        "--checkpoint",
        FILE,
        QUESTION,
        "Report on the run of a checkpoint, whose strategy is read from it.",
    ),
    Option("--ledger", FILE, QUESTION, "Report on all runs of a ledger."),
    Option("--seconds", NUMBER, QUESTION, "0 leaves out the slow parts: curve, DP-SGD's noise."),
    UNITS,
    Option("--groups", TEXT, QUESTION, "Also report epsilon for groups of these sizes: 2,4,8."),
    Option("--record", FILE, QUESTION, "Also report what a record of mmcc verify has verified."),
    Option("--title", TEXT, OUTPUT, "Title of the report."),
    Option(
        "--unit",
        TEXT,
        OUTPUT,
        "What the training treats as one example: one training example, one user.",
    ),
    Option("--data", TEXT, OUTPUT, "Name of the data set; with --ledger: report on this one only."),
    Option("--model", TEXT, OUTPUT, "Identifier of the model that is released."),
    Option("--commit", TEXT, OUTPUT, "Commit of the code that trained it."),
    Option("--author", TEXT, OUTPUT, "Who is responsible for the report."),
    Option("--tuning", TEXT, OUTPUT, "Which other runs were made to tune this one."),
    Option("--clip-norm", NUMBER, OUTPUT, "Clip norm of the training, stated in the report."),
    Option(
        "--format",
        one_of(FORMATS),
        OUTPUT,
        "html or markdown; default: by the extension of --out.",
    ),
    Option("--out", FILE, OUTPUT, "File to write; - is stdout."),
    help="Write a guarantee with all it assumes to one file, to attach to a model release.\n\n"
    "On a mechanism (--strategy and the rest), a training run (--checkpoint) or a ledger "
    "(--ledger).",
    example="mmcc report --strategy binary-tree --steps 128 --sampling poisson --prob 1/128 "
    "--sigma 14 --delta 1e-6 --out report.html",
)
