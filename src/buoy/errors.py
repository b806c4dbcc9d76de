"""The tree of errors. A class tells the caller what to do next, its message what was expected and what was found.

Problem
├─ UserError                 fix the input and try again; nothing was changed
│  ├─ UnknownWorkflow        no such workflow is registered here
│  ├─ UnknownRun             no such run in this store
│  ├─ UnknownQuestion        the run has no such open question; `reason` says why
│  │  └─ QuestionAnswered    the question has an answer already: the first one counts
│  ├─ BadInput               arguments, an answer or an option have the wrong form
│  │  ├─ UnknownSchedule     no such schedule in this store
│  │  └─ BadSpec             a spec file is wrong; `problems` has every place
│  ├─ NotJson                a value cannot be stored as JSON
│  ├─ TooLarge               a payload is over its limit
│  ├─ WrongState             the run's status does not allow this
│  │  ├─ InboxFull           too many messages wait to be read: send again when the run has read some
│  │  └─ RecoveryFailed      the run needs a recovery and did not get one: look at it with `buoy why`
│  └─ NotAllowedHere         the call is not possible at this place (I/O in workflow code...)
├─ Fenced                    another runner took this run over: stop, do not write again
├─ Unavailable               no answer: the write may or may not have happened; read before you retry
│  ├─ NotWritten             the store takes no write now, and has written nothing: try later
│  └─ Unclear                a request may or may not have been recorded: make it again with `key`
├─ StoreUnusable             this store cannot be used as it is; a person must act
│  └─ StoreLost              its files were removed or replaced under this process: stop, nothing can be recorded
├─ CorruptLog                the stored log breaks its own rules; nothing was changed
├─ Diverged                  the workflow's code and its log disagree (with the first difference)
├─ StepFailed                a step failed finally; seen by workflow code
│  └─ CommandFailed          a command of a spec ended badly
├─ RunFailed                 the run ended in failure; seen by who waits for its result
└─ RunCancelled              the run was cancelled; seen by who waits for its result
Cancelled      (BaseException) workflow code cancels its own run with it, and a sync workflow is cancelled by it
ContinueAsNew  (BaseException) this run ends and a successor begins with other arguments
Detached       (BaseException) this executor no longer speaks for the run; nothing can be recorded any more
Suspended      (BaseException) a sync workflow leaves its thread; it is replayed when what it waits for is there
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Problem(Exception):
    """Anything that Buoy itself raises."""


class UserError(Problem):
    """The request cannot be met as it is. Nothing was changed. Correct it and try again."""


class UnknownWorkflow(UserError):
    """No workflow of that name is registered in this process, or none is in that file."""


class UnknownRun(UserError):
    """This store has no such run."""


QuestionReason = Literal["none_open", "several_open", "answered", "withdrawn", "superseded", "never_asked"]


class UnknownQuestion(UserError):
    """The run has no such open question. `reason` is stable, for programs; the message may be reworded.

    none_open: no question is open. several_open: the answer must name one. answered: the question has an answer.
    withdrawn: the workflow stopped waiting. superseded: a rewind hid the question. never_asked: no such question.
    """

    def __init__(self, message: str, *, reason: QuestionReason = "never_asked") -> None:
        super().__init__(message)
        self.reason: QuestionReason = reason


class BadInput(UserError):
    """Arguments, an answer or an option have the wrong form."""


class UnknownSchedule(BadInput):
    """This store has no such schedule."""


class SpecProblem(NamedTuple):
    """One thing that is wrong with a spec file: where, and what was expected."""

    file: str
    line: int | None
    place: str
    text: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.place}: {self.text}"


class BadSpec(BadInput):
    """A spec was refused whole; nothing was stored. `problems` has every place (the first ones of very many)."""

    def __init__(self, problems: tuple[SpecProblem, ...], count: int | None = None) -> None:
        self.problems = problems
        self.count = len(problems) if count is None else count
        more = self.count - len(problems)
        lines = [str(each) for each in problems] + ([f"and {more} more"] if more else [])
        super().__init__("\n".join(lines))


class NotJson(UserError):
    """A value cannot be stored as JSON and read back the same."""


class TooLarge(UserError):
    """A payload is over its limit. Store the data elsewhere and pass a reference."""


class WrongState(UserError):
    """The run's status does not allow this."""


class QuestionAnswered(UnknownQuestion, WrongState):
    """The question has an answer already. The first answer counts; nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="answered")


class InboxFull(WrongState):
    """Too many messages wait to be read by the run. Nothing was sent; send again when it has read some."""


class RecoveryFailed(WrongState):
    """The run needs a recovery, and the recovery failed. The message has the error. The run was not continued."""


class NotAllowedHere(UserError):
    """Not possible at this place: I/O in workflow code, a durable call outside of a workflow..."""


class Fenced(Problem):
    """Another runner took this run over. Stop; do not write again."""


class Unavailable(Problem):
    """No answer: the write may or may not have happened. Read before you retry."""


class NotWritten(Unavailable):
    """The store takes no write now, and has written nothing: a standby, a server that cannot be reached. Try later."""


class Unclear(Unavailable):
    """A request may or may not have been recorded: the store gave no answer. Make it again with the same `key`.

    `key` is the run's id for a start (`start_as`), and the dedupe id for a signal, a jump, a retry or a migration.
    A request that is made again with its key has one effect.
    """

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.key = key


class StoreUnusable(Problem):
    """The store cannot be used as it is (not a store, read-only, newer schema, full). A person must act."""


class StoreLost(StoreUnusable):
    """The files of the store were removed or replaced while this process used them. Stop: nothing can be recorded.

    What was acknowledged before may be lost with the files.
    """


class CorruptLog(Problem):
    """The stored log breaks its own rules. Nothing was changed."""


class Diverged(Problem):
    """The workflow's code does not do what its log says it did. The message has the first difference.

    `log_leaf` is what the log has at event `seq`, `code_leaf` what the code asked for instead.
    """

    def __init__(
        self, message: str, *, log_leaf: str | None = None, code_leaf: str | None = None, seq: int | None = None
    ) -> None:
        super().__init__(message)
        self.log_leaf = log_leaf
        self.code_leaf = code_leaf
        self.seq = seq


class StepFailed(Problem):
    """A step failed finally. `except` also catches it by the original class.

    `type` names the original class, `reason` is its text, `attempts` how often it was tried. `classes` has the original
    class and its bases, as `module:name`.
    """

    def __init__(self, message: str, *, step: str = "", type: str = "", attempts: int = 1, reason: str = "") -> None:
        # Not by `super`: an error that joins the original class would run that class's constructor.
        Exception.__init__(self, message)
        self.step = step
        self.type = type
        self.attempts = attempts
        self.reason = reason
        self.classes: tuple[str, ...] = ()


class CommandFailed(StepFailed):
    """A command of a spec ended badly. `kind` as in the log's errors; `facts`: exit code, signal, memory, duration."""

    def __init__(
        self, message: str, *, type: str, kind: str, facts: dict[str, str | int | float | bool | None]
    ) -> None:
        super().__init__(message, type=type)
        self.kind = kind
        self.facts = facts


class RunFailed(Problem):
    """The run ended in failure. `type` names the class of the error that ended it.

    A parent workflow also catches the failure of its child by that class.
    """

    def __init__(self, message: str, *, run_id: str = "", type: str = "") -> None:
        Exception.__init__(self, message)  # not by `super`, as for `StepFailed`
        self.run_id = run_id
        self.type = type
        self.classes: tuple[str, ...] = ()


class RunCancelled(Problem):
    """The run was cancelled."""

    def __init__(self, message: str, *, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id


class Cancelled(BaseException):
    """Raise it in workflow code to cancel the run. A sync workflow that is cancelled sees it at its next durable call.

    Not an `Exception`: `except Exception` in workflow code must not swallow a cancellation.
    """


class ContinueAsNew(BaseException):
    """Raised by `buoy.continue_as_new`: this run ends, and a successor begins with these arguments. Never catch it."""

    def __init__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        super().__init__("the run continues as a new one")
        self.next_args = args
        self.next_kwargs = kwargs


class Detached(BaseException):
    """This executor no longer speaks for the run (fenced, evicted or stopping). Nothing more can be recorded."""


class Suspended(BaseException):
    """A sync workflow leaves its thread until what it waits for has come. Never catch it."""
