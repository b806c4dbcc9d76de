"""Values in commands: in whatever quoting they stand, a shell gets them byte for byte and executes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from buoy.core.spec.command import check_variables, fitted_command
from buoy.core.spec.problems import Problems
from buoy.core.spec.quoting import ValueSlot, slots_of
from buoy.core.spec.reader import read_spec
from buoy.core.spec.template import Param, Ref, parse
from buoy.errors import BadInput
from tests.patience import PATIENCE_S

SHELLS = [shell for name in ("sh", "bash", "dash", "busybox") if (shell := shutil.which(name)) is not None]


def problems_of(command: str, **more: Any) -> list[str]:
    problems = Problems()
    steps = [{"id": "a", "run": "true"}, {"id": "b", "run": command, **more}]
    read_spec({"name": "x", "parameters": {"p": "v"}, "steps": steps}, problems)
    return [text for _, text in problems.found]


def fitted(command: str, **values: str) -> tuple[str, dict[str, str]]:
    def text_of(part: Param | Ref) -> str:
        assert isinstance(part, Param)
        return values[part.name]

    return fitted_command(command, text_of)


def output_of(shell: str, command: str, variables: dict[str, str], folder: Path) -> bytes:
    words = [shell, "sh"] if shell.endswith("busybox") else [shell]
    environment = {**os.environb, **{name.encode(): value.encode() for name, value in variables.items()}}
    done = subprocess.run(
        [*words, "-c", command], cwd=folder, env=environment, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, b""), command
    return done.stdout


SAFE = [
    ("printf %s {p}", "plain"),
    ("printf %s '{p}'", "single"),
    ("printf %s 'a'{p}", "plain"),
    ('printf %s "{p}"', "double"),
    ('printf %s "$(printf %s {p})"', "plain"),
    ('printf %s "$(printf %s "{p}")"', "double"),
    ("printf %s \"$(printf %s '{p}')\"", "single"),
    ("x=$( (printf %s {p}) ); printf %s \"$x\"", "plain"),
    ("cat <<EOF\n{p}\nEOF\n", "heredoc"),
    ("cat <<-EOF\n\t{p}\n\tEOF\n", "heredoc"),
    ("true # don't {p}", "comment"),
    ("true \\\n# don't {p}", "comment"),
    ("echo \\' {p}", "plain"),
    ('echo "\\" {p}"', "double"),
    ("echo it\\'s '{p}' # it's\necho '{p}'", "single"),
    ("case {p} in a) printf %s '{p}';; *) printf %s '{p}';; esac", "single"),
    ("f() { printf %s \"$1\"; }; f {p}", "plain"),
    ('echo ${x:-"a\'b"} {p}', "plain"),
    ("echo $(( 1 + {p} ))", "arithmetic"),
    ("sh -c 'printf %s \"$1\"' sh {p}", "plain"),
    ("env x={p} sh -c 'printf %s \"$x\"'", "plain"),
    ("python3 train.py -c {p}", "plain"),
    ("python3 -m train -c {p}", "plain"),
    ("awk -v x={p} 'BEGIN \\{ print x \\}'", "plain"),
    ("sed -n p {p}", "plain"),
    ("ssh -p 22 {p} uptime", "plain"),
    ("head -c {p} file | sort", "plain"),
    ("printf %s {p} | python3 -c 'pass'", "plain"),
    ("printf %s {p} > {p} 2>&1", "plain"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "quoting"), SAFE)
def test_the_quoting_around_a_value_is_found(command: str, quoting: str) -> None:
    last = [each for each in slots_of(command) if isinstance(each, ValueSlot)][-1]
    assert (last.quoting, last.refused) == (quoting, None)
    assert problems_of(command) == []


REFUSED = [
    ("echo `echo {p}`", "inside of backticks"),
    ('echo "`echo {p}`"', "inside of backticks"),
    ("echo ${x:-{p}}", "inside of ${ }"),
    ("echo \"${x:-'}\" {p}", "after a ${ } in double quotes"),
    ("cat <<'EOF'\n{p}\nEOF\n", "in a here-document whose end word is quoted"),
    ("cat <<\\EOF\n{p}\nEOF\n", "in a here-document whose end word is quoted"),
    ("cat <<EOF\n{p}\n", "in a here-document without its end 'EOF'"),
    ("cat <<{p}\nx\n", "without a fixed end word"),
    ("sh -c 'echo {p}'", "in a program for sh"),
    ("sh -ec \"echo '{p}'\"", "in a program for sh"),
    ("sh -c {p}", "in a program for sh"),
    ('sh -c "$(echo {p})"', "in a program for sh"),
    ("if true; then /bin/bash -o pipefail -c 'echo {p}'; fi", "in a program for bash"),
    ("timeout 5 env A=b sh -c 'echo {p}'", "in a program for sh"),
    ("find . -exec sh -c 'echo {p}' \\;", "in a program for sh"),
    ("su daemon -c 'echo {p}'", "in a program for su"),
    ("ssh host echo {p}", "in a program for ssh"),
    ("eval echo {p}", "in a program for eval"),
    ("x=1 eval 'echo {p}'", "in a program for eval"),
    ("trap 'rm {p}' EXIT", "in a program for trap"),
    ("[[ {p} -eq 1 ]]", "in a program for [["),
    ("python3 -c 'print(\"{p}\")'", "in a program for python3"),
    ("perl -ne 'print {p}' f", "in a program for perl"),
    ("awk '/{p}/' f", "in a program for awk"),
    ("sed -i 's/a/{p}/' f", "in a program for sed"),
    ("sed -e 's/a/{p}/' f", "in a program for sed"),
    ("echo {p} | sh", "in what sh reads as its program"),
    ("echo {p} | sort | sudo bash -s x", "in what bash reads as its program"),
    ("cat <<EOF | sh\n{p}\nEOF\n", "in what sh reads as its program"),
    ("python3 <<EOF\n{p}\nEOF\n", "in what python3 reads as its program"),
    ("(( {p} > 1 ))", "after '(('"),
    ("echo $((echo {p}) )", "that may be a subshell"),
    ("x=$(case a in a) echo {p};; esac)", "after a 'case' inside of $( )"),
    ("echo $'a\\'b' {p}", "after $'...' with a backslash"),
    ("sh -c 'echo {p}' $'\\''", "in a program for sh"),
    ("echo '{{ steps.a.result }}' | sh", "in what sh reads"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "where"), REFUSED)
def test_a_value_that_can_not_be_passed_safely_is_refused(command: str, where: str) -> None:
    (found,) = problems_of(command)
    assert where in found
    assert "give it to the step under `with`" in found


@pytest.mark.parametrize(("command", "where"), REFUSED)
def test_an_accepted_spec_of_an_older_version_runs_with_harmless_values_only(command: str, where: str) -> None:
    if "steps.a" in command:
        return
    assert fitted(command, p="data/part-1.csv") == ("".join(_literal(command, "data/part-1.csv")), {})
    with pytest.raises(BadInput, match="could be executed as code"):
        fitted(command, p="$(touch PWN)")


def _literal(command: str, value: str) -> list[str]:
    return [part if isinstance(part, str) else value for part in parse(command).parts]


def test_arithmetic_takes_whole_numbers_only() -> None:
    assert fitted("echo $(( {p} * 2 ))", p="-12") == ("echo $(( -12 * 2 ))", {})
    for wrong in ("a[$(touch PWN)]", "1.5", "", "1 2"):
        with pytest.raises(BadInput, match="expected a whole number"):
            fitted("echo $(( {p} * 2 ))", p=wrong)


def test_what_no_process_can_be_given_is_refused() -> None:
    with pytest.raises(BadInput, match="variable x has a zero byte"):
        check_variables("true", {"x": "a\0b"})
    with pytest.raises(BadInput, match=r"variable x has 200,001 bytes, and the system's limit is 131,056"):
        check_variables("true", {"x": "a" * 200_000})
    with pytest.raises(BadInput, match="the command has"):
        check_variables("a" * 200_000, {})
    check_variables("true", {"x": "a" * 130_000})


def test_variables_of_the_author_keep_their_names() -> None:
    text, variables = fitted_command("echo {p}", lambda _: "v", {"BUOY_VALUE_1": 1})
    assert (text, variables) == ('echo "${BUOY_VALUE_1_}"', {"BUOY_VALUE_1_": "v"})


# ---- any value in any quoting, by real shells

PIECES = [
    "$(touch PWN)", "`touch PWN`", "; touch PWN #", "'", '"', "\\", "\n", "$", "${HOME}", "$((1+1))", "|", "&", "*",
    "~", " ", "\t", "-n", "é", "ā", "\x7f", "\x01", "{p}", "EOF", "\nEOF\n", "!", "%s", "#", "<<EOF", ")", "(", "\r",
]  # fmt: skip


class Author:
    """Writes random commands, and knows what they print."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.values = {name: "".join(self._random.choices(PIECES, k=self._random.randint(0, 6))) for name in "pq"}

    def script(self) -> tuple[str, str]:
        lines, told = [], ""
        for _ in range(self._random.randint(1, 4)):
            text, known = self._statement()
            lines.append(text)
            told += known
        return "\n".join(lines) + "\n", told

    def _statement(self) -> tuple[str, str]:
        name = self._random.choice("pq")
        match self._random.randint(0, 7):
            case 0:
                return f"# it's \"a comment ` of {{{name}}} $(", ""
            case 1:
                body, known = self._expanding()
                return f"cat <<EOF\n{body}.\nEOF", f"{known}.\n"
            case 2:
                text, known = self._word(2)
                return f"case {{{name}}} in 'x)') ;; *) printf %s {text};; esac", known
            case 3:
                text, known = self._word(2)
                return f'v=$(printf %s. {text}); printf %s "$v" # \'', f"{known}."
            case 4:
                text, known = self._word(1)
                return f"f() \\{{ printf '%s|' \"$@\"; \\}}; f {text} '{{{name}}}'", f"{known}|{self.values[name]}|"
            case 5:
                text, known = self._word(1)
                return f"if [ {text} = {{{name}}} ] || true; then printf %s {text}; fi", known
            case 6:
                text, known = self._word(1)
                return f"(printf %s {text}) | cat", known
            case _:
                text, known = self._word(3)
                return f"printf %s {text}", known

    def _word(self, depth: int) -> tuple[str, str]:
        """A word that is not empty, so that it always counts as one."""
        parts = [self._part(depth) for _ in range(self._random.randint(1, 4))]
        return "''" + "".join(text for text, _ in parts), "".join(known for _, known in parts)

    def _part(self, depth: int) -> tuple[str, str]:
        name = self._random.choice("pq")
        match self._random.randint(0, 5 if depth else 4):
            case 0:
                return f"{{{name}}}", self.values[name]
            case 1:
                return f"'a\" {{{name}}} $('", f'a" {self.values[name]} $('
            case 2:
                text, known = self._expanding()
                return f'"\'{text}"', f"'{known}"
            case 3:
                return "\\'\\\"\\$-", "'\"$-"  # `${` would be the author's own
            case 4:
                return "x${BUOY_NOTHING:-y}", "xy"
            case _:
                text, known = self._word(depth - 1)
                return f'"<$(printf %s. {text})>"', f"<{known}.>"

    def _expanding(self) -> tuple[str, str]:
        """A text as it stands in double quotes or in a here-document."""
        text = known = ""
        for _ in range(self._random.randint(1, 3)):
            name = self._random.choice("pq")
            if self._random.random() < 0.3:
                inner, said = self._word(0)
                text, known = text + f"$(printf %s. {inner})", known + f"{said}."
            else:
                text, known = text + f" {{{name}}} \\$ '", known + f" {self.values[name]} $ '"
        return text, known


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("block", range(4))
def test_any_value_in_any_quoting_arrives_byte_for_byte_and_executes_nothing(
    shell: str, block: int, tmp_path: Path
) -> None:
    for seed in range(block * 40, block * 40 + 40):
        author = Author(seed)
        script, told = author.script()
        assert not [each for each in slots_of(script) if isinstance(each, ValueSlot) and each.refused], (seed, script)
        command, variables = fitted(script, **author.values)
        assert output_of(shell, command, variables, tmp_path) == told.encode(), (seed, command, variables)
        assert not list(tmp_path.iterdir()), (seed, command, variables)
