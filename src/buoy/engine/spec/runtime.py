"""Runtime: what executes one leaf of a spec: a function, a command, or the telling of why neither is possible.

Invariant: the arguments of a leaf follow from the spec and the log alone; a body gets what the log has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from buoy.core.log import codec
from buoy.core.log.questions import Question, check_question
from buoy.core.spec.command import check_variables
from buoy.core.spec.model import DIRECTORY, Action, SpecStep
from buoy.core.spec.plan import Planned
from buoy.core.spec.scope import PlanScope
from buoy.core.spec.template import text_of
from buoy.engine.authoring import definitions
from buoy.engine.authoring.arguments import Arguments
from buoy.engine.authoring.declaration import Retry
from buoy.engine.services.room import Room
from buoy.engine.spec.commands import Commander, check_made, missing_files, need_files
from buoy.engine.spec.functions import Called, SpecFunctions
from buoy.errors import BadInput, NotAllowedHere, NotJson, TooLarge
from buoy.ports.host import JobSpool, Shell

# Between SIGTERM and SIGKILL. Who says that it stops in good order gets the time to do so.
_GRACE_S = 5.0
_GRACE_TERMINATES_S = 30.0


class Work(definitions.Step[..., Any]):
    """As the engine sees it: a step with a body."""

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        arguments: Arguments,
        *,
        is_async: bool,
        retry: Retry,
        timeout_s: float | None,
    ) -> None:
        self.name = name
        self.fn = fn
        self.arguments = arguments
        self.is_async = is_async
        self.retry = retry
        self.timeout_s = timeout_s
        self.compensate = None
        self.name_results()


class Prepared(msgspec.Struct, frozen=True):
    """A leaf that may begin: with a body and its arguments, or as a question."""

    work: Work | None = None
    args: msgspec.Raw = msgspec.Raw(b"null")
    question: Question | None = None


def _refuse(error: str) -> None:
    raise BadInput(error)


class JobKit(msgspec.Struct, frozen=True):
    """What this process has for jobs: room, a shell of their own, and a place for ends that the store has not."""

    room: Room
    commander: Commander
    spool: JobSpool


class SpecKit:
    """What this process has for the leaves of specs: functions that may be called, and a shell."""

    def __init__(
        self, calls: SpecFunctions | None = None, shell: Shell | None = None, stopping: asyncio.Event | None = None
    ) -> None:
        self.calls = calls or SpecFunctions()
        self._stopping = stopping or asyncio.Event()
        self._commander = None if shell is None else Commander(shell, self._stopping)
        self._run_arguments = None if self._commander is None else Arguments(self._commander.run, "a command")
        self._refusal = Arguments(_refuse, "a step")
        # What this process has for jobs of batch runs; None: it takes none.
        self.jobs: JobKit | None = None

    @property
    def slots(self) -> int:
        """How many commands of one run go at the same time."""
        return 1 if self._commander is None else self._commander.slots

    def prepare(
        self, planned: Planned, action: Action, scope: PlanScope, recorded: msgspec.Raw | None = None
    ) -> Prepared:
        """What the leaf is to do. What cannot be filled in fails the leaf, with the reason, when it begins.

        `recorded`: the arguments that the log has for this leaf already.
        """
        try:
            if action.ask is not None:
                return Prepared(question=check_question(scope.question(action)))
            if action.run is not None:
                return self._command(planned, action, scope, recorded)
            return self._call(planned, action, scope)
        except (BadInput, NotJson, TooLarge) as error:
            return self.refuse(action.id, str(error))

    def serve_jobs(self, room: Room, shell: Shell, spool: JobSpool) -> None:
        """From now on this process takes lots of jobs."""
        self.jobs = JobKit(room, Commander(shell, self._stopping), spool)

    def need_shell(self) -> tuple[Commander, Arguments]:
        if self._commander is None or self._run_arguments is None:
            raise NotAllowedHere("this process has no shell for commands of specs")
        return self._commander, self._run_arguments

    def refuse(self, name: str, why: str) -> Prepared:
        work = Work(name, _refuse, self._refusal, is_async=False, retry=Retry(), timeout_s=None)
        return Prepared(work, codec.encode({"error": why}, "a reason"))

    def _command(self, planned: Planned, action: Action, scope: PlanScope, recorded: msgspec.Raw | None) -> Prepared:
        commander, arguments = self.need_shell()
        step = planned.step
        args = command_args(planned, action, scope, recorded)
        work = Work(
            action.id if step.modules else planned.id,
            commander.run,
            arguments,
            is_async=True,
            retry=Retry(action.retries, action.backoff_s),
            timeout_s=action.timeout_s,
        )
        return Prepared(work, codec.encode(args, f"the arguments of {planned.id}"))

    def _call(self, planned: Planned, action: Action, scope: PlanScope) -> Prepared:
        assert action.call is not None
        called = self.calls.find(action.call)
        step = planned.step
        inputs = scope.files(step.inputs) if _is_first(step, action) else []
        outputs = scope.files(step.outputs) if _is_last(step, action) else []
        fn = called.fn
        if inputs or outputs:
            wrap = self._with_files_async if called.is_async else _with_files
            fn = wrap(called, str(planned.bound[DIRECTORY]), inputs, outputs)
        retry = Retry(action.retries, action.backoff_s) if action.retries or called.retry is None else called.retry
        work = Work(
            action.id if step.modules else planned.id,
            fn,
            called.arguments,
            is_async=called.is_async,
            retry=retry,
            timeout_s=called.timeout_s if action.timeout_s is None else action.timeout_s,
        )
        return Prepared(work, codec.encode(scope.inputs(action), f"the inputs of {planned.id}"))

    def _with_files_async(
        self, called: Called, directory: str, inputs: list[str], outputs: list[str]
    ) -> Callable[..., Any]:
        """As `_with_files`, for a function on the event loop: the shell looks at the disk without blocking it."""
        commander, _ = self.need_shell()

        async def calls(*args: Any, **kwargs: Any) -> Any:
            need_files(await commander.missing(directory, inputs), directory)
            found = await called.fn(*args, **kwargs)
            check_made(await commander.missing(directory, outputs), directory, {})
            return found

        return calls


def command_args(planned: Planned, action: Action, scope: PlanScope, recorded: msgspec.Raw | None) -> dict[str, object]:
    """The arguments of a command. A log of an older Buoy has its values in the text itself, and they stay there."""
    step = planned.step
    given = {name: text_of(value) for name, value in scope.inputs(action).items()}
    args: dict[str, object] = {
        "command": action.run,
        "directory": str(planned.bound[DIRECTORY]),
        "variables": given,
        "inputs": scope.files(step.inputs) if _is_first(step, action) else [],
        "outputs": scope.files(step.outputs) if _is_last(step, action) else [],
        "grace_s": _GRACE_TERMINATES_S if step.supports_termination else _GRACE_S,
    }
    if recorded is not None and "{" in (action.run or ""):
        former = {**args, "command": scope.former_command(action)}
        if former == msgspec.json.decode(recorded):
            return former
    command, values = scope.command(action)
    variables = {**given, **values}
    check_variables(command, variables)
    return {**args, "command": command, "variables": variables}


def _is_first(step: SpecStep, action: Action) -> bool:
    return step.actions[0] is action


def _is_last(step: SpecStep, action: Action) -> bool:
    return step.actions[-1] is action


def _with_files(called: Called, directory: str, inputs: list[str], outputs: list[str]) -> Callable[..., Any]:
    """The function with its files looked at before and after, in the thread that runs it."""

    def calls(*args: Any, **kwargs: Any) -> Any:
        need_files(missing_files(directory, inputs), directory)
        found = called.fn(*args, **kwargs)
        check_made(missing_files(directory, outputs), directory, {})
        return found

    return calls
