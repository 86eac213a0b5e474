"""The report of a training run, from its checkpoint.

In: a file of `mmcc.training.save_checkpoint`, a delta.  Out: a `Report` of all planned steps and of
those made so far.  Reading the file needs torch, and runs no code from it.
Only the fingerprint of the mechanism, the position and the name of the generator are used: keys and
parameters stay where they are.

A checkpoint describes its strategy by a constructor call and by a digest of its numbers.  The
strategy is rebuilt from the call where that is complete; the digest decides whether it is the same.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcc._methods import TIGHT
from mmcc.errors import MmccError, ParameterError, shown
from mmcc.report._facts import UNIT, Claim, Fact, Report, counted
from mmcc.report._mechanisms import Signed, claim, described
from mmcc.report._wording import of_loops
from mmcc.sampling import Scheme
from mmcc.sampling._registry import SCHEMES
from mmcc.strategies._base import Strategy
from mmcc.strategies._registry import TYPED

if TYPE_CHECKING:
    from mmcc.accounting._parallel import Progress
    from mmcc.training._mechanism import Mechanism

FACTS = (
    "strategy",
    "sampling",
    "sigma",
    "decoder",
    "examples",
    "max_grad_norm",
    "loss_reduction",
)
"""Entries of a fingerprint, all of them text."""
CLIPPING = "clipping"
"""Further entries, where gradients are not clipped as a whole."""


def of_checkpoint(
    path: str | Path,
    *,
    delta: float,
    strategy: Strategy | None = None,
    sampling: Scheme | None = None,
    method: str = TIGHT,
    title: str | None = None,
    unit: str = UNIT,
    data: str | None = None,
    file: str | None = None,
    seconds: float | None = None,
    units: bool = False,
    groups: Sequence[int] = (),
    model: str | None = None,
    commit: str | None = None,
    author: str | None = None,
    tuning: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """The report of the run in a checkpoint; `delta` and `method` are those of the run.

    `strategy` is needed where the checkpoint's description does not contain all its numbers: for
    matrices, and prefixes of optimised strategies.  A strategy other than the run's is refused.
    `sampling` is needed for a scheme defined outside mmcc.  `units` and the options after it are
    those of `of_mechanism`.
    """
    from mmcc.accounting._questions import bracket  # numba takes a second
    from mmcc.training._mechanism import amplified, declared_strategy, training_method

    name, content = Path(path).name, _content(path)
    run = _mechanism(content["fingerprint"], strategy, sampling, name)
    position = _position(content, run.steps, name)
    asked: dict[str, Any] = {
        "sigma": run.sigma,
        "delta": delta,
        "method": training_method(run.strategy, run.sampling, method),
        "progress": progress,
    }
    whole = bracket(run.strategy, run.sampling, **asked)
    claims: list[Claim] = []
    notes = [_progress_words(position, run.steps)]
    if 0 < position < run.steps:
        try:
            part = declared_strategy(run.strategy, run.sampling, position)
            so_far = bracket(part, run.sampling, **asked)
            heading = f"The {position:,} steps made so far"
            claims.append(claim(heading, so_far, _only_if_declared(position)))
        except MmccError as problem:
            notes.append(f"The steps so far have no guarantee of their own: {problem}")
    if not amplified(run.strategy, run.sampling):
        kind = type(run.sampling).__name__
        notes.append(
            f"No amplification is proven for training with {kind}, so sampling is not counted: "
            "the numbers are unamplified."
        )
    recorded = content["ledger"].get("run")
    if recorded:
        notes.append(
            f"The run is entered in a ledger as {recorded}; the report of that ledger covers all "
            "runs on the data together."
        )
    return described(
        whole,
        run.strategy,
        run.sampling,
        subject="a training run, from its checkpoint",
        title=title,
        unit=unit,
        data=data,
        clip_norm=run.max_grad_norm,
        file=file,
        seconds=seconds,
        units=units,
        groups=groups,
        signed=Signed(model, commit, author, tuning),
        progress=progress,
        facts=(
            *_run_facts(run, position),
            _file_fact(Path(path)),
            *_generator_facts(content["noise"].get("generator")),
        ),
        claims=claims,
        assumptions=of_loops(),
        notes=notes,
    )


def _content(path: str | Path) -> Mapping[str, Any]:
    try:
        from mmcc.training._checkpoint_file import read
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] != "torch":
            raise
        from mmcc.training import MissingPackageError

        raise MissingPackageError(
            "reading a checkpoint needs torch, which is not installed: pip install 'mmcc[train]'."
        ) from None
    return read(Path(path))[0]


def _mechanism(
    fingerprint: Mapping[str, Any], given: Strategy | None, scheme: Scheme | None, name: str
) -> Mechanism:
    """The mechanism with this fingerprint, to the last bit."""
    from mmcc.training._clipping import FLAT, Clipping
    from mmcc.training._mechanism import DIGEST, Mechanism

    if {*fingerprint} - {CLIPPING} != {*FACTS} or not all(
        isinstance(v, str) for v in fingerprint.values()
    ):
        raise _unknown(name, "its fingerprint does not have the expected entries")
    described = fingerprint["strategy"].rpartition(DIGEST)[0]
    strategy = given if given is not None else _strategy(described, name)
    decoder = fingerprint["decoder"]
    drawn = _scheme(fingerprint["sampling"], name) if scheme is None else scheme
    try:
        found = Mechanism(
            strategy,
            drawn,
            float(fingerprint["sigma"]),
            int(fingerprint["examples"]),
            float(fingerprint["max_grad_norm"]),
            None if decoder == "None" else decoder,
            fingerprint["loss_reduction"],
            Clipping.of(fingerprint.get(CLIPPING, FLAT)),
        )
    except ValueError as problem:  # MmccError is one
        raise _unknown(name, str(problem).rstrip(".")) from None
    differences = found.differences(fingerprint)
    if differences:
        hint = _HINT if given is None else "Give the strategy of the run."
        raise _unknown(name, f"its mechanism is a different one: {'; '.join(differences)}", hint)
    return found


def _strategy(described: str, name: str) -> Strategy:
    """The strategy rebuilt from its description, where that is possible."""
    try:
        made_again = {entry.python: entry for entry in TYPED.values()}
        constructor, positional, named = _call(described, tuple(made_again))
        found = made_again[constructor].make(*positional, **named)
    except (MmccError, TypeError) as problem:
        text = f"its strategy, {described}, cannot be rebuilt from its description"
        raise _unknown(name, text, _HINT) from problem
    assert isinstance(found, Strategy)
    return found


def _scheme(described: str, name: str) -> Scheme:
    """The scheme rebuilt from its description; schemes from elsewhere must be given."""
    known = {entry.class_name: entry for entry in SCHEMES.values()}
    if " with digest " in described:
        text = f"its scheme, {described}, is not one of mmcc.sampling"
        raise _unknown(name, text, "Give it: report.of_checkpoint(..., sampling=scheme).")
    try:
        constructor, positional, named = _call(described, tuple(known))
        return known[constructor].load()(*positional, **named)
    except TypeError:
        raise _unknown(name, f"{described!r} is not a sampling scheme") from None
    except MmccError as problem:
        raise _unknown(name, str(problem).rstrip(".")) from None


def _call(text: str, known: tuple[str, ...]) -> tuple[str, list[Any], dict[str, Any]]:
    """The parts of a call of a known name with literal arguments; nothing is evaluated."""
    try:
        tree = ast.parse(text, mode="eval").body
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise ValueError
        if tree.func.id not in known:
            raise ValueError
        positional = [_argument(node) for node in tree.args]
        named = {str(word.arg): _argument(word.value) for word in tree.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ParameterError(f"{text!r} is not a call of {', '.join(known)}.") from None
    return tree.func.id, positional, named


def _argument(node: ast.expr) -> Any:
    """A literal; a bare word, such as the objective of a BLT, is text."""
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def _position(content: Mapping[str, Any], steps: int, name: str) -> int:
    position = content["noise"].get("position")
    if type(position) is not int or not 0 <= position <= steps:
        raise _unknown(name, f"it has made {shown(position)} of {steps} steps")
    return position


_HINT = "Give the strategy itself: --strategy with its options or its file, or strategy= in Python."


def _unknown(
    name: str, why: str, hint: str = "Use the version of mmcc that wrote it."
) -> MmccError:
    from mmcc.training import CheckpointError

    return CheckpointError(f"no report can be made of the checkpoint {name!r}: {why}. {hint}")


def _progress_words(position: int, steps: int) -> str:
    if position == steps:
        return f"The run has made all of its {counted(steps, 'step')}."
    if position == 0:
        return f"The run has not made a step yet; {counted(steps, 'step')} are planned."
    return (
        f"The run has made {position:,} of {counted(steps, 'step')}. The guarantee that counts is "
        "that of all planned steps, wherever it stops."
    )


def _only_if_declared(position: int) -> str:
    return (
        "Holds only if it was fixed before the first step that the run would end here "
        f"(stop_after={position}). A run that stops because of what it has shown, or that "
        "continues, has the guarantee of all planned steps."
    )


def _generator_facts(name: object) -> tuple[Fact, ...]:
    from mmcc.training._randomness import DESCRIPTIONS

    known = isinstance(name, str) and name in DESCRIPTIONS
    return (Fact("Noise generator", DESCRIPTIONS[str(name)]),) if known else ()


def _file_fact(path: Path) -> Fact:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Fact("SHA-256 of the checkpoint", digest, code=True)


def _run_facts(run: Mechanism, position: int) -> tuple[Fact, ...]:
    return (
        Fact("Steps made", f"{position:,} of {run.steps:,}"),
        Fact("Examples", f"{run.examples:,}"),
        Fact("Expected batch size", f"{run.expected_batch_size:.6g}"),
        *([Fact("Decoder", str(run.decoder))] if run.decoder else []),
        Fact("Loss", f"{run.loss_reduction} over a batch"),
        Fact("Clipping", run.clipping.in_short()),
    )
