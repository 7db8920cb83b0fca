"""The functions of a loaded module: which one has a line, and how to put others in their place."""

from __future__ import annotations

import ast
import gc
from collections.abc import Collection, Iterable, Iterator
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType

from benchmarks.mutants.mutations import ORDERS, line_starts, span

RECORDER = "__gonogo_called__"
COMPARER = "__gonogo_compared__"
"""The built-in functions that `recording` calls."""


def first_line(file: str, source: bytes, line: int) -> int:
    """Return the first line of the outermost function that has a line, as its code says it."""
    codes = [
        code
        for code in _outermost(compile(source, file, "exec"))
        if code.co_firstlineno <= line <= _last_line(code)
    ]
    return max((code.co_firstlineno for code in codes), default=0)


def _last_line(code: CodeType) -> int:
    # a lambda that is a parameter's default ends before the function whose parameter it is
    inner = [_last_line(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return max([code.co_firstlineno, *inner, *(line or 0 for *_, line in code.co_lines())])


def recording(file: str, source: bytes) -> CodeType:
    """Compile a module that says what runs.

    Its functions first call RECORDER with the file and their first line. COMPARER does its
    comparisons of order, from the place, the operator's name and both sides.
    """
    tree = ast.parse(source)
    for function in _definitions(tree):
        for number, statement in enumerate(function.body):
            function.body[number] = _Compared(file, source).visit(statement)
        first = min((decorator.lineno for decorator in function.decorator_list), default=None)
        arguments: list[ast.expr] = [ast.Constant(file), ast.Constant(first or function.lineno)]
        call = ast.Expr(ast.Call(ast.Name(RECORDER, ast.Load()), arguments, []))
        function.body.insert(ast.get_docstring(function) is not None, call)
    return compile(ast.fix_missing_locations(tree), file, "exec")


def put_in_place(right: CodeType, changed: CodeType, functions: Iterable[FunctionType]) -> bool:
    """Give those functions that are of a module the code of the changed one.

    Return whether that worked: the code that runs while the module is imported has to be the same.
    """
    before, after = list(_outermost(right)), list(_outermost(changed))
    if [code.co_qualname for code in before] != [code.co_qualname for code in after]:
        return False
    new = {
        (code.co_qualname, code.co_firstlineno): other
        for code, other in zip(before, after, strict=True)
    }
    is_replaced = False
    for function in functions:
        code = function.__code__
        if code.co_filename == right.co_filename:
            other = new.get((code.co_qualname, code.co_firstlineno), code)
            if other.co_freevars != code.co_freevars:
                return False
            function.__code__ = other
            is_replaced = True
    return is_replaced


def functions_of(files: Collection[str]) -> list[FunctionType]:
    """Return the functions of this process whose code is from some files."""
    gc.unfreeze()  # the frozen ones are in no list
    things = gc.get_objects()
    gc.freeze()
    functions = (thing for thing in things if isinstance(thing, FunctionType))
    return [function for function in functions if function.__code__.co_filename in files]


def _outermost(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of the functions of a module and of its classes, without those inside."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & CO_OPTIMIZED:
                yield constant
            else:
                yield from _outermost(constant)


def _definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the definitions of the same functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        else:
            yield from _definitions(child)


class _Compared(ast.NodeTransformer):
    """Puts a call of COMPARER in the place of each comparison of order."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._starts = file, line_starts(source)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Return the call; chains of comparisons stay."""
        start, end = span(self._starts, node)
        self.generic_visit(node)
        if len(node.ops) > 1 or type(node.ops[0]) not in ORDERS:
            return node
        place = [ast.Constant(part) for part in (self._file, start, end)]
        operator = ast.Constant(ORDERS[type(node.ops[0])])
        sides = [node.left, node.comparators[0]]
        return ast.Call(ast.Name(COMPARER, ast.Load()), [*place, operator, *sides], [])
