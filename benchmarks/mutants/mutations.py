"""The mutations of a module: each changes one comparison, operator, guard, constant or call.

Code that only words things is left alone: raised errors, log lines, texts. So is `flush`, which a
session does by itself before it reads and when it commits; a product whose sign alone counts, since
a quotient has the same; and a float below TINY, which keeps a division from 0 whatever its size.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
ORDERS: dict[type[ast.AST], str] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
"""The operators of order, with their functions in the module `operator`."""
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
SCALE = 1000
"""A float is multiplied by this: the usual mistake of units."""
TINY = 1e-100
LOGS = ("log", "logger", "logging")


@dataclass(frozen=True)
class Mutation:
    """One change of a module: the piece of its bytes from `start` to `end`."""

    line: int
    start: int
    end: int
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        """Return the changed module."""
        return source[: self.start] + self.after.encode() + source[self.end :]

    def __str__(self) -> str:
        return f"{_short(self.before)}  ->  {_short(self.after)}"


def mutations(source: bytes) -> list[Mutation]:
    """Return every mutation of a module's functions, in the order of its lines."""
    starts = line_starts(source)
    mutants = []
    for node in _functions(ast.parse(source)):
        for changed in _changes(node):
            start, end = span(starts, node)
            before, after = source[start:end].decode(), ast.unparse(changed)
            if isinstance(node, ast.expr):
                after = f"({after})"
            mutants.append(Mutation(node.lineno, start, end, before, after))
    return sorted(mutants, key=lambda mutant: (mutant.start, mutant.end, mutant.after))


def line_starts(source: bytes) -> list[int]:
    """Return the place of each line's first byte."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def span(starts: Sequence[int], node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Return the first byte of a node in its source, and the one after its last."""
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column


def _functions(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the nodes inside functions, without those that only word something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                yield from _inside(statement)


def _inside(node: ast.AST, *, is_sign: bool = False) -> Iterator[ast.expr | ast.stmt]:
    nested = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef  # `_functions` has them itself
    if isinstance(node, nested | ast.Raise | ast.Assert | ast.JoinedStr) or _is_log(node):
        return
    if isinstance(node, ast.expr | ast.stmt) and not is_sign:
        yield node
    signs = _signs(node)
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _inside(child, is_sign=child in signs)


def _signs(node: ast.AST) -> list[ast.AST]:
    """Return the products and quotients that a comparison holds against 0."""
    match node:
        case ast.Compare(left=left, comparators=[right]):
            pairs = ((left, right), (right, left))
            return [
                side
                for side, other in pairs
                if isinstance(other, ast.Constant)
                and other.value == 0
                and isinstance(side, ast.BinOp)
                and isinstance(side.op, ast.Mult | ast.Div)
            ]
    return []


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield each changed form of this node; its children have their own."""
    match node:
        case ast.Compare(ops=[operator]) | ast.BoolOp(op=operator):
            yield _with_operator(node, operator)
        case ast.BinOp(op=operator) if type(operator) in SWAPPED and not _is_text(node):
            yield _with_operator(node, operator)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            changed = copy.deepcopy(node)
            changed.func = ast.Name(NAMES[name])
            yield changed
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)) if value == 0 or abs(value) >= TINY:
            yield ast.Constant(value * SCALE if value else 1.0)
        case ast.If(body=[ast.Raise() | ast.Return() | ast.Continue()], orelse=[]):
            yield ast.Pass()
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="flush"))):
            return
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()


def _with_operator(node: ast.Compare | ast.BoolOp | ast.BinOp, operator: ast.AST) -> ast.AST:
    changed = copy.deepcopy(node)
    swapped = SWAPPED[type(operator)]()
    if isinstance(changed, ast.Compare):
        changed.ops = [swapped]  # type: ignore[list-item]
    else:
        changed.op = swapped  # type: ignore[assignment]
    return changed


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in ast.walk(node)
    )


def _is_log(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGS
    return False


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 70 else f"{words[:67]}..."
