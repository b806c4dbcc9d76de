"""The page docs/reliability.md, made of the figures of one run."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WORDS = {
    "kill": "SIGKILL",
    "term": "SIGTERM: the process gives its run back and exits with 0",
    "stop": "SIGSTOP, then SIGCONT: processes on the same machine leave its run alone",
    "zombie": "SIGSTOP, declared dead and replaced by another machine, then SIGCONT: it is fenced and stops",
    "full": "the disk (a small tmpfs) is full to the last byte for half a second",
    "readonly": "the kernel refuses every change of a file with EROFS until the process is replaced",
}
FAULTS = {
    "crash": "crash at any moment",
    "stop": "graceful stop",
    "freeze": "process suspended",
    "damage": "document lost or damaged",
    "deploy": "other code deployed",
    "clock": "clock that jumps",
    "outage": "store unavailable for all processes",
    "cut": "store unavailable for one process",
    "silence": "heartbeats without an answer",
    "rename": "step renamed by a deploy",
}
ACTS = {
    "say": "signal sent",
    "answer": "question answered",
    "wrong": "question answered wrongly",
    "pause": "pause",
    "resume": "resume",
    "cancel": "cancel",
    "jump": "jump to a step",
    "retry": "retry of a step",
    "purge": "purge",
    "migrate": "migration to renamed steps",
}
CODES = {
    "taken_over": "taken over from a dead runner (H1)",
    "interrupted": "given back by a stopping runner (H2)",
    "resumed": "continued after a remedy",
    "recovered": "claimed with another remedy",
}

BEFORE, AFTER = "crash before ", "crash after "

HEAD = """# Reliability

{intro}

| | lost | repeated | of |
|---|---|---|---|
{summary}

{words}
"""
INTRO = (
    "How often the tests crashed Buoy, and what happened. `{command}` writes this page from the figures of one run; no",
    "figure is typed by hand. To repeat one part for as long as you like, use `make sim`, `make mutants`,",
    "`python -m tests.crash.cases` or `python -m tests.crash.storm`. Each failure comes with the command that",
    "reproduces it.",
)
LOST_AND_REPEATED = (
    "*Lost*: an acknowledged start, message or commit is missing, or a run neither ends nor waits with a reason.",
    "*Repeated*: a step with a recorded completion is executed again on its lineage. A step that was executing when",
    "its process ended may run again, with the same idempotency key. That is neither lost nor repeated, and has its",
    "own column.",
)


def page(found: Mapping[str, Any]) -> str:
    parts = (
        HEAD.format(
            intro=_text(*(line.format(command=found["command"]) for line in INTRO)),
            summary=_summary(found),
            words=_text(*LOST_AND_REPEATED),
        ),
        _simulator(found["simulator"]),
        _mutants(found["mutants"]),
        _cases(found["cases"]),
        _storm(found["storm"]),
    )
    return "\n".join(parts)


def _summary(found: Mapping[str, Any]) -> str:
    sim, cases, storm = found["simulator"], found["cases"], found["storm"]
    rows = [("simulated", sim["lost"], sim["repeated"], f"{sim['runs']:,} runs in {sim['seeds']:,} seeds")]
    problems = [text for each in cases for text in each["problems"]]
    again = sum(text.startswith("repeated:") for text in problems)
    struck = sum(each["struck"] for each in cases)
    rows.append(("real processes, at named points", len(problems) - again, again, f"{struck:,} processes struck"))
    for each in storm:
        rows.append((f"storm on {each['store']}", each["lost"], each["repeated"], f"{each['runs']:,} runs"))
    return "\n".join(f"| {name} | {lost} | {repeated} | {of} |" for name, lost, repeated, of in rows)


def _simulator(sim: Mapping[str, Any]) -> str:
    longest = sim["longest"]
    points = sum(count for name, count in sim["faults"].items() if name.startswith("crash"))
    broken = [f"    {command}" for command in sim["broken"]]
    kept = "Every promise was kept." if not broken else "**Promises were broken:**\n\n" + "\n".join(broken)
    told = _text(
        f"{sim['seeds']:,} seeds, alternating between the object layout and SQLite: {sim['runs']:,} runs with",
        f"{sim['events']:,} events in {_days(sim['virtual_s'])} of simulated time. Processes crashed",
        f"at {points:,} points.",
    )
    story = _text(
        f"The longest simulation: {longest['runs']} runs, {longest['events']:,} events and",
        f"{_minutes(longest['virtual_s'])} in",
        f"{longest['turns']:,} turns. This command plays it again:",
    )
    return f"""## Simulated

{told}

{kept}

{story}

    {longest["command"]}

{_table(("fault", "times"), _named(_others(sim["faults"]), FAULTS))}

{_table(("call of the store", "crashed before it", "crashed after it"), _by_call(sim["faults"]))}

{_table(("what people did", "times"), _named(sim["acts"], ACTS))}

{_table(("recovery", "times"), _named(sim["recoveries"], CODES))}
"""


def _others(faults: Mapping[str, int]) -> dict[str, int]:
    """Faults that are no crash at a call of the store."""
    return {name: count for name, count in faults.items() if not name.startswith((BEFORE, AFTER))}


def _by_call(faults: Mapping[str, int]) -> list[tuple[str, int, int]]:
    calls = {name.removeprefix(BEFORE).removeprefix(AFTER) for name in faults if name.startswith((BEFORE, AFTER))}
    return [(f"`{call}`", faults.get(BEFORE + call, 0), faults.get(AFTER + call, 0)) for call in sorted(calls)]


def _mutants(rows: Sequence[Mapping[str, Any]]) -> str:
    seeds = [row for row in rows if "seed" in row]
    tests = [f"`{row['mutant']}`" for row in rows if "test" in row]
    found = sum(row["seed"] is not None for row in seeds)
    lines = [
        (row["mutant"], row["store"], "**not found**" if row["seed"] is None else row["seed"], row["rule"] or "")
        for row in seeds
    ]
    told = _text(
        f"{len(rows)} bugs break one promise each, on purpose. The simulator found {found} of {len(seeds)}: it plays",
        "the seed that is known to show the bug first, and others after it. A rule of this bug must report it, and the",
        f"same seed must keep all rules without the bug. No seed is known for the other {len(tests)}; each has a test",
        f"that finds it: {', '.join(tests)}.",
    )
    return f"""## Planted bugs

{told}

{_table(("bug", "on", "shown by seed", "found by the rule"), lines)}
"""


def _cases(cases: Sequence[Mapping[str, Any]]) -> str:
    kinds: dict[str, Counter[str]] = {name: Counter() for name in WORDS}
    places, recovered = set(), Counter[str]()
    for each in cases:
        kind, _, point = each["case"].partition(": ")
        store, _, fault, phase = kind.split()
        places.add((store, phase, point))
        kinds[fault].update(cases=1, struck=each["struck"], again=each.get("again", 0), bad=bool(each["problems"]))
        recovered.update(each.get("recoveries", {}))
    left_out = [name for name, counts in kinds.items() if not counts["cases"]]
    without = f" Not possible on the machine of this run: {', '.join(left_out)}." if left_out else ""
    rows = [
        (name, WORDS[name], counts["cases"], counts["struck"], counts["again"], counts["bad"])
        for name, counts in kinds.items()
        if counts["cases"]
    ]
    head = ("fault", "what happens", "cases", "struck", "steps under way that ran again", "promises broken")
    codes = _named(dict(recovered.most_common()), CODES)
    bad = "".join(f"\n    {each['case']}: {'; '.join(each['problems'])}" for each in cases if each["problems"])
    told = _text(
        f"{len(cases):,} cases on SQLite and folder, with the policies `resume`, `restart`, `fail` and `hold`. The",
        "fault strikes before or after a store call of a process that drives a run, or of one that takes over from a",
        f"killed process: {len(places)} different points.{without} A witness outside of the store records what was",
        "executed and what the store acknowledged.",
    )
    late = _text(
        "A process that was stopped and declared dead may start one step when it wakes up, if the store had confirmed",
        "the start before. The log refuses its result, and the step has the same idempotency key as its repetition. A",
        "process that is stopped in the middle of a write keeps the lock of SQLite, or of the folder, until it wakes.",
    )
    return f"""## Real processes, at named points

{told}

{_table(head, rows)}

{_table(("recovery", "times"), codes)}
{bad}
{late}
"""


def _storm(storms: Iterable[Mapping[str, Any]]) -> str:
    rows, bad = [], []
    for each in storms:
        rows.append(
            (
                each["store"], each["kills"], each["struck"].get("term", 0), each["struck"].get("stop", 0),
                each["runs"], each["steps"], each["taken_over"], each["again"], each["lost"], each["repeated"],
                _seconds(each["p50_s"]), _seconds(each["p99_s"]),
            )
        )  # fmt: skip
        bad += [f"    {each['store']}: {text}" for text in each["problems"]]
    head = (
        "store", "SIGKILL", "SIGTERM", "SIGSTOP", "runs", "steps", "runs taken over", "steps under way that ran again",
        "lost", "repeated", "from kill to next step, p50", "p99",
    )  # fmt: skip
    told = _text(
        "Workers under load are killed at random, and a new one replaces each. *From kill to next step*: until another",
        "process executes a step of a run that the killed worker held. Recoveries during a SIGSTOP do not count.",
    )
    return f"""## The storm

{told}

{_table(head, rows)}
{"".join(f"{line}{chr(10)}" for line in bad)}"""


def _named(counts: Mapping[str, int], words: Mapping[str, str]) -> list[tuple[str, int]]:
    return [(words.get(name, name), count) for name, count in counts.items()]


def _text(*lines: str) -> str:
    return textwrap.fill(" ".join(lines), width=120, break_long_words=False, break_on_hyphens=False)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [
        head,
        ["---"] * len(head),
        *([f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def _days(seconds: float) -> str:
    return f"{seconds / 86400:.1f} days" if seconds >= 86400 else f"{seconds / 3600:.0f} hours"
