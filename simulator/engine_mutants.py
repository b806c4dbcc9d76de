"""Engine mutants: planted bugs of the engine and the core, each a small patch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log import state as state_module
from buoy.core.log.leaf import Leaf
from buoy.core.log.state import State
from buoy.engine.client import client as client_module
from buoy.engine.run.execution import Execution
from buoy.engine.run.ledger import Ledger
from buoy.engine.run.mailbox import ChildEnd, Mailbox
from buoy.engine.run.outbox import Outbox
from buoy.engine.run.saga import Saga
from buoy.engine.run.step_attempt import StepAttempt, Success
from buoy.engine.services.step_tasks import StepTasks
from buoy.engine.services.thread_pool import ThreadPool
from buoy.ports.records import Committed, Message, Outcome
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from simulator.world import World


class EffectsBeforeCommit(Mutant):
    """Bodies and alarms start at once, not when the commit that they rest on is durable."""

    name = "effects-before-commit"
    rules = ("effect before commit",)
    enough = 5

    def install(self, world: World) -> None:
        def at_once(ledger: Ledger, effect: Callable[[], None]) -> None:
            effect()

        self.patch(Ledger, "after_commit", at_once)


class GoOnAfterFence(Mutant):
    """A fenced writer continues as if its events were in the log."""

    name = "go-on-after-a-fence"
    rules = (
        "acknowledged before it was durable",
        "effect before commit",
        "one writer at a time",
        "executed twice at once",
    )
    enough = 40

    def install(self, world: World) -> None:
        def told(ledger: Ledger, outcome: Outcome) -> None:
            if not isinstance(outcome, Committed):
                outcome = Committed(ledger.state.head_seq - len(ledger._buffer))
            real(ledger, outcome)

        real = self.patch(Ledger, "_outcome", told)


class ReleaseWhileExecuting(Mutant):
    """A graceful stop gives runs back whose steps are under way."""

    name = "release-while-executing"
    rules = ("what executes is not given back", "executed twice at once")
    enough = 80

    def install(self, world: World) -> None:
        self.patch(Execution, "settled", property(lambda run: not run.replaying and run.ledger.idle))


class GoOnPaused(Mutant):
    """A paused run still does what its code asks for."""

    name = "paused-goes-on"
    rules = ("a paused run starts nothing",)
    enough = 60

    def install(self, world: World) -> None:
        self.patch(Execution, "delivery_paused", property(lambda run: run.stopping))


class ForgetCompletion(Mutant):
    """Code continues with the result of a step that was not recorded."""

    name = "complete-without-commit"
    rules = (
        "code and log agree",
        "a replay gives the same end",
        "executed again",
        "runs end or wait for something real",
    )
    enough = 10

    def install(self, world: World) -> None:
        number = count(1)

        def settle(run: Execution, body: Any, outcome: Any) -> None:
            if isinstance(body, e.StepCompleted) and next(number) % 6 == 0 and run._saga is None:
                run.code.deliver(body.leaf, outcome, run.state.updated_at)
            else:
                real(run, body, outcome)

        real = self.patch(Execution, "settle", settle)


class ForgetOutcome(Mutant):
    """A fold forgets some outcomes: their leaves count as open, and are taken up again."""

    name = "forget-an-outcome"
    rules = ("executed again", "the document is the folded log", "a sound log", "documents tell what runs wait for")
    enough = 20

    def install(self, world: World) -> None:
        def completed(state: State, event: e.Event, body: e.StepCompleted) -> bool | None:
            return real(state, event, body) if event.seq % 4 else None

        real = self.patch_entry(state_module.HANDLERS, e.StepCompleted, completed)


class CompleteUnrun(Mutant):
    """Some bodies are not executed, and called completed."""

    name = "complete-what-never-ran"
    rules = ("completed steps did run", "the result is the expected one", "what is undone is what was done")
    enough = 10

    def install(self, world: World) -> None:
        number = count(1)

        def start(body: StepAttempt, raw: msgspec.Raw, step_tasks: StepTasks, pool: ThreadPool | None) -> None:
            if next(number) % 9 == 0:
                body._finish(Success(msgspec.Raw(b'"n1"'), "n1"))
            else:
                real(body, raw, step_tasks, pool)

        real = self.patch(StepAttempt, "start", start)


class ConsumeTwice(Mutant):
    """The engine forgets which messages were consumed."""

    name = "consume-twice"
    rules = ("messages are consumed once", "signals have one effect", "documents tell what runs wait for")
    enough = 20

    def install(self, world: World) -> None:
        self.patch(State, "consume", lambda state, event, message: None)


class WrongQuestion(Mutant):
    """Any open question takes an answer, even if it was for another one."""

    name = "answer-the-wrong-question"
    rules = ("questions are asked once",)
    enough = 60

    def install(self, world: World) -> None:
        def question(mailbox: Mailbox, question_id: str) -> Leaf | None:
            asked = [leaf for leaf in mailbox._execution.state.open.values() if leaf.kind == "ask"]
            return asked[-1] if asked else None

        self.patch(Mailbox, "_question", question)


class AnyAnswer(Mutant):
    """Answers are not checked before they are stored."""

    name = "take-any-answer"
    rules = ("wrong answer",)
    enough = 20

    def install(self, world: World) -> None:
        self.patch(client_module, "check_answer", lambda question, answer: answer)


class SkipCompensation(Mutant):
    """What was done is not undone."""

    name = "skip-compensation"
    rules = ("effects are undone in reverse",)
    enough = 60

    def install(self, world: World) -> None:
        self.patch(Saga, "_next", lambda saga: None)


class CompensateTwice(Mutant):
    """What was undone is undone once more."""

    name = "compensate-twice"
    rules = ("effects are undone in reverse", "executed again")
    enough = 60

    def install(self, world: World) -> None:
        last: dict[str, LeafId] = {}

        def following(saga: Saga) -> LeafId | None:
            run = saga._execution.run_id
            found = real(saga)
            if found is None:
                return last.pop(run, None)
            last[run] = found
            return found  # type: ignore[no-any-return]

        real = self.patch(Saga, "_next", following)


class LieToParent(Mutant):
    """A parent receives a null result from its child."""

    name = "lie-to-the-parent"
    rules = ("parents record what became of their children", "the result is the expected one")
    enough = 20

    def install(self, world: World) -> None:
        async def send(outbox: Outbox, message: Message) -> None:
            if message.kind == "child_finished":
                end = msgspec.json.decode(message.body, type=ChildEnd)
                lie = msgspec.structs.replace(end, result=msgspec.Raw(b'"nothing"'))
                message = msgspec.structs.replace(message, body=msgspec.Raw(msgspec.json.encode(lie)))
            await real(outbox, message)

        real = self.patch(Outbox, "_send", send)


class ForgetParent(Mutant):
    """A parent gets no message about its child's end, and reconciliation does not look for it."""

    name = "forget-the-parent"
    rules = ("runs end or wait for something real", "runs end when all is answered")
    enough = 20

    def install(self, world: World) -> None:
        async def send(outbox: Outbox, message: Message) -> None:
            if message.kind != "child_finished":
                await real(outbox, message)

        real = self.patch(Outbox, "_send", send)


ENGINE_MUTANTS: tuple[type[Mutant], ...] = (
    EffectsBeforeCommit,
    GoOnAfterFence,
    ReleaseWhileExecuting,
    GoOnPaused,
    ForgetCompletion,
    ForgetOutcome,
    CompleteUnrun,
    ConsumeTwice,
    WrongQuestion,
    AnyAnswer,
    SkipCompensation,
    CompensateTwice,
    LieToParent,
    ForgetParent,
)
