"""The judge: from what the scenarios have shown to findings in plain words. Pure: no store, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import msgspec

from buoy.core.log import events as e
from buoy.testing.crashtest.code_findings import code_findings
from buoy.testing.crashtest.notes import COMMAND, Note
from buoy.testing.crashtest.outcomes import difference_in, failed_step_of, outcome_of
from buoy.testing.crashtest.process import RUN_ID
from buoy.testing.crashtest.report import Crash, Finding, Kind, Repeat, RunEnd
from buoy.testing.crashtest.scenario import Played

_SHOWN_MAX = 300


class _Seen(msgspec.Struct):
    """One finding while it is being put together."""

    what: str
    advice: str
    step: str | None
    points: list[str]
    variants: set[str]

    def words(self) -> str:
        more = len(self.variants) - 1
        return f"{self.what} (At other points it differs in {more} other ways.)" if more else self.what


class Judge:
    """Compares every scenario with the reference."""

    def __init__(
        self, reference: Played, policy: str = "resume", repeatable: Sequence[str] = (), allowed: Sequence[Kind] = ()
    ) -> None:
        self.reference = outcome_of(reference)
        self._policy = policy
        self._repeatable = repeatable
        self._allowed = allowed
        self._crashes: list[Crash] = []
        # By kind and subject: what was seen first, what to do, the step, and at which points.
        self._found: dict[tuple[Kind, str], _Seen] = {}
        self._repeats: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
        self._steps: dict[tuple[str, str], str] = {}
        self._commands: set[str] = set()
        self._keys_seen: set[tuple[str, str]] = set()
        self._writes = {note.number: note.text for note in reference.notes if note.what == "write"}
        self._look_at_log(reference)
        self._look_at_notes(reference, "without a crash")

    # ---- one scenario after the other

    def add(self, played: Played) -> Crash:
        assert played.point is not None
        number, phase = played.point.number, played.point.phase
        what = next((note.text for note in played.notes if note.what == "write" and note.number == number), "")
        crash = Crash(
            number, phase, what or self._writes.get(number, "?"), True, played.ended,
            _recovery_ms(played.notes), 1000 * played.real_s,
        )  # fmt: skip
        self._look_at_notes(played, crash.label)
        if phase in ("cancel", "undo"):
            self._look_at_cancel(played, crash.label)
        else:
            self._look_at_outcome(played, crash.label)
        if phase != "cancel":
            self._look_at_repeats(played, crash.label)
        self._crashes.append(crash)
        return crash

    def _find(
        self, kind: Kind, what: str, advice: str, point: str, step: str | None = None, subject: str | None = None
    ) -> None:
        """One finding per subject; a second sighting only adds its point."""
        if kind not in self._allowed:
            key = (kind, what if subject is None else subject)
            seen = self._found.setdefault(key, _Seen(what, advice, step, [], set()))
            seen.points.append(point)
            seen.variants.add(what)

    def _look_at_outcome(self, played: Played, label: str) -> None:
        outcome = outcome_of(played)
        if outcome == self.reference or self._declared(outcome):
            return
        if (difference := difference_in(played)) is not None:
            self._diverged(difference, label)
        elif played.ended == "ended":
            self._find(
                "outcome",
                f"Without a crash it is {_cut(str(self.reference))}; after one it is {_cut(str(outcome))}.",
                _advice_on(failed_step_of(played)),
                label,
                subject="the run",
            )
        else:
            self._find(
                "lost",
                f"After the crash it stays {outcome} ({played.ended}).",
                "look at what it waits for; if that was there before the crash, this is a bug of Buoy: report it",
                label,
            )

    def _declared(self, outcome: RunEnd) -> bool:
        """Whether that is what the workflow's own recovery policy asks for after a crash."""
        if self._policy == "fail":
            return outcome.status == "failed" and outcome.cause == "RecoveryRefused"
        return self._policy == "hold" and outcome.status == "paused" and outcome.cause == "hold"

    def _diverged(self, difference: str, label: str) -> None:
        self._find(
            "nondeterminism",
            f"Replayed from its log, the code did something else. First difference: {difference}.",
            "workflow code must take the same way whenever it is replayed: take the time from buoy.now(), chance from "
            "buoy.random() and buoy.uuid(), and everything else that can change from a step; sort what comes from a "
            "set, since its order is another one in every process, as is hash() of a text",
            label,
            subject="the run",
        )

    @property
    def has_diverged(self) -> bool:
        return any(kind == "nondeterminism" for kind, _ in self._found)

    def add_elsewhere(self, difference: str) -> None:
        """Fresh processes, with other hash seeds, do not all replay what was done here."""
        self._diverged(difference, "in a fresh process, with another hash seed")

    def _look_at_repeats(self, played: Played, label: str) -> None:
        ran = Counter((note.run, note.leaf, note.attempt) for note in played.notes if note.what == "body")
        facts = {(note.run, note.leaf): note for note in played.notes if note.what == "body"}
        for (run, leaf, _), times in ran.items():
            if times > 1:
                note = facts[run, leaf]
                self._repeats.setdefault((run, leaf), []).append((times, note.key, label))
                self._steps[run, leaf] = note.step
                if note.text == COMMAND:
                    self._commands.add(note.step)

    def _look_at_notes(self, played: Played, label: str) -> None:
        for found in code_findings(played.notes):
            self._find(found.kind, found.what, found.advice, label)
        done: set[tuple[str, str]] = set()
        for note in played.notes:
            match note.what:
                case "durable":
                    done.add((note.run, note.leaf))
                case "hidden":
                    done = {each for each in done if each[0] != note.run}
                case "key":
                    self._keys_seen.add((note.run, note.leaf))
                case "body" if (note.run, note.leaf) in done:
                    self._find(
                        "executed_again",
                        f"{note.leaf} had completed, durably, and its body ran once more.",
                        "this must never happen: please report it, with this workflow",
                        label,
                        note.step,
                    )
                case "swallowed" if note.caught:
                    self._swallowed(f"The code caught {note.caught}, and continued.", label)

    def _swallowed(self, what: str, label: str) -> None:
        self._find(
            "swallowed",
            what,
            "catch Exception, or the errors that you mean; code that catches asyncio.CancelledError, buoy.Cancelled or "
            "BaseException to clean up must raise it again",
            label,
        )

    def _look_at_cancel(self, played: Played, label: str) -> None:
        log = played.logs.get(RUN_ID, [])
        asked = next((event.seq for event in log if isinstance(event.body, e.CancelRequested)), None)
        outcome = outcome_of(played)
        if asked is None:
            return
        if (difference := difference_in(played)) is not None:
            self._diverged(difference, label)
        elif outcome.status == "completed":
            later = [event.body.leaf for event in log[asked:] if isinstance(event.body, e.StepStarted)]
            then = f", started {', '.join(dict.fromkeys(later))}," if later else ""
            self._swallowed(
                f"The run was asked to cancel; its code caught that{then} and completed as if nothing was.", label
            )
        elif played.ended != "ended":
            self._swallowed(f"The run was asked to cancel, and does not end: {played.ended}.", label)

    def _look_at_log(self, played: Played) -> None:
        for log in played.logs.values():
            for event in log:
                error = getattr(event.body, "error", None)
                if isinstance(error, e.ErrorInfo) and error.type == "NotJson":
                    self._find(
                        "not_json",
                        f"{error.message.partition(': NotJson: ')[2] or error.message}.",
                        "return what JSON can hold (dict, list, str, int, float, bool, None), or a dataclass, a "
                        "msgspec.Struct or a pydantic model that the function names as its result",
                        "without a crash",
                        getattr(event.body, "leaf", None),
                        subject=error.message.partition("the result of ")[2].partition(" cannot")[0],
                    )
                if isinstance(event.body, e.WorkflowFailed) and event.body.error.type == "NotAllowedHere":
                    self._not_allowed(event.body.error.message, played)
        if (difference := difference_in(played)) is not None:
            self._diverged(difference, "without a crash, when the code was woken")
        elif self.reference.status == "paused":
            advice = "look at the reason; if it is an internal error, this is a bug of Buoy: report it"
            self._find("lost", f"Even without a crash it stays {self.reference}.", advice, "without a crash")

    def _not_allowed(self, message: str, played: Played) -> None:
        if any(note.what == "swallowed" for note in played.notes):
            return  # that is why, and it is a finding of its own
        self._find(
            "not_allowed",
            f"Even without a crash it fails: {message}.",
            "change what the message names; whatever touches the world outside (files, sockets, threads, processes) "
            "belongs in a step",
            "without a crash",
        )

    # ---- in the end

    def crashes(self) -> tuple[Crash, ...]:
        """Every scenario, not fine if any finding was seen there."""
        bad = {point for finding in self.findings() for point in finding.points}
        return tuple(msgspec.structs.replace(crash, ok=crash.label not in bad) for crash in self._crashes)

    def repeats(self) -> tuple[Repeat, ...]:
        return tuple(
            Repeat(
                self._steps[where], where[1], max(times for times, _, _ in seen), seen[0][1],
                where in self._keys_seen, tuple(dict.fromkeys(label for _, _, label in seen)),
            )
            for where, seen in self._repeats.items()
        )  # fmt: skip

    def findings(self) -> tuple[Finding, ...]:
        found = [
            Finding(kind, seen.words(), seen.advice, seen.step, tuple(dict.fromkeys(seen.points)))
            for (kind, _), seen in self._found.items()
        ]
        return (*found, *self._acting_twice())

    def _acting_twice(self) -> Iterator[Finding]:
        if "repeated" in self._allowed:
            return
        careless: dict[str, list[Repeat]] = {}
        for repeat in self.repeats():
            if not repeat.looks_at_key and not any(fnmatchcase(repeat.step, each) for each in self._repeatable):
                careless.setdefault(repeat.step, []).append(repeat)
        for step, repeats in careless.items():
            first = repeats[0]
            what, key = "Step", "buoy.idempotency_key()"
            if step in self._commands:
                what, key = "The command of step", "$BUOY_IDEMPOTENCY_KEY"
            yield Finding(
                "repeated",
                f"{what} {step} ran {first.executions} times under one idempotency key ({first.key}), because the "
                "process died before its result was durable, and it never looked at that key: what it does outside is "
                f"done {first.executions} times.",
                f"hand {key} to what it calls, which can then recognise the second call; if "
                f"doing it twice does no harm, say so: --repeatable {step} (repeatable=['{step}'] in pytest)",
                step,
                tuple(dict.fromkeys(point for repeat in repeats for point in repeat.points)),
            )


def _recovery_ms(notes: Sequence[Note]) -> float | None:
    began = next((note.real_s for note in notes if note.what == "process" and note.process == 2), None)
    taken = (note.real_s for note in notes if note.what == "claimed" and note.process == 2)
    first = next(taken, None)
    return None if began is None or first is None else 1000 * (first - began)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def _advice_on(failed_step: str | None) -> str:
    """What to do about an outcome that depends on the crash."""
    outside = (
        "look for what the workflow takes from outside of its arguments and its steps (a global, a file, the "
        "environment), and move it into a step"
    )
    if failed_step is None:
        return outside
    return (
        f"step {failed_step} failed there: if it fails by chance, give it a canned result (--stub {failed_step}=JSON, "
        f"stubs={{...}} in pytest); else {outside}"
    )
