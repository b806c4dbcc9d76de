"""The world of one seed: its processes, what is known of its runs, and the way from chaos to rest.

Phases: runs are started and things go wrong; then nothing goes wrong any more, and every run must come to rest by
itself; then everything that is asked is answered, and every run must end; then all workers stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.log.state import State, fold
from buoy.core.schedule.schedule import Schedule
from buoy.engine.process.runner_options import RunnerOptions
from buoy.ports.records import Message
from simulator.agenda import Agenda
from simulator.faults import Faults
from simulator.hints import Hints
from simulator.host import SimClock, SimLiveness, Wall, Walls
from simulator.invariants import disagreements
from simulator.kernel import Kernel
from simulator.lookout import Lookout
from simulator.mutants import Mutant
from simulator.plan import CHAOS_S, EVENTS_MAX, REST_S, TURNS_MAX, Plan, Post, Slot
from simulator.programs import Node, parts
from simulator.rest import has_ended, unborn, unrest
from simulator.sender import Sender
from simulator.specs import CALLS
from simulator.storage_choice import make_storage
from simulator.story import Story
from simulator.witness import Witness
from simulator.worker import Worker
from simulator.workflows import FIRST, MORE, RENAMED, SAME, release_of

if TYPE_CHECKING:
    from simulator.process import Process

_RESTART_S = 6.0
_GRACE_S = 20.0
_REASONS_MAX = 3


class World:
    """Everything in one seed."""

    def __init__(self, seed: int, plan: Plan, mutant: Mutant, story: Story) -> None:
        self.seed = seed
        self.plan = plan
        self.mutant = mutant
        self.story = story
        self.kernel = Kernel(f"turns {seed}", TURNS_MAX)
        self.faults = Faults(f"faults {seed}", plan.rates, plan.only, plan.strikes)
        self.storage = make_storage(plan, SimClock(self.kernel))
        self.witness = Witness(self.storage)
        self.hints = Hints(self.kernel, f"hints {seed}", lost=plan.hints_lost)
        self.liveness = SimLiveness(self._is_dead, single_host=plan.single_host)
        self.releases = {number: release_of(number) for number in (FIRST, SAME, MORE, RENAMED)}
        # Of each slot the release that is deployed there, and how many workers it has had.
        self.deployed = {slot.name: FIRST for slot in plan.slots}
        self._made: dict[str, int] = {}
        self.programs: dict[str, Node] = {run.name: run.program for run in plan.runs}
        self.cancelled: set[str] = set()
        self.damaged: dict[str, int] = {}
        # Documents that another system wrote, and schedules, as they were when that was acknowledged.
        self.foreign: dict[str, Document] = {}
        self.schedules: dict[str, Schedule] = {}
        self.acts: dict[str, int] = {}
        # How often each deadly part of a program has ended its process.
        self.deaths: dict[str, int] = {}
        # The same of each run's own code.
        self.code_deaths: dict[str, int] = {}
        self.processes: dict[str, Process] = {}
        self.closing = False
        # When faults ended, as the only host's clock has it; None where clocks differ or workers may be full.
        self.calm_at: float | None = None
        self.options = RunnerOptions(
            waiting_runs_max=plan.waiting_runs_max,
            driving_runs_max=plan.driving_runs_max,
            step_threads=1,
            calls=CALLS,
        )
        self._walls = Walls(seed, plan)
        self._agenda = Agenda(self)
        self._logs: dict[str, tuple[list[e.Event], State]] = {}
        self._graves: dict[str, tuple[list[e.Event], list[Message]]] = {}
        # How many messages were acknowledged before the purge of a run began.
        self.sent_before: dict[str, int] = {}

    # ---- what processes ask

    def wall_of(self, process: str) -> Wall:
        return self._walls.of(process)

    def counted_on(self) -> set[str]:
        """Processes whose work no other process may do: alive, and not declared dead."""
        return {name for name, process in self.processes.items() if process.alive and not process.gone}

    def gone(self, runner: RunnerId, *, by: Process) -> None:
        """A process declares a runner dead. Where death can be proven, no process may declare a living one dead."""
        process = self.processes.get(runner)
        if process is None:
            return
        process.gone = True
        if self.plan.single_host and process.alive and process is not by:
            self.witness.broken(
                "no living runner is declared dead", f"{by.name} declares {runner} dead, which is alive"
            )

    def _is_dead(self, runner: RunnerId) -> bool:
        return not self.processes[runner].alive

    def ended(self, process: Process) -> None:
        """A process has ended: a worker or a sweeper is started again, under a new name."""
        if isinstance(process, Worker | Lookout) and not self.closing:
            delay_s = process.rng.random() * _RESTART_S
            self.kernel.at(self.kernel.time + delay_s, lambda: self._again(process))

    def _again(self, process: Worker | Lookout) -> None:
        if isinstance(process, Worker):
            self.fill(process.slot)
        else:
            self.man(process.post)

    def expect_kin(self, run_id: str, events: Iterable[e.Event]) -> None:
        """A run is about to start others, to continue as another one, or to be started by a schedule."""
        for event in events:
            body = event.body
            if isinstance(body, e.ChildStarted):
                self._expect(body.child, body.workflow, body.input)
            elif isinstance(body, e.WorkflowCompleted) and body.continued_as is not None:
                self._expect(body.continued_as, "", body.next_input)
            elif isinstance(body, e.WorkflowCreated) and (body.by or "").startswith("schedule "):
                self._expect(run_id, "", body.input)

    def _expect(self, run_id: str, workflow: str, stored: msgspec.Raw) -> None:
        if workflow.startswith("step:"):
            self.programs.setdefault(run_id, Node("errand", msgspec.json.decode(stored)["id"]))
        else:
            self.programs.setdefault(run_id, msgspec.json.decode(stored, type=dict[str, Node])["program"])

    def remember(self, run_id: RunId) -> None:
        """A run is about to be purged."""
        log = self.storage.log(run_id)
        if log:
            self._graves[run_id] = (log, self.storage.inbox(run_id))
            self.sent_before[run_id] = len(self.witness.sends)

    def buried_log(self, run_id: RunId) -> list[e.Event]:
        """The log of a run as it was before it was purged."""
        return self._graves[run_id][0] if run_id in self._graves else []

    def known_runs(self) -> list[str]:
        """All started runs, and their children."""
        return [run_id for run_id in self.programs if run_id in self.witness.starts or "." in run_id]

    def signal_names(self, run_id: str) -> list[str]:
        return [node.name for node in parts(self.programs[run_id]) if node.op in ("signal", "signal_or")]

    def question(self, run_id: str, title: str) -> Node:
        return next(node for node in parts(self.programs[run_id]) if node.id == title)

    def count_act(self, kind: str) -> None:
        self.acts[kind] = self.acts.get(kind, 0) + 1

    def born(self) -> frozenset[str]:
        """Runs that are in the store, or were until they were purged."""
        return frozenset(run_id for run_id in self.programs if self.final_log(run_id)[0])

    def told_by(self, parent: str) -> frozenset[str]:
        """Runs that this run has asked to cancel."""
        return frozenset(
            run_id for run_id in self.programs if run_id.startswith(f"{parent}.")
            if any(each.kind == "cancel" and each.by == parent for each in self.inbox(run_id))
        )  # fmt: skip

    # ---- people of this world

    def fill(self, slot: Slot) -> None:
        """Puts a worker where there is none."""
        if any(worker.slot is slot for worker in self.workers()) or self.closing:
            return
        name = self._new_name(slot.name)
        self.processes[name] = Worker(self, name, slot, self.releases[self.deployed[slot.name]], self.options)

    def man(self, post: Post) -> None:
        """Puts a sweeper where there is none."""
        if not any(lookout.post is post for lookout in self.lookouts() if lookout.alive) and not self.closing:
            name = self._new_name(post.name)
            self.processes[name] = Lookout(self, name, post)

    def _new_name(self, place: str) -> str:
        number = self._made[place] = self._made.get(place, 0) + 1
        return place if number == 1 else f"{place}.{number}"

    def workers(self) -> list[Worker]:
        return [worker for worker in self.all_workers() if worker.alive]

    def all_workers(self) -> list[Worker]:
        """The dead ones too."""
        return [each for each in self.processes.values() if isinstance(each, Worker)]

    def lookouts(self) -> list[Lookout]:
        """All sweepers of their own there ever were."""
        return [each for each in self.processes.values() if isinstance(each, Lookout)]

    def new_sender(self, name: str, stack: str | None = None, env: str | None = None) -> Sender:
        assert name not in self.processes
        sender = self.processes[name] = Sender(self, name, self.releases[FIRST], stack, env)
        return sender

    # ---- the way to rest

    def play(self) -> None:
        """From the beginning to the end, or to the first promise that is broken."""
        self._agenda.begin()
        self.kernel.run_until(lambda: bool(self.witness.violations), CHAOS_S)
        for phase in (self._come_to_rest, self._come_to_an_end, self._stop_all):
            if not self.witness.violations:
                phase()

    def _come_to_rest(self) -> None:
        self._agenda.calm_down()
        if not self._goes_on_until(self._all_rest):
            self._report_restless()

    def _come_to_an_end(self) -> None:
        self.new_sender("finisher").finish()
        if not self._goes_on_until(self._all_ended):
            self._report_restless()
            for run_id in self.programs:
                state = self.state(run_id)
                if state.status is not None and state.status not in TERMINAL:
                    why = f": {state.pause.reason}: {state.pause.detail}" if state.pause is not None else ""
                    self.witness.broken("runs end when all is answered", f"{run_id} is still {state.status}{why}")
                for other in unborn(self, run_id):
                    self.witness.broken(
                        "what was promised is started", f"{run_id} promised {other}, which is not there"
                    )

    def _stop_all(self) -> None:
        self.closing = True
        for worker in self.workers():
            worker.stop(_GRACE_S)
        for lookout in self.lookouts():
            lookout.stop()
        if not self._goes_on_until(lambda: not self._at_work()):
            names = ", ".join(self._at_work())
            self.witness.broken("workers stop", f"{names} did not stop")

    def _at_work(self) -> list[str]:
        return [each.name for each in (*self.all_workers(), *self.lookouts()) if each.alive]

    def _goes_on_until(self, done: Callable[[], bool]) -> bool:
        """Whether it came to that and stayed so, asked every virtual second: the last act of one run may be another."""
        deadline, before, length = self.kernel.time + REST_S, False, 0
        while self.kernel.time < deadline and not self.kernel.exhausted:
            self.kernel.run_until(lambda: False, self.kernel.time + 1.0)
            if length != (length := sum(len(self.look(run_id)[0]) for run_id in self.programs)):
                # A host whose clock is ahead hands over late by that much, but it does hand over.
                deadline = self.kernel.time + REST_S
            if length > EVENTS_MAX:
                self.witness.broken("bounded", f"more than {EVENTS_MAX:,} events at {self.kernel.time:.0f} s")
            if self.witness.violations:
                return True
            now = done()
            if before and now:
                return True
            before = now
        return False

    def _report_restless(self) -> None:
        if self.kernel.exhausted:
            self.witness.broken("bounded", f"more than {TURNS_MAX:,} callbacks at {self.kernel.time:.0f} s")
        for run_id in self.programs:
            for reason in islice(unrest(self, run_id), _REASONS_MAX):
                self.witness.broken("runs end or wait for something real", f"{run_id}: {reason}, and nothing moves")

    def _all_rest(self) -> bool:
        if any(process.alive and process.busy for process in self.processes.values()):
            return False
        return not any(True for run_id in self.programs for _ in unrest(self, run_id))

    def _all_ended(self) -> bool:
        return all(has_ended(self, run_id) for run_id in list(self.programs))

    def state(self, run_id: str) -> State:
        return self.look(run_id)[1]

    def look(self, run_id: str) -> tuple[list[e.Event], State]:
        """The durable log and what it amounts to; read on from where the last look ended."""
        log, state = self._logs.get(run_id, ([], State(run_id=RunId(run_id))))
        seen = log[-1].seq if log else 0
        new = self.storage.log(RunId(run_id), seen) or self._graves.get(run_id, ([], []))[0][seen:]
        if new:
            log = [*log, *new]
            for text in disagreements(log, deployed=self.plan.deploys):
                self.witness.broken("code and log agree", f"{run_id}: {text}")
            state = fold(RunId(run_id), log)
            self._logs[run_id] = (log, state)
        return log, state

    def final_log(self, run_id: str) -> tuple[list[e.Event], bool]:
        """The whole log as it is stored, or as it was when it was purged; and whether it was."""
        log = self.storage.log(RunId(run_id))
        return (log, False) if log or run_id not in self._graves else (self._graves[run_id][0], True)

    def inbox(self, run_id: str) -> list[Message]:
        """All that was ever sent to a run."""
        purged = run_id in self._graves and self.final_log(run_id)[1]
        return self._graves[run_id][1] if purged else self.storage.inbox(RunId(run_id))
