"""The house rules as functions from a source to complaints. `test_house_rules` applies them and shows them bite."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from .house_prose import decisions_on_prose
from .house_sql import unfixed_constants, unfixed_statements

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "buoy"

FILE_LINES_MAX = 320
FUNCTION_LINES_MAX = 45

# Exceptions, each with its reason. A test fails when one is no longer needed.
LONG_FILES = {
    "core/log/events.py": "the catalogue of payloads: declarations only, and of use only in one place",
}
LONG_FUNCTIONS: dict[str, str] = {}
ASSEMBLED_SQL = {
    "stores/sqlite/runs.py:page_of_runs": "put together out of fixed parts, one per index; no value is in it",
    "stores/sqlite/runs.py:counts": "the same parts, counted instead of listed",
}
# By file, or by file and expression.
READING_PROSE = {
    "core/log/upcasts.py": "stored events of version 1 have only the sentence; it is read here, once",
    "stores/objects/buckets/s3_answers.py": "obstore tells status and code in the text of its errors only; read here",
    "stores/objects/index/lists.py": "`query.text` is what a person searches for, not a sentence",
    "testing/crashtest/code_findings.py": "a note of the kit's own, written and read by it",
    "testing/crashtest/judge.py": "shortens for its report what the log has, and reads notes of the kit's own",
    "simulator/contents.py": "an error must name to a person what could not be undone",
    "simulator/shrink.py": "chooses the lines that a report of the simulator shows",
}
OWN_CLOCK_OR_THREADS = {
    "host/clock.py": "the adapter of the clock",
    "simulator/endurance.py": "it plays seeds in processes of their own, and drives nothing itself",
    "host/jobs/guard.py": "a process of its own that imports next to nothing; it times the grace of commands",
    "host/ids.py": "the adapter of the ids",
    "host/threads.py": "the adapter of the threads",
    "stores/sqlite/lanes.py": "a connection of SQLite belongs to one thread, which is the store's own",
    "stores/postgres/lanes.py": "each session has a daemon thread, so that a call that hangs cannot hold up the end",
    "stores/postgres/hints.py": "so has the session that listens",
    "stores/http/connection.py": "the standard library's HTTP client blocks, so each call has a thread",
    "stores/objects/buckets/folder.py": "file calls block, so the folder store has a few threads of its own",
}
WAITING_FOR_A_TIME = {
    "tests/stores/test_costs.py": "the requests of a bucket take a moment; nothing is asserted about the time",
    "tests/sim/test_kernel.py": "the simulator's own loop, where a second takes no time",
}
# A sleep of that length in a test means "never ends".
_FOR_EVER_S = 60

# What `cli` may import of the package: operations, values and words, settings, and what opens a store.
CLI_IMPORTS = (
    "buoy.cli",
    "buoy.operations",
    "buoy.core",
    "buoy.errors",
    "buoy.config",
    "buoy.wiring",
)
CLI_EXCEPTIONS = {
    "cli/serve.py": ("buoy.web", "the server is the other skin of operations, and this verb starts it"),
    "cli/crashtest.py": ("buoy.testing", "the kit that crashes workflows ships with the package"),
}
# The public names of `import buoy`.
_PUBLIC = "buoy"

# The places that commit to a store; all others get a certain outcome from them.
COMMITTING = {
    "engine/services/commits.py": "after an unclear answer it asks the store what happened",
    "engine/services/journal.py": "it begins a commit, and leaves an unclear one to `commits`",
}

_FORBIDDEN_NAMES = {"util", "utils", "common", "helper", "helpers", "base", "manager", "managers", "misc"}
_FORBIDDEN_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}
_MADE = {"__pycache__", "build", "dist", "results"}
_WRITTEN = {".py", ".md", ".toml", ".yaml", ".yml", ".sh", ".cfg"}
_SYSTEM = re.compile(
    r"time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|sleep)"
    r"|random\.(?!Random\b)\w+"
    r"|uuid\.uuid[14]"
    r"|threading\.(Thread|Timer)"
    r"|concurrent\.futures\.(\w+\.)?\w+PoolExecutor"
    r"|datetime\.datetime\.(now|utcnow|today)"
    r"|datetime\.date\.today"
)
# Written in parts, so that this file keeps the rule itself.
_MACHINE_PATH = re.compile(r"(?<![\w.:~*}])/" + r"(?:home|root|Users|work|mnt|private)" + r"/\w")


class Source(NamedTuple):
    """One file. `place` is its path below the package, or below the repository for files outside of it."""

    place: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


Rule = Callable[[Source], Iterator[str]]


def file_is_short(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > FILE_LINES_MAX and source.place not in LONG_FILES:
        yield f"{lines} lines, at most {FILE_LINES_MAX}: it wants to be two ideas"


def functions_are_short(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX and f"{source.place}:{node.name}" not in LONG_FUNCTIONS:
                yield f"{node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def module_says_what_it_is(source: Source) -> Iterator[str]:
    if source.text.strip() and not ast.get_docstring(source.tree):
        yield "1: no docstring"


def module_has_a_name_of_its_own(source: Source) -> Iterator[str]:
    for part in Path(source.place).with_suffix("").parts:
        if part.strip("_") in _FORBIDDEN_NAMES:
            yield f"'{part}' says nothing; name it after what a newcomer would look for"


def errors_are_not_swallowed(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield f"{node.lineno}: bare except"
            elif _broad(node.type) and all(_does_nothing(line) for line in node.body):
                yield f"{node.lineno}: every error is swallowed"
        if isinstance(node, ast.Call) and _dotted(node.func).endswith("suppress") and any(map(_broad, node.args)):
            yield f"{node.lineno}: every error is suppressed"


def _broad(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return any(map(_broad, node.elts))
    return _dotted(node).rpartition(".")[2] in ("Exception", "BaseException")


def _does_nothing(node: ast.stmt) -> bool:
    if isinstance(node, ast.Return):
        return node.value is None
    return isinstance(node, ast.Pass | ast.Continue | ast.Break) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def time_chance_and_threads_come_through_ports(source: Source) -> Iterator[str]:
    if source.place in OWN_CLOCK_OR_THREADS:
        return
    names = _imported(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            head, dot, rest = _dotted(node).partition(".")
            whole = names.get(head, "") + dot + rest
            if _SYSTEM.fullmatch(whole):
                yield f"{node.lineno}: {whole} belongs behind a port"


def _imported(tree: ast.Module) -> dict[str, str]:
    """Under which name a module uses which imported thing."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                found[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""


def nothing_is_executed_from_data(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
            yield f"{node.lineno}: {node.func.id} executes data"
        for module in modules:
            if module.partition(".")[0] in _FORBIDDEN_MODULES:
                yield f"{node.lineno}: {module} executes what it reads"


def sql_is_constant(source: Source) -> Iterator[str]:
    if not source.place.startswith("stores/"):
        return
    for line, function in unfixed_statements(source.tree):
        if f"{source.place}:{function}" not in ASSEMBLED_SQL:
            yield f"{line}: SQL must be a text or a constant of its module, with parameters"
    for line in unfixed_constants(source.tree):
        yield f"{line}: a constant put together out of what is none"


def nothing_is_decided_by_prose(source: Source) -> Iterator[str]:
    """Texts for people may be reworded at any time: what a program decides on is a field."""
    for line, expression in decisions_on_prose(source.tree):
        if source.place not in READING_PROSE and f"{source.place}:{expression}" not in READING_PROSE:
            yield f"{line}: decides on text for people, `{expression}`; give the fact a field of its own"


def no_path_of_one_machine(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if _MACHINE_PATH.search(line):
            yield f"{number}: a path of one machine"


def public_names_are_sorted(source: Source) -> Iterator[str]:
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and _dotted(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            if names != sorted(set(names)):
                yield f"{node.lineno}: __all__ is not sorted, or names something twice"


def cli_parses_and_renders_only(source: Source) -> Iterator[str]:
    """What a verb does is an operation, so that a server can do the same."""
    if not source.place.startswith("cli/"):
        return
    allowed = (*CLI_IMPORTS, *CLI_EXCEPTIONS.get(source.place, ())[:1])
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            named = [node.module]
        elif isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        else:
            continue
        for module in named:
            ours = module.partition(".")[0] == _PUBLIC and module != _PUBLIC
            if ours and not any(module == each or module.startswith(f"{each}.") for each in allowed):
                yield f"{node.lineno}: imports {module}; put the work into buoy.operations"


def operations_print_nothing(source: Source) -> Iterator[str]:
    """They return facts; the command line, the server and programs show them."""
    if not source.place.startswith("operations/"):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{node.lineno}: prints; return the facts"


def commits_are_certain(source: Source) -> Iterator[str]:
    """An append whose answer is lost is read back. Stores and the wrappers of tests only hand calls on."""
    if source.place in COMMITTING or source.place.startswith(("stores/", "testing/", "simulator/")):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and node.attr == "commit" and _dotted(node.value).endswith("store"):
            yield f"{node.lineno}: commits by itself; use engine/services/commits.py, or the journal in a runner"


# For the package, for every Python file, for every text file.
def tests_wait_for_conditions(source: Source) -> Iterator[str]:
    """A busy machine makes every fixed wait too short; durable sleeps of workflows are written as `buoy.sleep`."""
    if not source.place.startswith("tests/") or source.place in WAITING_FOR_A_TIME:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
            if any(each.name == "sleep" for each in node.names):
                yield f"{node.lineno}: imports sleep by its name, which hides it from this rule"
            continue
        if not isinstance(node, ast.Call) or _dotted(node.func) not in ("time.sleep", "asyncio.sleep") or not node.args:
            continue
        span = node.args[0]
        if isinstance(span, ast.Constant) and isinstance(span.value, int | float) and 0 < span.value < _FOR_EVER_S:
            yield f"{node.lineno}: waits for a fixed time; wait for a condition (tests/patience.py)"


PACKAGE_RULES: list[Rule] = [
    file_is_short,
    functions_are_short,
    module_says_what_it_is,
    module_has_a_name_of_its_own,
    errors_are_not_swallowed,
    time_chance_and_threads_come_through_ports,
    sql_is_constant,
    public_names_are_sorted,
    commits_are_certain,
    cli_parses_and_renders_only,
    operations_print_nothing,
    nothing_is_decided_by_prose,
]
PYTHON_RULES: list[Rule] = [nothing_is_executed_from_data, tests_wait_for_conditions]
TEXT_RULES: list[Rule] = [no_path_of_one_machine]


def package_sources() -> list[Source]:
    """The package and the simulator: both keep the same rules."""
    found = [Source(path.relative_to(PACKAGE).as_posix(), path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
    simulator = sorted((ROOT / "simulator").rglob("*.py"))
    return found + [Source(path.relative_to(ROOT).as_posix(), path.read_text()) for path in simulator]


def text_sources() -> list[Source]:
    """All that a person wrote: no caches, no environments, no results of runs."""
    found = []
    for folder, below, files in os.walk(ROOT):
        below[:] = sorted(each for each in below if each == ".ci" or not (each.startswith(".") or each in _MADE))
        for name in sorted(files):
            path = Path(folder, name)
            if path.suffix in _WRITTEN or path.name in ("Makefile", "run"):
                found.append(Source(path.relative_to(ROOT).as_posix(), path.read_text()))
    return found
