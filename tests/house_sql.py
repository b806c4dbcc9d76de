"""The rule about SQL: a statement is known when its module is read; only its parameters come later.

Constant are texts, names in capitals, what is put together of nothing else, and local names bound to nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_CALLS = ("execute", "executemany", "executescript")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def unfixed_statements(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and enclosing function of each call whose statement is not constant."""
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _CALLS:
            around = [each for each in functions if any(node is call for node in ast.walk(each))]
            inner = max(around, key=lambda each: each.lineno, default=None)
            if call.args and not is_constant(call.args[0], inner):
                yield call.lineno, inner.name if inner else ""


def unfixed_constants(tree: ast.Module) -> Iterator[int]:
    """Lines of module constants that are put together out of something else than constants."""
    for statement in tree.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        if any(_is_text_work(part) and not is_constant(part, None) for part in ast.walk(statement.value)):
            yield statement.lineno


def _is_text_work(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "join", "replace")
    text = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(node))
    return text and isinstance(node, ast.JoinedStr | ast.BinOp)


def is_constant(node: ast.AST, function: Function | None) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.isupper():
            return True
        case ast.Name(id=name) if function is not None:
            return _bound_to_constants(name, function)
        case ast.IfExp(body=body, orelse=orelse):
            return is_constant(body, function) and is_constant(orelse, function)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
            return is_constant(left, function) and is_constant(right, function)
        case ast.JoinedStr(values=values) | ast.Tuple(elts=values) | ast.List(elts=values):
            return all(is_constant(value, function) for value in values)
        case ast.FormattedValue(value=value) | ast.Subscript(value=value):
            return is_constant(value, function)
        case ast.Call(func=ast.Name(id="len"), args=[measured]):
            return is_constant(measured, function)
        case _:
            return False


def _bound_to_constants(name: str, function: Function) -> bool:
    found = False
    for node in ast.walk(function):
        match node:
            case ast.arg(arg=other) if other == name:
                return False
            case ast.Assign(targets=[ast.Name(id=other)], value=value) if other == name:
                sources: list[ast.AST] = [value]
            case ast.AugAssign(target=ast.Name(id=other)) | ast.NamedExpr(target=ast.Name(id=other)) if other == name:
                return False
            case ast.For(target=target, iter=items) | ast.comprehension(target=target, iter=items):
                sources = list(_loop_values(name, target, items))
            case _:
                continue
        found = found or bool(sources)
        if not all(is_constant(source, function) for source in sources):
            return False
    return found


def _loop_values(name: str, target: ast.expr, items: ast.expr) -> Iterator[ast.AST]:
    """What a loop binds to `name`: the items, or one column of a written table."""
    if isinstance(target, ast.Name) and target.id == name:
        yield items
    if isinstance(target, ast.Tuple):
        for column, part in enumerate(target.elts):
            if isinstance(part, ast.Name) and part.id == name:
                rows = items.elts if isinstance(items, ast.Tuple | ast.List) else []
                table = [row.elts[column] for row in rows if isinstance(row, ast.Tuple | ast.List)]
                yield from table or [items]
