"""Layout: under which keys the object store keeps what, and how they are read back.

    buoy.json                               what this bucket is
    workflow/{run}/state.json               document, envelope and task; compare-and-swap
    workflow/{run}/log/{first_seq}.json     one commit; create-if-absent is the append, the fence and the commit point
    workflow/{run}/seg/{first}-{last}.json  the events of 256 commits once more, for readers of long logs; only added
    workflow/{run}/inbox/{number}.json      one message, with the dedupe ids of those before it; create-if-absent
    workflow/{run}/dedupe/{hash}            an earlier Buoy wrote it; not read any more
    workflow/{run}/parts/{copy}/{first_seq}.json    more events of an imported log
    active/{newest first}~{run}~{seq}       every run that has not ended; `seq` began this time of activity
    index/{newest first}~{run}~{seq}        every run that ended; `seq` not 0: its parent knows it; holds its state
    tasks/{queue}/{minute}/{due}~{run}~{version}~{kind}    work that is due from that time on
    tasks/{queue}/0-now/{since}~{run}~{version}~{kind}     work that is due whatever the clock says
    held/{runner}/{run}~{version}           work that a runner holds
    parked/{why}/{run}~{version}            a run that waits for a message; `why`: paused or waits
    wake/{run}~{number}                     a message that the run's owner has not yet seen
    living/{runner}                         the record of a runner that lives, with its last beat; compare-and-swap
    living/_poke                            changes after there is new work; only where a bucket has no pulse
    runners/{runner}.json                   the record of a runner that is gone; keeps its id taken
    gone/{newest first}~{runner}            runners that are gone
    definitions/{hash}.json                 specs, under the hash of their content; create-if-absent
    schedules/{name}.json                   when runs are started by the clock; compare-and-swap
    tokens/{id}.json                        who may ask a server, by digest; compare-and-swap
    purges/{run}                            a purge that was started; the tombstone is in the run's log

Invariant: a key of an index names the version of the truth that it is about and is never used for another one. So an
entry that the truth has passed can be deleted by anybody at any time, with no race.
Ids hold no '~' and no '/', so these separate; '~' sorts after every character of an id.
Every name that is read back is parsed strictly: a file that something else put there gives None and raises nothing, so
that an editor's copy cannot hide a run. Callers pass over it; `buoy doctor` names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote

from buoy.core.ids import RunId, RunnerId, is_run_id

MARKER = "buoy.json"
WORKFLOW = "workflow/"
TASKS = "tasks/"
WAKE = "wake/"
HELD = "held/"
PARKED, PARKED_PAUSED, PARKED_WAITS = "parked/", "parked/paused/", "parked/waits/"
ACTIVE, INDEX = "active/", "index/"
RUNNERS, GONE = "runners/", "gone/"
LIVING = "living/"
# Beside the living: one listing shows who has beaten and whether there is work. No runner has an id like this.
POKE = f"{LIVING}_poke"
FLAT = frozenset({ACTIVE, INDEX, RUNNERS, GONE})  # there is no folder in them
PURGES, SCHEDULES = "purges/", "schedules/"

# In the place of the minute; sorts before all minutes.
_AT_ONCE = "0-now"
# Microseconds until far beyond any timer; 17 digits.
_TIME_MAX_US = 10**17 - 1
# No number of ours is longer, and Python refuses to read numbers of thousands of digits.
DIGITS_MAX = 18
_NUMBERED = re.compile(r"([0-9]{12,18})\.json")


class Version(NamedTuple):
    """Which state of a run's task: the commit that last changed it, and the changes without a commit since then."""

    seq: int
    rev: int

    def __str__(self) -> str:
        return f"{self.seq:012}-{self.rev:06}"


class TaskEntry(NamedTuple):
    key: str
    due_us: int
    at_once: bool
    run_id: RunId
    version: Version
    kind: str


class HeldEntry(NamedTuple):
    key: str
    runner: RunnerId
    run_id: RunId
    version: Version


class ParkedEntry(NamedTuple):
    key: str
    paused: bool
    run_id: RunId
    version: Version


class WakeEntry(NamedTuple):
    key: str
    run_id: RunId
    number: int


class RunEntry(NamedTuple):
    """An entry of `index/` or `active/`. What follows the prefix orders and continues lists."""

    key: str
    place: str
    run_id: RunId
    seq: int

    @property
    def settled(self) -> bool:
        """Whether it says that the run ended and owes nothing to anybody."""
        return self.seq > 0 and self.key.startswith(INDEX)


def state_key(run_id: RunId) -> str:
    return f"workflow/{run_id}/state.json"


def log_prefix(run_id: RunId) -> str:
    return f"workflow/{run_id}/log/"


def log_key(run_id: RunId, first_seq: int) -> str:
    return f"{log_prefix(run_id)}{first_seq:012}.json"


def part_key(run_id: RunId, copy: str, first_seq: int) -> str:
    return f"{run_prefix(run_id)}parts/{copy}/{first_seq:012}.json"


def run_prefix(run_id: RunId) -> str:
    return f"workflow/{run_id}/"


def runs_prefix(beginning: str) -> str:
    return f"workflow/{beginning}"


def schedule_key(name: str) -> str:
    return f"{SCHEDULES}{name}.json"


def purge_key(run_id: RunId) -> str:
    return f"{PURGES}{run_id}"


def inbox_prefix(run_id: RunId) -> str:
    return f"workflow/{run_id}/inbox/"


def inbox_key(run_id: RunId, number: int) -> str:
    return f"{inbox_prefix(run_id)}{number:012}.json"


def number_of(key: str, prefix: str) -> int | None:
    """The number in the key of a commit or a message below `prefix`; None: it is none."""
    found = _NUMBERED.fullmatch(key.removeprefix(prefix)) if key.startswith(prefix) else None
    return None if found is None else int(found[1])


def numbers_of(keys: Iterable[str], prefix: str) -> list[int]:
    """The numbers of the commits or messages among these keys, in order."""
    return [number for key in keys if (number := number_of(key, prefix)) is not None]


def place(run_id: RunId, created_at: float) -> str:
    """Where a run is in lists: the newest first."""
    return f"{_TIME_MAX_US - microseconds(created_at):017}~{run_id}"


def place_of_time(at: float) -> str:
    """Before this place stand the runs that were created later than that time, behind it those from before."""
    return f"{_TIME_MAX_US - microseconds(at):017}"


def index_key(run_id: RunId, created_at: float, settled_seq: int = 0) -> str:
    return f"{INDEX}{place(run_id, created_at)}~{settled_seq:012}"


def index_keys(run_id: RunId, created_at: float, head_seq: int) -> list[str]:
    """Any of these lists a run that ended; the last one in earlier formats, for every run."""
    entry = index_key(run_id, created_at)
    return [entry, index_key(run_id, created_at, head_seq), entry.rpartition("~")[0]]


def active_key(run_id: RunId, created_at: float, seq: int) -> str:
    return f"{ACTIVE}{place(run_id, created_at)}~{seq:012}"


def run_entry(key: str) -> RunEntry | None:
    """What an entry of `index/` or `active/` says."""
    prefix = INDEX if key.startswith(INDEX) else ACTIVE
    parts = key.removeprefix(prefix).split("~")
    parts += ["0"] if prefix == INDEX and len(parts) == 2 else []
    if len(parts) != 3 or not (_digits(parts[0]) and is_run_id(parts[1]) and _digits(parts[2])):
        return None
    return RunEntry(key, f"{parts[0]}~{parts[1]}", RunId(parts[1]), int(parts[2]))


def created_at_place(last: str) -> float:
    """The time of creation that a place in a list names."""
    return (_TIME_MAX_US - int(last.partition("~")[0])) / 1e6


def queue_prefix(queue: str) -> str:
    return f"{TASKS}{quote(queue, safe='')}/"


def after_at_once(queue: str) -> str:
    """Behind it stand the entries that are due by the clock."""
    return f"{queue_prefix(queue)}{_AT_ONCE}/~"


def task_key(queue: str, due_at: float, at_once: bool, run_id: RunId, version: Version, kind: str) -> str:
    due_us = microseconds(due_at)
    part = _AT_ONCE if at_once else f"{due_us // 60_000_000:010}"
    return f"{queue_prefix(queue)}{part}/{due_us:017}~{run_id}~{version}~{kind}"


def task_entry(key: str) -> TaskEntry | None:
    folder, _, name = key.rpartition("/")
    parts = name.split("~")
    version = version_of(parts[2]) if len(parts) == 4 else None
    if version is None or not (_digits(parts[0]) and is_run_id(parts[1])):
        return None
    return TaskEntry(key, int(parts[0]), folder.endswith(_AT_ONCE), RunId(parts[1]), version, parts[3])


def work_kind(workflow: str, stack: str | None, env: str | None) -> str:
    """Tells apart what runners choose tasks by, so that they need to read only one entry of each kind."""
    text = "\0".join((workflow, *("-" if part is None else f"={part}" for part in (stack, env))))
    return blake2b(text.encode(), digest_size=8).hexdigest()


def held_prefix(runner: RunnerId) -> str:
    return f"{HELD}{runner}/"


def held_key(runner: RunnerId, run_id: RunId, version: Version) -> str:
    return f"{held_prefix(runner)}{run_id}~{version}"


def held_entry(key: str) -> HeldEntry | None:
    runner, _, name = key.removeprefix(HELD).partition("/")
    run_id, _, text = name.partition("~")
    version = version_of(text)
    if version is None or not (is_run_id(runner) and is_run_id(run_id)):
        return None
    return HeldEntry(key, RunnerId(runner), RunId(run_id), version)


def parked_key(run_id: RunId, version: Version, *, paused: bool) -> str:
    return f"{PARKED_PAUSED if paused else PARKED_WAITS}{run_id}~{version}"


def parked_entry(key: str) -> ParkedEntry | None:
    paused = key.startswith(PARKED_PAUSED)
    run_id, _, text = key.removeprefix(PARKED_PAUSED if paused else PARKED_WAITS).partition("~")
    version = version_of(text)
    return None if version is None or not is_run_id(run_id) else ParkedEntry(key, paused, RunId(run_id), version)


def wake_key(run_id: RunId, number: int) -> str:
    return f"{wake_prefix(run_id)}{number:012}"


def wake_prefix(run_id: RunId) -> str:
    return f"{WAKE}{run_id}~"


def wake_entry(key: str) -> WakeEntry | None:
    run_id, _, number = key.removeprefix(WAKE).partition("~")
    return WakeEntry(key, RunId(run_id), int(number)) if is_run_id(run_id) and _digits(number) else None


def schedule_of(key: str) -> str | None:
    """The name of the schedule in this object."""
    name = json_name(key, SCHEDULES)
    return name if is_run_id(name) else None


def purged_run_of(key: str) -> RunId | None:
    """The run whose purge was started."""
    name = key.removeprefix(PURGES)
    return RunId(name) if is_run_id(name) else None


def run_of(key: str) -> RunId | None:
    """The run that an object below `workflow/` belongs to."""
    name, mark, _ = key.removeprefix(WORKFLOW).partition("/")
    return RunId(name) if mark and is_run_id(name) else None


def definition_key(version: str) -> str:
    return f"definitions/{version}.json"


def microseconds(at: float) -> int:
    """A time as it is in keys; beyond their range all times are the same."""
    return min(int(min(max(at, 0.0), 1e11) * 1e6), _TIME_MAX_US)


def json_name(key: str, prefix: str) -> str:
    """The name of an object `{prefix}{name}.json`; empty if it has another form."""
    name = key.removeprefix(prefix)
    return name.removesuffix(".json") if name.endswith(".json") else ""


def version_of(text: str) -> Version | None:
    """The version that a key names; None: it is none."""
    seq, _, rev = text.partition("-")
    return Version(int(seq), int(rev)) if _digits(seq) and _digits(rev) else None


def _digits(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
