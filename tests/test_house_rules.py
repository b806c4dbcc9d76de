"""The house style, kept by reading the source; and every rule shown able to fail."""

from __future__ import annotations

import re

import pytest

import buoy

from . import house
from .house import PACKAGE_RULES, PYTHON_RULES, TEXT_RULES, Rule, Source, package_sources, text_sources
from .house_names import SHARED_NAMES, shared_class_names


def complaints(rules: list[Rule], sources: list[Source]) -> list[str]:
    return [f"{source.place}:{text}" for source in sources for rule in rules for text in rule(source)]


@pytest.mark.parametrize("rule", PACKAGE_RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule: Rule) -> None:
    assert complaints([rule], package_sources()) == []


def python_sources() -> list[Source]:
    return [source for source in text_sources() if source.place.endswith(".py")]


@pytest.mark.parametrize("rule", PYTHON_RULES, ids=lambda rule: rule.__name__)
def test_every_python_file_keeps_the_rule(rule: Rule) -> None:
    assert complaints([rule], python_sources()) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert complaints(TEXT_RULES, text_sources()) == []


def test_there_is_something_to_judge() -> None:
    assert len(package_sources()) > 15
    places = {source.place for source in text_sources()}
    assert {"pyproject.toml", "Makefile", ".ci/run", "tests/house.py", "src/buoy/errors.py"} <= places


BAD: list[tuple[Rule, str, str]] = [
    (house.file_is_short, "x.py", "a = 1\n" * 321),
    (house.functions_are_short, "x.py", "def f():\n" + "    a = 1\n" * 45),
    (house.functions_are_short, "x.py", "class A:\n  async def f(self):\n" + "    a = 1\n" * 45),
    (house.module_says_what_it_is, "x.py", "a = 1\n"),
    (house.module_has_a_name_of_its_own, "engine/utils.py", ""),
    (house.module_has_a_name_of_its_own, "helpers/run.py", ""),
    (house.module_has_a_name_of_its_own, "engine/_base.py", ""),
    (house.errors_are_not_swallowed, "x.py", "try:\n  a()\nexcept:\n  raise\n"),
    (house.errors_are_not_swallowed, "x.py", "try:\n  a()\nexcept Exception:\n  pass\n"),
    (house.errors_are_not_swallowed, "x.py", "try:\n  a()\nexcept (OSError, BaseException):\n  ...\n"),
    (house.errors_are_not_swallowed, "x.py", "for a in b:\n  try:\n    a()\n  except Exception as e:\n    continue\n"),
    (house.errors_are_not_swallowed, "x.py", "def f():\n  try:\n    a()\n  except Exception:\n    return\n"),
    (house.errors_are_not_swallowed, "x.py", "import contextlib\nwith contextlib.suppress(Exception):\n  a()\n"),
    (house.errors_are_not_swallowed, "x.py", "from contextlib import suppress\nwith suppress(BaseException):\n  a()\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "import time\ntime.time()\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "import time as t\nt.monotonic()\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "from time import sleep\nsleep(1)\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "from time import sleep as nap\nwait = nap\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "import random\nrandom.random()\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "from random import choice\nchoice([1])\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "import uuid\nuuid.uuid4()\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "import threading\nthreading.Thread(target=f)\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "import threading as th\nclass A(th.Thread): ...\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "import datetime\ndatetime.datetime.now()\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "from datetime import datetime\ndatetime.now()\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "from datetime import date\ndate.today()\n"),
    (
        house.time_chance_and_threads_come_through_ports,
        "x.py",
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(1)\n",
    ),
    (house.nothing_is_executed_from_data, "x.py", "import pickle\n"),
    (house.nothing_is_executed_from_data, "x.py", "from marshal import loads\n"),
    (house.nothing_is_executed_from_data, "x.py", "import shelve as s\n"),
    (house.nothing_is_executed_from_data, "x.py", "ev" + "al('1')\n"),
    (house.nothing_is_executed_from_data, "x.py", "ex" + "ec('1')\n"),
    (house.sql_is_constant, "stores/x.py", "db.execute(f'SELECT {a}')\n"),
    (house.sql_is_constant, "stores/x.py", "db.execute('SELECT %s' % a)\n"),
    (house.sql_is_constant, "stores/x.py", "db.executemany('SELECT ' + a, [])\n"),
    (house.sql_is_constant, "stores/x.py", "def f(sql):\n  db.execute(sql)\n"),
    (house.sql_is_constant, "stores/x.py", "def f(a):\n  sql = f'SELECT {a}'\n  db.execute(sql)\n"),
    (house.sql_is_constant, "stores/x.py", "def f(a):\n  sql = 'SELECT 1'\n  sql += a\n  db.execute(sql)\n"),
    (house.sql_is_constant, "stores/x.py", "def f(a):\n  for sql in (Q, a):\n    db.execute(sql)\n"),
    (house.sql_is_constant, "stores/x.py", "def f(a):\n  for sql, b in ((Q, 1), (a, 2)):\n    db.execute(sql)\n"),
    (house.sql_is_constant, "stores/x.py", "db.execute('SELECT {}'.format(a))\n"),
    (house.sql_is_constant, "stores/x.py", "Q = f'SELECT {a}'\ndb.execute(Q)\n"),
    (house.sql_is_constant, "stores/x.py", "Q = 'SELECT ' + a\ndb.execute(Q)\n"),
    (house.sql_is_constant, "stores/x.py", "Q = ','.join(['SELECT 1'])\ndb.execute(Q)\n"),
    (house.tests_wait_for_conditions, "tests/test_x.py", "await asyncio.sleep(0.05)\n"),
    (house.tests_wait_for_conditions, "tests/test_x.py", "from asyncio import sleep\n"),
    (house.tests_wait_for_conditions, "tests/test_x.py", "import time\ntime.sleep(1)\n"),
    (house.commits_are_certain, "engine/x.py", "await client.store.commit([write])\n"),
    (house.commits_are_certain, "recovery/x.py", "await self._store.commit([write])\n"),
    (house.commits_are_certain, "cli/x.py", "commit = store.commit\n"),
    (house.cli_parses_and_renders_only, "cli/x.py", "from buoy.recovery.recover import recover_run\n"),
    (house.cli_parses_and_renders_only, "cli/terminal/x.py", "def f():\n  import buoy.engine.client.client\n"),
    (house.cli_parses_and_renders_only, "cli/x.py", "if TYPE_CHECKING:\n  from buoy.ports.store import Store\n"),
    (house.operations_print_nothing, "operations/x.py", "def f():\n  print('done')\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = leaf.id in error.message\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = 'this is v2)' not in (pause.detail or '')\n"),
    (house.nothing_is_decided_by_prose, "x.py", "_, mark, a = (pause.detail or '').rpartition('this is ')\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = _OTHER_NAME.search(detail)\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = re.match('x', event.body.detail.lower())\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = [each for each in b if each.text.startswith('pause')]\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = orphan.why == 'it has no task'\n"),
    (house.nothing_is_decided_by_prose, "x.py", "match told.headline:\n  case 'x':\n    a()\n"),
    (house.nothing_is_decided_by_prose, "x.py", "try:\n  a()\nexcept OSError as e:\n  b = 'no space' in str(e)\n"),
    (house.nothing_is_decided_by_prose, "x.py", "def f(error: OSError):\n  text = str(error)\n  a = 'full' in text\n"),
    (house.nothing_is_decided_by_prose, "x.py", "def f(error: BaseException):\n  a = _CODE.search(str(error))\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = 'dead' in finding.text()\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = finding_text(each).startswith('H1')\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = wanted.reason in tried\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = 'gate' in each.reason\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = each.reason.startswith('its task')\n"),
    (house.nothing_is_decided_by_prose, "x.py", "why = pause.detail\nb = pause.detail\na = 'x' in b\n"),
    (house.nothing_is_decided_by_prose, "x.py", "try:\n  a()\nexcept OSError as e:\n  b = 'no space' in f'{e}'\n"),
    (house.nothing_is_decided_by_prose, "x.py", "text = record.getMessage()\na = 'while dropped' in text\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = record.getMessage().startswith('run ')\n"),
    (house.no_path_of_one_machine, "x.md", "see /" + "home/me/buoy\n"),
    (house.no_path_of_one_machine, "x.py", "p = '/" + "root/x'\n"),
    (house.public_names_are_sorted, "x.py", "__all__ = ['b', 'a']\n"),
    (house.public_names_are_sorted, "x.py", "__all__ = ['a', 'a']\n"),
]


@pytest.mark.parametrize(
    ("rule", "place", "text"), BAD, ids=[f"{rule.__name__}-{n}" for n, (rule, *_) in enumerate(BAD)]
)
def test_every_rule_can_fail(rule: Rule, place: str, text: str) -> None:
    assert list(rule(Source(place, text)))


def test_every_rule_was_shown_able_to_fail() -> None:
    assert {rule for rule, _, _ in BAD} == {*PACKAGE_RULES, *PYTHON_RULES, *TEXT_RULES}


GOOD: list[tuple[Rule, str, str]] = [
    (house.cli_parses_and_renders_only, "cli/x.py", "from buoy import Client\nfrom buoy.operations import status\n"),
    (house.cli_parses_and_renders_only, "cli/crashtest.py", "from buoy.testing.crashtest import Report\n"),
    (house.module_says_what_it_is, "x.py", ""),
    (house.errors_are_not_swallowed, "x.py", "try:\n  a()\nexcept Exception as e:\n  report(e)\n"),
    (house.errors_are_not_swallowed, "x.py", "try:\n  a()\nexcept KeyError:\n  pass\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "import random\nrandom.Random(5).random()\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "clock.time.time()\nself.time.sleep(1)\n"),
    (house.time_chance_and_threads_come_through_ports, "x.py", "import threading\nthreading.Lock()\n"),
    (house.nothing_is_executed_from_data, "x.py", "db.exec('x')\nimport picklejar\n"),
    (
        house.sql_is_constant,
        "stores/x.py",
        "Q = 'SELECT 1'\ndb.execute(Q)\ndb.execute('SELECT ?', [a])\ndb.execute(m.Q)\n",
    ),
    (house.sql_is_constant, "stores/x.py", "def f(a):\n  sql = P if a else Q\n  db.execute(sql)\n"),
    (house.sql_is_constant, "stores/x.py", "def f(a):\n  for sql, b in ((Q, 1), (P, a)):\n    db.execute(sql)\n"),
    (house.sql_is_constant, "stores/x.py", "def f(a):\n  for b in ALL[a:]:\n    for q in b:\n      db.execute(q)\n"),
    (house.sql_is_constant, "stores/x.py", "P = f'{Q} LIMIT {N + 1}'\ndb.execute(f'PRAGMA x = {len(P)}')\n"),
    (house.sql_is_constant, "engine/x.py", "self.execute(work)\n"),
    (house.tests_wait_for_conditions, "tests/test_x.py", "asyncio.sleep(0)\ntime.sleep(LOOK_S)\nasyncio.sleep(3600)\n"),
    (house.commits_are_certain, "engine/x.py", "await journal.commit(write)\nrunner.store.commits\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = pause.reason == 'version' and state.cause_leaf == leaf.id\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = pause.detail or 'none'\nb = note.text != last and not each.why\n"),
    (house.nothing_is_decided_by_prose, "x.py", "a = f'{x}: {error.message}'\nb = ' '.join(found.text.split())\n"),
    (house.nothing_is_decided_by_prose, "x.py", "assert 'ghost' in orphan.why\n"),
    (house.no_path_of_one_machine, "x.md", "https://example.org/home/me and src/work/x and ~/work/x\n"),
    (house.public_names_are_sorted, "x.py", "__all__ = ['A', 'a', 'b']\n"),
]


@pytest.mark.parametrize(
    ("rule", "place", "text"), GOOD, ids=[f"{rule.__name__}-{n}" for n, (rule, *_) in enumerate(GOOD)]
)
def test_no_rule_complains_about_what_is_right(rule: Rule, place: str, text: str) -> None:
    assert list(rule(Source(place, text))) == []


EXCEPTIONS = (
    *("LONG_FILES", "LONG_FUNCTIONS", "ASSEMBLED_SQL", "READING_PROSE", "OWN_CLOCK_OR_THREADS", "COMMITTING"),
)


def test_every_exception_is_still_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    named = [name for each in EXCEPTIONS for name in getattr(house, each)]
    exceptions = {name.partition(":")[0] for name in named}
    for name in EXCEPTIONS:
        monkeypatch.setattr(house, name, {})
    named_sources = [source for source in package_sources() if source.place in exceptions]
    found = {complaint.partition(":")[0] for complaint in complaints(PACKAGE_RULES, named_sources)}
    assert exceptions <= found


def test_every_exception_from_the_rule_for_waiting_is_still_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    exceptions = set(house.WAITING_FOR_A_TIME)
    monkeypatch.setattr(house, "WAITING_FOR_A_TIME", {})
    named_sources = [source for source in python_sources() if source.place in exceptions]
    found = complaints([house.tests_wait_for_conditions], named_sources)
    assert exceptions <= {complaint.partition(":")[0] for complaint in found}


@pytest.mark.skipif(not hasattr(buoy, "__all__"), reason="the public names do not exist yet")
def test_every_public_name_is_there() -> None:
    assert [name for name in buoy.__all__ if not hasattr(buoy, name)] == []


def test_each_class_has_a_name_of_its_own() -> None:
    assert list(shared_class_names(package_sources())) == []


def test_the_rule_over_class_names_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Source(place, "class Plan:\n    pass\n") for place in ("core/a.py", "cli/b.py")]
    assert list(shared_class_names(made)) == ["Plan: core/a.py, cli/b.py"]
    form = [Source(place, "class Lane:\n    pass\n") for place in ("stores/sqlite/a.py", "stores/postgres/a.py")]
    assert list(shared_class_names(form)) == []
    exceptions = set(SHARED_NAMES)
    monkeypatch.setattr("tests.house_names.SHARED_NAMES", {})
    assert {each.partition(":")[0] for each in shared_class_names(package_sources())} == exceptions


def test_names_of_tests_are_sentences() -> None:
    """Three words at least: `test_codec_2` says nothing when it fails."""
    names = [
        f"{source.place}: {name}"
        for source in text_sources()
        if source.place.startswith("tests/") and "/test_" in source.place
        for name in re.findall(r"^(?:async )?def (test_\w+)", source.text, re.MULTILINE)
        if name.count("_") < 3
    ]
    assert names == []
