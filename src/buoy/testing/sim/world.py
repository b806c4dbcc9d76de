"""The world of one seed: its processes, what happens to them, and the way from chaos to rest.

Phases: runs are started and things go wrong; then nothing goes wrong any more, and every run must come to rest by
itself; then everything that is asked is answered, and every run must end; then all workers stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

import msgspec

from buoy.core import events as e
from buoy.core.ids import RunId, RunnerId
from buoy.core.lifecycle import TERMINAL, Status
from buoy.core.state import State, fold
from buoy.engine.definitions import Registry
from buoy.engine.runner import RunnerOptions
from buoy.testing.sim.faults import Faults
from buoy.testing.sim.hints import Hints
from buoy.testing.sim.host import SimLiveness
from buoy.testing.sim.invariants import disagreements, restless, unread
from buoy.testing.sim.kernel import Kernel
from buoy.testing.sim.mutants import Mutant
from buoy.testing.sim.operator import Operator
from buoy.testing.sim.plan import CHAOS_S, REST_S, TURNS_MAX, Plan, RunPlan
from buoy.testing.sim.programs import Node, parts
from buoy.testing.sim.sender import Sender, start_run
from buoy.testing.sim.storage import ObjectStorage, SqliteStorage, Storage
from buoy.testing.sim.story import Story
from buoy.testing.sim.witness import Witness
from buoy.testing.sim.worker import Worker
from buoy.testing.sim.workflows import WORKFLOWS

if TYPE_CHECKING:
    from buoy.testing.sim.process import Process

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
        self.rng = Random(f"world {seed}")
        self.kernel = Kernel(self.rng, TURNS_MAX)
        self.faults = Faults(self.rng, plan.rates)
        self.storage: Storage = SqliteStorage() if plan.store == "sqlite" else ObjectStorage(one_host=plan.one_host)
        self.witness = Witness(self.storage)
        self.hints = Hints(self.kernel, self.rng, lost=plan.hints_lost)
        self.liveness = SimLiveness(self._is_dead, one_host=plan.one_host)
        self.programs: dict[str, Node] = {run.run_id: run.program for run in plan.runs}
        self.cancelled: set[str] = set()
        self.processes: dict[str, Process] = {}
        self.closing = False
        self._registry = Registry()
        for workflow in WORKFLOWS:
            self._registry.add(workflow)
        self._options = RunnerOptions(
            waiting_runs_max=plan.waiting_runs_max, driving_runs_max=plan.driving_runs_max, step_threads=1
        )
        self._made = 0
        self._logs: dict[str, tuple[list[e.Event], State]] = {}

    # ---- what processes ask

    def counted_on(self) -> set[str]:
        """Processes whose work nobody else may do: alive, and not declared gone."""
        return {name for name, process in self.processes.items() if process.alive and not process.gone}

    def gone(self, runner: RunnerId) -> None:
        if runner in self.processes:
            self.processes[runner].gone = True

    def _is_dead(self, runner: RunnerId) -> bool:
        return not self.processes[runner].alive

    def ended(self, process: Process) -> None:
        """A process has ended: a worker is started again, under a new name."""
        if isinstance(process, Worker) and not self.closing:
            delay_s = self.rng.random() * _RESTART_S
            self.kernel.at(self.kernel.time + delay_s, self._more_workers)

    def expect_children(self, events: Iterable[e.Event]) -> None:
        """A run is about to start others."""
        for event in events:
            if isinstance(event.body, e.ChildStarted):
                found = msgspec.json.decode(event.body.input, type=dict[str, Node])
                self.programs.setdefault(event.body.child, found["program"])

    def known_runs(self) -> list[str]:
        """Runs that somebody has started, and their children."""
        return [run_id for run_id in self.programs if run_id in self.witness.starts or "." in run_id]

    def signal_names(self, run_id: str) -> list[str]:
        return [node.name for node in parts(self.programs[run_id]) if node.op in ("signal", "signal_or")]

    def question(self, run_id: str, title: str) -> Node:
        return next(node for node in parts(self.programs[run_id]) if node.id == title)

    # ---- people of this world

    def _new_name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"

    def _more_workers(self) -> None:
        if len(self.workers()) < self.plan.workers and not self.closing:
            worker = Worker(self, self._new_name("worker"), self._registry, self._options)
            self.processes[worker.name] = worker

    def workers(self) -> list[Worker]:
        return [worker for worker in self.all_workers() if worker.alive]

    def all_workers(self) -> list[Worker]:
        """The dead ones too."""
        return [each for each in self.processes.values() if isinstance(each, Worker)]

    def new_sender(self) -> Sender:
        name = self._new_name("sender")
        sender = Sender(self, name, self._registry, f"{self.seed} {name}")
        self.processes[name] = sender
        return sender

    # ---- chaos

    def begin(self) -> None:
        """Everybody starts; what will happen to them is put on the agenda."""
        plan, at = self.plan, self.kernel.at
        for _ in range(plan.workers):
            at(self.rng.random(), self._more_workers)
        for _ in range(plan.senders):
            self.new_sender().begin()
        if not plan.one_host:
            operator = Operator(self, self._new_name("operator"))
            self.processes[operator.name] = operator
            operator.begin()
        for run in plan.runs:
            for _ in range(2 if run.twice else 1):
                at(run.at, self._starting(run))
        for when in plan.crashes:
            at(when, lambda: self._to_somebody(lambda process: process.crash("by a kill")))
        for when, span in plan.freezes:
            at(when, lambda span=span: self._to_somebody(lambda process: process.freeze(span)))  # type: ignore[misc]
        for when, span in plan.stops:
            at(when, lambda span=span: self._stop_somebody(span))  # type: ignore[misc]
        for when, span in plan.outages:
            at(when, lambda span=span: self._outage(span))  # type: ignore[misc]
        for when, span in plan.cuts:
            at(when, lambda span=span: self._to_somebody(lambda process: self._cut_off(process, span)))  # type: ignore[misc]

    def _starting(self, run: RunPlan) -> Callable[[], None]:
        def start() -> None:
            workers = [worker for worker in self.workers() if worker.loop.runs]
            if run.by_worker and workers:
                worker = self.rng.choice(workers)
                worker.spawn(lambda: start_run(worker, worker.client, run))
            else:
                sender = self.new_sender()
                sender.spawn(lambda: start_run(sender, sender.client, run))

        return start

    def _to_somebody(self, action: Callable[[Process], None]) -> None:
        alive = [process for process in self.processes.values() if process.alive]
        workers: list[Process] = list(self.workers())
        choice = workers if workers and self.rng.random() < 0.8 else alive
        if self.faults.on and choice:
            action(self.rng.choice(choice))

    def _stop_somebody(self, grace_s: float) -> None:
        if self.faults.on and self.workers():
            self.rng.choice(self.workers()).stop(grace_s)

    def _outage(self, for_s: float) -> None:
        if self.faults.on:
            self.story.tell(self.kernel.time, "storage", f"no answers for {for_s:.1f} s")
            self.faults.outage_until = self.kernel.time + for_s

    def _cut_off(self, process: Process, for_s: float) -> None:
        process.tell(f"is cut off for {for_s:.1f} s")
        self.faults.cut_off[process.name] = self.kernel.time + for_s

    # ---- the way to rest

    def play(self) -> None:
        """From the beginning to the end, or to the first promise that is broken."""
        self.begin()
        self.kernel.run_until(lambda: bool(self.witness.violations), CHAOS_S)
        for phase in (self._come_to_rest, self._come_to_an_end, self._stop_all):
            if not self.witness.violations:
                phase()

    def _come_to_rest(self) -> None:
        self._calm_down()
        if not self._goes_on_until(self._all_rest):
            self._report_restless()

    def _come_to_an_end(self) -> None:
        self.new_sender().finish()
        if not self._goes_on_until(self._all_ended):
            self._report_restless()
            for run_id in self.programs:
                status = self.state(run_id).status
                if status is not None and status not in TERMINAL:
                    self.witness.broken("runs end when all is answered", f"{run_id} is still {status}")

    def _stop_all(self) -> None:
        self.closing = True
        for worker in self.workers():
            worker.stop(_GRACE_S)
        if not self._goes_on_until(lambda: not self.workers()):
            names = ", ".join(worker.name for worker in self.workers())
            self.witness.broken("workers stop", f"{names} did not stop")

    def _calm_down(self) -> None:
        self.story.tell(self.kernel.time, "world", "from here on nothing goes wrong any more")
        self.faults.on = False
        for process in list(self.processes.values()):
            process.thaw()
        self._more_workers()

    def _goes_on_until(self, done: Callable[[], bool]) -> bool:
        """Whether it came to that, asked every virtual second."""
        deadline = self.kernel.time + REST_S
        while self.kernel.time < deadline and not self.kernel.exhausted:
            self.kernel.run_until(lambda: False, self.kernel.time + 1.0)
            if self.witness.violations or done():
                return True
        return False

    def _report_restless(self) -> None:
        if self.kernel.exhausted:
            self.witness.broken("bounded", f"more than {TURNS_MAX:,} callbacks at {self.kernel.time:.0f} s")
        for run_id in self.programs:
            for reason in islice(self._restless(run_id), _REASONS_MAX):
                self.witness.broken("runs end or wait for something real", f"{run_id}: {reason}, and nothing moves")

    def _restless(self, run_id: str) -> Iterator[str]:
        log, state = self._look(run_id)
        yield from restless(state, unread(log, self.storage.inbox(RunId(run_id))))
        started = {event.body.leaf: event.body.child for event in log if isinstance(event.body, e.ChildStarted)}
        for leaf in state.open.values():
            child = self.state(started[leaf.id]).status if leaf.id in started else Status.RUNNING
            if state.status is not Status.PAUSED and (child is None or child in TERMINAL):
                yield f"{leaf.id} waits for {started[leaf.id]}, which is {child or 'not there'}"

    def _all_rest(self) -> bool:
        if any(process.alive and process.busy for process in self.processes.values()):
            return False
        return not any(True for run_id in self.programs for _ in self._restless(run_id))

    def _all_ended(self) -> bool:
        return all(status is None or status in TERMINAL for status in map(self._status, self.programs))

    def _status(self, run_id: str) -> object:
        return self.state(run_id).status

    def state(self, run_id: str) -> State:
        return self._look(run_id)[1]

    def _look(self, run_id: str) -> tuple[list[e.Event], State]:
        """The durable log and what it amounts to; read on from where the last look ended."""
        log, state = self._logs.get(run_id, ([], State(run_id=RunId(run_id))))
        new = self.storage.log(RunId(run_id), log[-1].seq if log else 0)
        if new:
            for text in disagreements(new):
                self.witness.broken("code and log agree", f"{run_id}: {text}")
            log = [*log, *new]
            state = fold(RunId(run_id), log)
            self._logs[run_id] = (log, state)
        return log, state
