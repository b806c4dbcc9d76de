"""Spec interpreters: which words of a command are themselves programs, so that a value in them would be executed.

`sh -c 'echo {p}'` quotes nothing for the inner shell: whatever its quoting, a value in such a word is code. The same
holds for `eval`, `awk`, `sed`, `python -c`, `ssh HOST` and what a shell reads from a here-document or a pipe.
Invariant: these are the programs that Buoy knows. A value in the arguments of another program is that program's own.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from buoy.core.spec.words import SimpleCommand, Word, name_of

_SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "csh", "tcsh", "rbash"))
# They take a command for a shell as an option, before or after other arguments.
_WRAPPERS = frozenset(("su", "runuser", "flock", "script", "sg"))
_LANGUAGES = re.compile(r"(?:python|pypy|perl|ruby|node|nodejs|lua|php|Rscript)[0-9.]*\Z")
_EVALUATORS = frozenset(
    ("eval", "let", "[[", "trap", "alias", "unset", "read", "getopts", "declare", "typeset", "mapfile", "readarray",
     "watch", "parallel")
)  # fmt: skip
_EDITORS = re.compile(r"(?:g|m|n)?awk\Z|g?sed\Z")
# Options whose next word is a program, and those whose next word is another argument.
_SHELL_PROGRAM = re.compile(r"-[A-Za-z]*c\Z|--command\Z")
_SHELL_ARGUMENT = re.compile(r"[-+][A-Za-z]*[oO]\Z|--rcfile\Z|--init-file\Z")
_LANGUAGE_PROGRAM = re.compile(r"-[A-Za-z]*[ceEr]\Z|-p\Z|-pe\Z|--eval\Z|--print\Z")
_LANGUAGE_ARGUMENT = re.compile(r"-[WXI]\Z")
_ATTACHED = re.compile(r"-[cer]|--(?:eval|command|print|expression)=")
_EDITOR_PROGRAM = re.compile(r"-[A-Za-z]*e\Z|--expression\Z")
_EDITOR_ARGUMENT = re.compile(r"-[vFl]\Z|--(?:assign|field-separator)\Z")
_EDITOR_FILE = re.compile(r"-[A-Za-z]*f\Z|--file")
_SSH_ARGUMENT = re.compile(r"-[A-Za-z0-9]*[bcDEeFIiJLlmOopQRSWw]\Z")


def programs_in(pipeline: Sequence[SimpleCommand], values: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The values that are in a program, each with the reason why it must not be there."""
    for number, command in enumerate(pipeline):
        for word, name in _program_words(command.words):
            for place in _between(values, word.begin, word.end):
                yield place, f"in a program for {name}"
        reader = _program_reader(command.words)
        if reader is None:
            continue
        spans = list(command.bodies)
        for before in pipeline[:number]:
            spans += [*before.bodies, *((word.begin, word.end) for word in before.words)]
        for begin, end in spans:
            for place in _between(values, begin, end):
                yield place, f"in what {reader} reads as its program"


def _between(values: Sequence[int], begin: int, end: int) -> Iterator[int]:
    return iter(values[bisect_left(values, begin) : bisect_left(values, end)])


def _program_words(words: Sequence[Word]) -> Iterator[tuple[Word, str]]:
    """The words that some program executes, with the name of that program."""
    first = name_of(words)
    if first < len(words) and words[first].known in _EVALUATORS:
        yield from ((word, words[first].known) for word in words[first + 1 :])
    for place, word in enumerate(words):
        name, rest = word.known.rpartition("/")[2], words[place + 1 :]
        if name in _SHELLS or name in _WRAPPERS:
            found = _after_option(rest, _SHELL_PROGRAM, _SHELL_ARGUMENT, stops=name in _SHELLS)
        elif _LANGUAGES.match(name):
            found = _after_option(rest, _LANGUAGE_PROGRAM, _LANGUAGE_ARGUMENT, stops=True)
        elif _EDITORS.match(name):
            found = _of_editor(rest)
        elif name == "ssh":
            found = _operands(rest, _SSH_ARGUMENT)[1:]
        else:
            continue
        yield from ((each, name) for each in found)


def _after_option(
    words: Sequence[Word], program: re.Pattern[str], argument: re.Pattern[str], *, stops: bool
) -> list[Word]:
    """What comes after an option such as `-c`, or is written onto it."""
    found, skips, takes = list[Word](), False, False
    for word in words:
        if takes:
            found.append(word)
            takes = False
            if stops:
                break
        elif skips:
            skips = False
        elif program.match(word.known):
            takes = True
        elif argument.match(word.known):
            skips = True
        elif _ATTACHED.match(word.known):
            found.append(word)
        elif stops and (word.known == "-m" or not word.known.startswith(("-", "+"))):
            break  # what follows belongs to that script or module
    return found


def _of_editor(words: Sequence[Word]) -> list[Word]:
    """The programs of awk and sed: the first operand, unless options have them."""
    found = _after_option(words, _EDITOR_PROGRAM, _EDITOR_ARGUMENT, stops=False)
    if found or any(_EDITOR_FILE.match(word.known) for word in words):
        return found
    return _operands(words, _EDITOR_ARGUMENT)[:1]


def _operands(words: Sequence[Word], argument: re.Pattern[str]) -> list[Word]:
    """The words from the first one on that is no option, nor the argument of one."""
    skips = False
    for place, word in enumerate(words):
        if skips:
            skips = False
        elif argument.match(word.known):
            skips = True
        elif not word.known.startswith("-") or word.known == "-":
            return list(words[place:])
    return []


def _program_reader(words: Sequence[Word]) -> str | None:
    """The interpreter that this command starts without a program: it executes what it reads."""
    for place, word in enumerate(words):
        name, rest = word.known.rpartition("/")[2], words[place + 1 :]
        if name in _SHELLS:
            has_program = bool(_after_option(rest, _SHELL_PROGRAM, _SHELL_ARGUMENT, stops=True))
            operands = _operands(rest, _SHELL_ARGUMENT)
            reads = not operands or any(re.match(r"-[A-Za-z]*s\Z", each.known) for each in rest)
        elif _LANGUAGES.match(name):
            has_program = bool(_after_option(rest, _LANGUAGE_PROGRAM, _LANGUAGE_ARGUMENT, stops=True))
            has_program = has_program or any(each.known == "-m" for each in rest)
            operands = _operands(rest, _LANGUAGE_ARGUMENT)
            reads = not operands or operands[0].known == "-"
        else:
            continue
        if reads and not has_program:
            return name
    return None
