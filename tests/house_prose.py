"""The rule that no program decides on text that was written for people.

A field of these names holds a sentence: it is shown, joined and cut, never searched, split or compared. What a program
needs to know stands in a field of its own. The text of an error that was caught is such a sentence, too, and
that of a log record.
Absent on purpose: variables called `text`, which hold what a person typed or a file as often as a sentence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Fields, and variables, that hold sentences.
_FIELDS = frozenset({"detail", "message", "text", "headline", "note", "why", "sentence", "last_error", "you_can"})
_NAMES = frozenset({"detail", "headline", "why", "sentence"})
# Their `reason` is a sentence; that of a pause or of a refusal is a word for programs.
_REASONED = frozenset({"broken", "done", "finding", "found", "recovery", "seen", "told", "wanted"})
_ERRORS = ("Error", "Exception", "Problem")
# Text in, text out: a sentence stays one.
_SAME = frozenset({"lower", "upper", "casefold", "strip", "lstrip", "rstrip", "replace"})
_SEARCHES = frozenset(
    {
        *("startswith", "endswith", "find", "rfind", "index", "count", "partition", "rpartition", "split", "rsplit"),
        *("removeprefix", "removesuffix"),
    }
)
_PATTERNS = frozenset({"search", "match", "fullmatch", "findall", "finditer"})


def decisions_on_prose(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Where code decides on a sentence: the line and the expression. What a test asserts of a text decides nothing."""
    errors = set(_errors(tree))
    # The text of an error is a sentence; the error itself is matched by its class.
    caught = errors | {f"str {name}" for name in _texts(tree, errors)}
    asserted = {id(each) for node in ast.walk(tree) if isinstance(node, ast.Assert) for each in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.Match) and id(node) not in asserted and _decides(node, caught):
            shown = node.subject if isinstance(node, ast.Match) else node
            yield node.lineno, ast.unparse(shown)


def _errors(tree: ast.AST) -> Iterator[str]:
    """Names of errors: those that were caught, and parameters that are errors by their type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        elif (
            isinstance(node, ast.arg) and node.annotation is not None and ast.unparse(node.annotation).endswith(_ERRORS)
        ):
            yield node.arg


def _texts(tree: ast.AST, errors: set[str]) -> Iterator[str]:
    """Names that were given the text of an error, or a sentence."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (_is_text_of(node.value, errors) or _is_sentence(node.value)):
            yield from (each.id for each in node.targets if isinstance(each, ast.Name))


def _is_text_of(node: ast.expr, errors: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in errors
        case ast.Call(func=ast.Attribute(attr="getMessage")):
            return True  # of a log record
        case ast.JoinedStr(values=[ast.FormattedValue(value=ast.Name(id=name))]):
            return name in errors
    return False


def _is_sentence(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr != "text" and _is_prose(node, set())


def _decides(node: ast.expr | ast.Match, caught: set[str]) -> bool:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [left, *others]
            within = any(isinstance(op, ast.In | ast.NotIn) for op in ops)
            if within and _is_words(left) and any(map(_is_reason, others)):
                return True
            return (within or any(map(_is_words, sides))) and any(_is_prose(each, caught) for each in sides)
        case ast.Call(func=ast.Attribute(attr="split"), args=[], keywords=[]):
            return False  # only makes one line of it
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=args):
            searched = attr in _SEARCHES and (_is_prose(value, caught) or _is_reason(value))
            return searched or (attr in _PATTERNS and any(_is_prose(each, caught) for each in args))
        case ast.Match(subject=subject):
            return _is_prose(subject, caught)
    return False


def _is_words(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(node.value)


def _is_reason(node: ast.expr) -> bool:
    """A reason that is a word is compared as a whole, and never searched."""
    return isinstance(node, ast.Attribute) and node.attr == "reason"


def _is_prose(node: ast.expr, caught: set[str]) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=owner), attr="reason"):
            return owner in _REASONED
        case ast.Attribute(attr=attr):
            return attr in _FIELDS
        case ast.Name(id=name):
            return name in _NAMES or f"str {name}" in caught
        case ast.BoolOp(values=values):
            return any(_is_prose(each, caught) for each in values)
        case ast.Call(func=ast.Name(id="str") | ast.Attribute(attr="getMessage")) | ast.JoinedStr():
            return _is_text_of(node, caught)
        case ast.Call(func=ast.Name(id=function)):
            return function.endswith("_text")
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            return attr == "text" or (attr in _SAME and _is_prose(value, caught))
        case ast.Subscript(value=value):
            return _is_prose(value, caught)
    return False
