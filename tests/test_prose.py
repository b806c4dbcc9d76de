"""The prose of the repository: banned words and long sentences only ever become fewer."""

from __future__ import annotations

import json

import pytest

from tests.prose import BUDGET, counts, faults_in, faults_in_page


def test_no_folder_has_more_faults_than_its_budget() -> None:
    budget = json.loads(BUDGET.read_text())
    over = {
        folder: (count, budget.get(folder, 0)) for folder, count in counts().items() if count > budget.get(folder, 0)
    }
    assert not over, f"(found, allowed); list them with `python -m tests.prose FOLDER`: {over}"


def test_a_budget_that_is_not_needed_any_more_is_lowered() -> None:
    found = counts()
    under = {folder: (found.get(folder, 0), allowed) for folder, allowed in json.loads(BUDGET.read_text()).items()}
    assert all(count == allowed for count, allowed in under.values()), "run `python -m tests.prose --write`"


@pytest.mark.parametrize(
    "source",
    [
        '"""What nobody asked for."""',
        "# whoever comes first\n",
        'raise_it("the run goes on later")',
        '"""' + "word " * 26 + '"""',
    ],
)
def test_the_rule_can_fail(source: str) -> None:
    assert list(faults_in("module.py", source))


def test_a_row_of_a_table_is_no_part_of_a_sentence() -> None:
    table = "\n".join(f"name{number}   what it is for" for number in range(10))
    assert not list(faults_in("module.py", f'"""Rows.\n\n{table}\n"""'))
    assert list(faults_in("module.py", f'"""Rows.\n\n{table.replace("   ", " ")}\n"""'))


def test_the_rule_reads_pages_and_leaves_their_code_alone() -> None:
    assert [fault.line for fault in faults_in_page("page.md", "It goes on.\n```\nnobody\n```\n`nobody` may\n")] == [1]
