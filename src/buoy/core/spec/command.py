"""Spec command: the text of a `run:` step, with its values in the environment and never in the text.

Invariants: no shell ever reads a value as code, wherever its author wrote it. The text refers to a variable, in the
form that fits the quoting around it; the author's own text stays as it is. A place where no such form exists is
refused when a spec is read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterator, Mapping

from buoy.core.limits import VARIABLE_BYTES_MAX
from buoy.core.spec.model import DIRECTORY, Place, Spec
from buoy.core.spec.problems import shown
from buoy.core.spec.quoting import Quoting, ValueSlot, slots_of
from buoy.core.spec.template import Param, Ref, parse
from buoy.errors import BadInput

TextOf = Callable[[Param | Ref], str]

_NAME = "BUOY_VALUE_"
_FORMS: Mapping[Quoting, str] = {
    "plain": '"${%s}"',
    "double": "${%s}",
    "single": "'\"${%s}\"'",
    "heredoc": "${%s}",
    "comment": "${%s}",
}
_WHOLE_NUMBER = re.compile(r"-?[0-9]+\Z")
# No shell and none of the interpreters that Buoy knows reads more into these than the characters themselves.
_HARMLESS = re.compile(r"[A-Za-z0-9_./-]*\Z")
_ADVICE = "give it to the step under `with` and read that variable there"


def command_problems(spec: Spec) -> Iterator[tuple[Place, str]]:
    """The values in commands that stand where no shell can be kept from executing them."""
    known = {DIRECTORY, *(each.name for each in spec.parameters)}
    for number, step in enumerate(spec.steps):
        for position, action in enumerate(step.actions):
            if action.run is None or "{" not in action.run:
                continue
            place: Place = ("steps", number, "modules", position) if step.modules else ("steps", number)
            for slot in slots_of(action.run):
                # An unknown parameter is a problem of its own, and often no parameter at all.
                if isinstance(slot, ValueSlot) and (isinstance(slot.part, Ref) or slot.part.name in known):
                    yield from (((*place, "run"), text) for text in _refusal(slot))


def _refusal(slot: ValueSlot) -> Iterator[str]:
    if slot.refused is not None:
        yield f"{_written(slot)} stands {slot.refused}, where no value can be passed safely; {_ADVICE}"


def fitted_command(text: str, text_of: TextOf, taken: Container[str] = ()) -> tuple[str, dict[str, str]]:
    """The command, and the variables that it refers to. `taken`: names that the step has for others."""
    names: dict[Param | Ref, str] = {}
    variables: dict[str, str] = {}
    pieces: list[str] = []
    for slot in slots_of(text):
        if isinstance(slot, str):
            pieces.append(slot)
            continue
        value = text_of(slot.part)
        if slot.refused is not None or slot.quoting == "arithmetic":
            pieces.append(_bare(slot, value))
            continue
        name = names.get(slot.part)
        if name is None:
            name = names[slot.part] = _free_name(len(variables) + 1, taken)
            variables[name] = value
        pieces.append(_FORMS[slot.quoting] % name)
    return "".join(pieces), variables


def quoted_command(text: str, text_of: TextOf) -> str:
    """The command as it was written into logs before values went into the environment."""
    parts = parse(text).parts
    return "".join(part if isinstance(part, str) else shlex.quote(text_of(part)) for part in parts)


def check_variables(command: str, variables: Mapping[str, str]) -> None:
    """Refuses what the system can not hand to a process."""
    for name, value in (("the command", command), *variables.items()):
        what = name if value is command else f"variable {name}"
        if "\0" in value:
            raise BadInput(f"{what} has a zero byte, which no command can get; pass a file instead")
        size = len(value.encode()) + len(name)
        if size > VARIABLE_BYTES_MAX:
            limit = f"the system's limit is {VARIABLE_BYTES_MAX:,}"
            raise BadInput(f"{what} has {size:,} bytes, and {limit}; write it to a file and pass the file's name")


def _free_name(number: int, taken: Container[str]) -> str:
    name = f"{_NAME}{number}"
    while name in taken:
        name += "_"
    return name


def _bare(slot: ValueSlot, value: str) -> str:
    """A value in the text itself: a number in arithmetic, or in a spec that an older Buoy accepted."""
    if slot.quoting == "arithmetic" and slot.refused is None:
        if _WHOLE_NUMBER.match(value):
            return value
        raise BadInput(f"{_written(slot)} stands inside of $(( )): expected a whole number, found {shown(value)}")
    if _HARMLESS.match(value):
        return value
    text = f"{_written(slot)} stands {slot.refused}, where {shown(value)} could be executed as code"
    raise BadInput(f"{text}; correct the spec: {_ADVICE}")


def _written(slot: ValueSlot) -> str:
    """The value as its author wrote it."""
    part = slot.part
    if isinstance(part, Ref):
        return f"{{{{ {part.source} }}}}"
    return f"{{{part.name}:0{part.width}}}" if part.width else f"{{{part.name}}}"
