"""What a command loads before it does anything: only what it needs. Counted in modules, not in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from .conftest import FLOWS, Buoy

_LOADED = """
import json, sys
from buoy.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted(sys.modules)]))
"""
# What takes long to load, and only commands that drive or explain runs need.
_ENGINE = {
    "buoy.public",
    "buoy.wiring.app",
    "buoy.wiring.local_worker",
    "buoy.engine.client.client",
    "buoy.engine.process.runner",
    "buoy.engine.spec.workflow",
}
_HEAVY = {"yaml", "jsonschema", "referencing", "rich.console", "rich.live", "pydantic", "buoy.testing"}


def loaded(*words: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", _LOADED, *words], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


def test_the_version_is_told_by_click_alone() -> None:
    found = loaded("--version")
    unwanted = {"asyncio", "msgspec", "sqlite3", "rich", "buoy.core", "buoy.config"} | _ENGINE | _HEAVY
    assert not found & unwanted


def test_a_list_is_made_without_the_engine(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    found = loaded("ps", "--store", buoy.store)
    assert "buoy.stores.sqlite.store" in found
    assert not found & (_ENGINE | _HEAVY | {"buoy.stores.objects.folder_store", "buoy.recovery.surroundings"})


def test_a_command_loads_no_other_command(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    found = {each for each in loaded("ps", "--store", buoy.store) if each.startswith("buoy.cli.")}
    others = {"run", "worker", "crashtest", "doctor", "sweeper", "schedule", "transfer", "why", "show"}
    assert not found & {f"buoy.cli.{each}" for each in others}


def test_the_public_names_are_there_and_nothing_else() -> None:
    script = (
        "import sys, buoy\n"
        "assert 'buoy.engine' not in sys.modules\n"
        "shown = {each for each in dir(buoy) if not each.startswith('__')}\n"
        "assert shown == set(buoy.__all__), shown ^ set(buoy.__all__)\n"
        "from buoy import public\n"
        "assert public.__all__ == buoy.__all__\n"
        "assert all(getattr(buoy, each) is getattr(public, each) for each in buoy.__all__)\n"
        "assert {each for each in dir(buoy) if not each.startswith('__')} == set(buoy.__all__)\n"
        "try:\n    buoy.typo\nexcept AttributeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ})
    assert (done.returncode, done.stdout) == (0, "module 'buoy' has no attribute 'typo'\n"), done.stderr


def test_a_process_with_threads_of_obstore_ends_without_finalizing_them() -> None:
    """The interpreter would end those threads, which aborts the process."""
    code = (
        "import atexit, sys; from types import ModuleType; from buoy.__main__ import start\n"
        "atexit.register(print, 'finalized'); sys.modules['obstore'] = ModuleType('obstore')\n"
        "sys.argv = ['buoy', '--version']; start()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("buoy") and "finalized" not in done.stdout
