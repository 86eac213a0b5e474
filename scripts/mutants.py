"""Mutants of the accounting core: every small change that `mutation.py` may try.

In: the sources of `mmcc.accounting`.  Out: a list of changes in a fixed order, the code of a module
with one of them made, and the lines that are run only where a change may matter.

Changed: arithmetic, comparisons (at the boundary, and turned round), and/or/not, signs, numbers
(0 <-> 1, n -> n + 1), booleans, `min` and `max` and other pairs of functions, ends of slices,
infinities, returned values; statements are left out.  Not changed: texts, errors' messages,
annotations, decorators, `__all__`, representations, messages about progress.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
CORE = SOURCE / "mmcc" / "accounting"

BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
PAIRS = [
    ("min", "max"),
    ("minimum", "maximum"),
    ("floor", "ceil"),
    ("exp", "log"),
    ("expm1", "exp"),
    ("log1p", "log"),
    ("any", "all"),
    ("argmin", "argmax"),
    ("ndtr", "ndtri"),
]
CALLED = {name: other for pair in PAIRS for name, other in (pair, pair[::-1])}
CALLED |= {"exp": "expm1", "log": "log1p"}
WORDS = {"left": "right", "right": "left", "remove": "add", "add": "remove"}
Change = tuple[int, str, str, str]
"""Line, kind, before, after."""
QUIET = ("__repr__", "__str__", "__init_subclass__")


@dataclass(frozen=True)
class Mutant:
    """One change: the `index`-th of its file."""

    file: str
    index: int
    line: int
    kind: str
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.file}#{self.index}"


class Changes:
    """All changes of one syntax tree in a fixed order; each is made, handed out, and undone."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree

    def __iter__(self) -> Iterator[Change]:
        yield from self._body(self.tree, None)

    def _body(self, node: ast.AST, returns: str | None) -> Iterator[Change]:
        """Changes below a node.  `returns` is the annotation of the function around it."""
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)):
            return
        if isinstance(node, ast.FunctionDef):
            if node.name in QUIET:
                return
            returns = ast.unparse(node.returns) if node.returns else None
        known: set[str] = set()
        if isinstance(node, ast.FunctionDef):
            known = {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "ctx", "type_params", "bases"):
                continue
            if isinstance(value, ast.AST):
                yield from self._place(node, field, None, value, returns)
            elif isinstance(value, list):
                for place, child in enumerate(value):
                    if not isinstance(child, ast.AST):
                        continue
                    if field in ("body", "orelse", "finalbody"):
                        yield from self._statement(value, place, returns, known)
                    yield from self._place(node, field, place, child, returns)

    def _statement(
        self, body: list[Any], place: int, returns: str | None, known: set[str]
    ) -> Iterator[Change]:
        """The statement left out, or its value turned round."""
        statement = body[place]
        if removable(statement, known):
            yield from self._swap(body, place, ast.Pass(), "removed statement")
        if isinstance(statement, ast.Return) and not isinstance(
            statement.value, ast.Constant | None
        ):
            changed = copy.copy(statement)
            value = statement.value
            if returns in ("float", "int", "FloatArray"):
                changed.value = ast.UnaryOp(ast.USub(), value)
            elif returns == "bool":
                changed.value = ast.UnaryOp(ast.Not(), value)
            else:
                changed.value = ast.Constant(None)
            yield from self._swap(body, place, changed, "returned value")

    def _place(
        self, parent: ast.AST, field: str, place: int | None, node: ast.AST, returns: str | None
    ) -> Iterator[Change]:
        """Other expressions in the place of this one, then the changes inside it."""
        if is_union(parent, node) or is_name_list(node) or is_text(node) or is_progress(node):
            return
        box: Any = parent.__dict__ if place is None else getattr(parent, field)
        key: Any = field if place is None else place
        for other, kind in others(field, node):
            yield from self._swap(box, key, other, kind)
        yield from self._body(node, returns)

    def _swap(self, box: Any, key: Any, other: ast.AST, kind: str) -> Iterator[Any]:
        node = box[key]
        ast.copy_location(other, node)
        for child in ast.walk(other):
            if "lineno" in child._attributes and not hasattr(child, "lineno"):
                ast.copy_location(child, node)
        box[key] = other
        yield node.lineno, kind, shortened(node), shortened(other)
        box[key] = node


def removable(statement: ast.stmt, known: set[str]) -> bool:
    """Whether leaving the statement out is a fault of its own, and not a missing name."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and not is_progress(statement.value)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            again = target.id in known
            known.add(target.id)
            return again
        return isinstance(target, (ast.Subscript, ast.Attribute))
    return isinstance(statement, (ast.AugAssign, ast.Raise, ast.Break, ast.Continue))


def others(field: str, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """What an expression is replaced by, and the name of the replacement."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in BINARY:
        yield with_field(node, op=BINARY[type(node.op)]()), "arithmetic"
    elif isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in COMPARED[type(op)]:
                ops = [*node.ops[:i], other(), *node.ops[i + 1 :]]
                yield with_field(node, ops=ops), "comparison"
    elif isinstance(node, ast.BoolOp):
        joined = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield with_field(node, op=joined), "and/or"
    elif isinstance(node, ast.UnaryOp):
        yield node.operand, "unary"
    elif isinstance(node, ast.Constant):
        yield from other_constants(node)
    elif isinstance(node, ast.Call):
        yield from other_calls(node)
    elif isinstance(node, ast.Attribute) and node.attr == "inf":
        yield ast.UnaryOp(ast.USub(), node), "infinity"
    elif isinstance(node, ast.Slice):
        if node.lower is not None:
            yield with_field(node, lower=None), "slice"
        if node.upper is not None:
            yield with_field(node, upper=None), "slice"
    if field == "test" and isinstance(node, (ast.Name, ast.Call, ast.Attribute)):
        yield ast.UnaryOp(ast.Not(), node), "condition"


def other_constants(node: ast.Constant) -> Iterator[tuple[ast.AST, str]]:
    """0 <-> 1, n -> n + 1 (also for floats), True <-> False, left <-> right."""
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value), "constant"
    elif isinstance(value, (int, float)):
        one = type(value)(1)
        yield ast.Constant(one - value if value in (0, 1) else value + one), "constant"
    elif isinstance(value, str) and value in WORDS:
        yield ast.Constant(WORDS[value]), "constant"


def other_calls(node: ast.Call) -> Iterator[tuple[ast.AST, str]]:
    """`min` <-> `max` and the like; abs(x) -> x."""
    function = node.func
    if isinstance(function, ast.Name):
        if function.id in CALLED:
            yield with_field(node, func=ast.Name(CALLED[function.id], ast.Load())), "call"
        elif function.id == "abs":
            yield node.args[0], "call"
    elif isinstance(function, ast.Attribute):
        if function.attr in CALLED:
            changed = with_field(function, attr=CALLED[function.attr])
            yield with_field(node, func=changed), "call"
        elif function.attr == "abs" and node.args:
            yield node.args[0], "call"


def with_field(node: ast.AST, **fields: Any) -> Any:
    """A copy with other values in some fields."""
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def is_text(node: ast.AST) -> bool:
    """A docstring, of anything."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_union(parent: ast.AST, node: ast.AST) -> bool:
    """The `A | B` of isinstance."""
    function = parent.func if isinstance(parent, ast.Call) else None
    return isinstance(function, ast.Name) and function.id == "isinstance" and node is not function


def is_name_list(node: ast.AST) -> bool:
    """The public names."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets)


def is_progress(node: ast.AST) -> bool:
    """A message to the user about how far the work is."""
    called = node.value if isinstance(node, ast.Expr) else node
    return isinstance(called, ast.Call) and ast.unparse(called.func).endswith("progress")


def shortened(node: ast.AST) -> str:
    """The source of a node in one line."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else text[:97] + "..."


def mutants() -> list[Mutant]:
    """Every mutant of the core, file by file."""
    return [
        Mutant(file, index, *change)
        for file in files(CORE)
        for index, change in enumerate(Changes(ast.parse((SOURCE / file).read_text())))
    ]


def mutated(mutant: Mutant) -> CodeType:
    """The module with its one change."""
    path = SOURCE / mutant.file
    tree = ast.parse(path.read_text())
    for index, change in enumerate(Changes(tree)):
        if index == mutant.index:
            if change != (mutant.line, mutant.kind, mutant.before, mutant.after):
                raise SystemExit(f"{mutant.name} is another change now: the sources have changed.")
            return compile(ast.fix_missing_locations(tree), str(path), "exec")
    raise SystemExit(f"no mutant {mutant.name}.")


def module_of(file: str) -> str:
    """The name by which a file is imported."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def parsed(file: str) -> ast.Module:
    """A file's syntax tree, to be read only."""
    return ast.parse((SOURCE / file).read_text())


def files(folder: Path) -> list[str]:
    """All modules below a folder."""
    return [path.relative_to(SOURCE).as_posix() for path in sorted(folder.rglob("*.py"))]


def importers(module: str) -> set[str]:
    """The module and all modules of mmcc that import it, directly or through others."""
    uses = {}
    for file in files(SOURCE / "mmcc"):
        names: set[str] = set()
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        uses[module_of(file)] = names
    found: set[str] = set()
    more = {module}
    while more:
        found |= more
        more = {name for name, names in uses.items() if names & found} - found
    return found


@cache
def kernels() -> frozenset[str]:
    """Names of the compiled functions of the core."""
    return frozenset(
        node.name
        for file in files(CORE)
        for node in parsed(file).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(decorator) == "compiled" for decorator in node.decorator_list)
    )


def changes_machine_code(mutant: Mutant) -> bool:
    """Kernels know other kernels, and constants outside functions."""
    function = enclosing(mutant.file, mutant.line)
    return function is None or function.name in {*kernels(), "compiled"}


def seen_lines(mutant: Mutant) -> frozenset[tuple[str, int]]:
    """Lines that are run only if the mutant may matter.

    In a function: the statement's own lines.  In a compiled one: the lines that name it, or that
    name a compiled function which names it.  Outside functions: the lines that name what is set.
    """
    statement = innermost(mutant.file, mutant.line)
    function = enclosing(mutant.file, mutant.line)
    if function is None:
        return lines_naming(set_by(statement))
    if function.name in kernels():
        return lines_naming({function.name})
    lines = range(statement.lineno, header_end(statement) + 1)
    return frozenset((mutant.file, line) for line in lines)


def lines_naming(names: set[str]) -> frozenset[tuple[str, int]]:
    """Lines that name one of these, or a kernel or constant that is made with one of them.

    A kernel's own name counts as a file with a line 0, for tests that call it (`known_tests`).
    """
    lines: set[tuple[str, int]] = set()
    done: set[str] = set()
    while names - done:
        name = min(names - done)
        done.add(name)
        if name in kernels():
            lines.add((name, 0))
        for file, line in occurrences(name):
            lines.add((file, line))
            function = enclosing(file, line)
            if function is None:
                names |= set_by(innermost(file, line))
            elif function.name in kernels():
                names.add(function.name)
    return frozenset(lines)


@cache
def occurrences(name: str) -> tuple[tuple[str, int], ...]:
    """Where the core names something, imports left out."""
    return tuple(
        (file, node.lineno)
        for file in files(CORE)
        for node in ast.walk(parsed(file))
        if (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
    )


def set_by(statement: ast.stmt) -> set[str]:
    """Names that a statement gives a value."""
    if isinstance(statement, ast.Assign):
        named = [node for target in statement.targets for node in ast.walk(target)]
    else:
        named = [statement.target] if isinstance(statement, ast.AnnAssign) else []
    return {node.id for node in named if isinstance(node, ast.Name)}


def enclosing(file: str, line: int) -> ast.FunctionDef | None:
    """The innermost function around a line; its defaults belong to it."""
    found = None
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            found = node
    return found


def innermost(file: str, line: int) -> ast.stmt:
    """The smallest statement that holds a line."""
    held = [
        node
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return min(held, key=lambda node: (node.end_lineno or 0) - node.lineno)


def header_end(statement: ast.stmt) -> int:
    """The last line of a statement, or of its head if it has a body; of all of a function."""
    body: list[ast.stmt] | None = getattr(statement, "body", None)
    if body and not isinstance(statement, ast.FunctionDef):
        return max(body[0].lineno - 1, statement.lineno)
    return statement.end_lineno or statement.lineno
