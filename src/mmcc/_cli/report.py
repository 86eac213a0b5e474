"""The command `mmcc report`: a mechanism, a checkpoint or a ledger into one file.

In: the options as typed.  Out: an HTML or Markdown file, and a line on stdout that says what is in
it; with `--out -` the page itself on stdout.
An option that does not apply is an error: it is never ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcc._cli import output
from mmcc._cli.options import MECHANISM
from mmcc._cli.words import STRATEGIES, Options, UsageError, names_a_file, number

if TYPE_CHECKING:
    from mmcc.accounting._parallel import Progress
    from mmcc.report import Report
    from mmcc.report._facts import Claim

REPORT = (
    "sigma",
    "delta",
    "checkpoint",
    "ledger",
    "title",
    "unit",
    "data",
    "clip_norm",
    "seconds",
    "format",
    "out",
)
OPTIONAL = ("strategy", "sampling", "sigma", "delta")
FILE = {"html": "privacy-report.html", "markdown": "privacy-report.md"}
STDOUT = "-"
ABOUT_STRATEGY = tuple(name for name in MECHANISM if name not in ("sampling", "prob"))


def write_report(options: Options) -> None:
    """Know that the page can be written, make the report, write it."""
    from mmcc.report._pages import check_packages, page_format

    out = options.out
    if out is None:
        out = FILE.get(options.format or "html", FILE["html"])
    if out == STDOUT:
        kind = options.format or "html"
        page_format(FILE["html"], kind)
        check_packages(kind)
    else:
        _keep_inputs(options, Path(out))
        kind = page_format(out, options.format)
    with output.progress_bar() as progress:
        report = _report(options, progress)
    text = report.html() if kind == "html" else report.markdown()
    if out == STDOUT:
        print(text)
        return
    Path(out).write_text(text, encoding="utf-8")
    print(f"{out}: {'; '.join(_said(claim) for claim in report.claims if not claim.remark)}")


def _keep_inputs(options: Options, out: Path) -> None:
    """Refuse to write the report over what it is about."""
    for name in ("ledger", "checkpoint", "strategy"):
        given = getattr(options, name)
        try:
            same = given is not None and out.samefile(given)
        except (OSError, ValueError):  # one of them is no file
            continue
        if same:
            raise UsageError(
                f"--out {str(out)!r} is the file given with --{name}, which the report would "
                "replace; name another file."
            )


def _said(claim: Claim) -> str:
    """A claim in a few words; those that hold under a condition of their own are in the file."""
    reserved = ", not a guarantee for training" if claim.reserved else ""
    return f"{claim.heading}: ({', '.join(claim.shown)})-DP, certified{reserved}"


def _report(options: Options, progress: Progress | None) -> Report:
    if options.checkpoint is not None and options.ledger is not None:
        raise UsageError("--checkpoint and --ledger are two reports; make one at a time.")
    if options.ledger is not None:
        return _of_ledger(options, progress)
    given: dict[str, Any] = {"title": options.title, "data": options.data, "progress": progress}
    given |= {} if options.unit is None else {"unit": options.unit}
    given |= {} if options.seconds is None else {"seconds": number("seconds", options.seconds)}
    known = options.strategy in STRATEGIES  # as for the mechanism: a name goes before a file
    given["file"] = options.strategy if not known and names_a_file(options.strategy) else None
    if options.checkpoint is not None:
        return _of_checkpoint(options, given)
    from mmcc.report import of_mechanism

    _need(options, OPTIONAL, "a report of a mechanism (or use --checkpoint or --ledger)")
    clip = None if options.clip_norm is None else number("clip-norm", options.clip_norm)
    strategy, scheme = options.mechanism()
    return of_mechanism(
        strategy,
        scheme,
        method=options.method,
        order=options.order,
        clip_norm=clip,
        **options.numbers() | given,
    )


def _of_checkpoint(options: Options, given: dict[str, Any]) -> Report:
    from mmcc.report import of_checkpoint

    has = "the checkpoint has it"
    _refuse(options, ("sampling", "prob", "separation", "bins", "epoch_steps", "sigma"), has)
    _refuse(options, ("clip_norm",), has)
    _refuse(options, ("order",), "a run is accounted by --method alone")
    _need(options, ("delta",), "--checkpoint, which does not know it")
    if not options.strategy:
        _refuse(options, ABOUT_STRATEGY, "it belongs to --strategy, which was not given")
    options.check_method()
    return of_checkpoint(
        str(options.checkpoint),
        delta=options.numbers()["delta"],
        strategy=options.released() if options.strategy else None,
        method=options.method,
        **given,
    )


def _of_ledger(options: Options, progress: Progress | None) -> Report:
    from mmcc.report import of_ledger

    has = "a ledger has the runs' own"
    _refuse(options, (*MECHANISM, "sigma", "clip_norm", "order", "seconds"), has)
    if options.method != "tight":
        raise UsageError(f"--method does not apply to --ledger: {has}; leave it out.")
    return of_ledger(
        str(options.ledger),
        data=options.data,
        delta=None if options.delta is None else number("delta", options.delta),
        title=options.title,
        progress=progress,
        **({} if options.unit is None else {"unit": options.unit}),
    )


def _need(options: Options, names: tuple[str, ...], what: str) -> None:
    for name in names:
        if not getattr(options, name):
            raise UsageError(f"--{name} is needed for {what}.")


def _refuse(options: Options, names: tuple[str, ...], why: str) -> None:
    """None of these options may have been given."""
    unset = Options()
    source = "checkpoint" if options.ledger is None else "ledger"
    for name in names:
        if getattr(options, name) != getattr(unset, name):
            shown = name.replace("_", "-")
            raise UsageError(f"--{shown} does not apply to --{source}: {why}; leave it out.")
