"""The agenda: what happens when in the chaos of a seed, to processes, hosts and data; and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from buoy.core.ids import RunId
from simulator.host import EPOCH
from simulator.operator import Operator
from simulator.plan import Blow, RunPlan, Slot, TimePlan
from simulator.sender import heal, start_run
from simulator.upkeep import add_time, bring_foreign, keep_migrating, remove_times
from simulator.workflows import FIRST, MORE, RENAMED, SAME

if TYPE_CHECKING:
    from simulator.process import Process
    from simulator.world import World

_EVERY_QUEUE = ("default", "side")


class Agenda:
    """Puts everything in its place in time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self) -> None:
        """Starts every process, and puts what will happen to them on the agenda."""
        world, plan = self._world, self._world.plan
        at = world.kernel.at
        for place, slot in enumerate(plan.slots):
            at(0.2 * place, lambda slot=slot: world.fill(slot))  # type: ignore[misc]
        for person in plan.people:
            world.new_sender(person).begin([act for act in plan.acts if act.who == person])
        if not plan.single_host:
            operator = world.processes["operator"] = Operator(world, "operator")
            operator.begin()
        for post in plan.posts:
            at(0.3, lambda post=post: world.man(post))  # type: ignore[misc]
        for time in plan.schedules:
            at(time.at, self._adding(time))
        for run in plan.runs:
            at(run.at, self._starting(run, f"starter-{run.name}"))
            if run.twice:
                at(run.at, self._starting(run, f"twin-{run.name}"))
        for blow in plan.blows:
            at(blow.at, lambda blow=blow: self._strike(blow))  # type: ignore[misc]

    def _starting(self, run: RunPlan, name: str) -> Callable[[], None]:
        world = self._world

        def start() -> None:
            workers = [worker for worker in world.workers() if worker.loop.runs and worker.slot.env is None]
            if run.by_worker and workers:
                worker = workers[int(run.pick * len(workers))]
                worker.spawn(lambda: start_run(worker, worker.client, worker.release, run))
                return
            sender = world.new_sender(name, run.stack, run.env)
            begin = bring_foreign if run.foreign else start_run
            sender.spawn(lambda: begin(sender, sender.client, sender.release, run))

        return start

    def _adding(self, time: TimePlan) -> Callable[[], None]:
        def add() -> None:
            owner = self._world.new_sender(f"owner-of-{time.name}")
            owner.spawn(lambda: add_time(owner, owner.client, owner.release, time))

        return add

    # ---- blows

    def _strike(self, blow: Blow) -> None:
        """Counted if there was anything to strike."""
        if self._world.faults.on and self._befalls(blow):
            self._world.faults.count(blow.kind)

    def _befalls(self, blow: Blow) -> bool:
        world = self._world
        match blow.kind:
            case "outage":
                self._tell("storage", f"no answers for {blow.span_s:.1f} s")
                world.faults.outage_until = world.kernel.time + blow.span_s
            case "deploy":
                self._deploy(blow)
            case "rename":
                self._rename()
            case "damage":
                return self._damage(blow)
            case "stop":
                workers = world.workers()
                return bool(workers) and workers[int(blow.pick * len(workers))].stop(blow.span_s)
            case _:
                process = self._somebody(blow)
                return process is not None and self._hit(process, blow)
        return True

    def _somebody(self, blow: Blow) -> Process | None:
        """Mostly a worker."""
        alive = [process for process in self._world.processes.values() if process.alive]
        workers: list[Process] = list(self._world.workers())
        choice = workers if workers and blow.luck < 0.8 else alive
        return choice[int(blow.pick * len(choice))] if choice else None

    def _hit(self, process: Process, blow: Blow) -> bool:
        world, until = self._world, self._world.kernel.time + blow.span_s
        match blow.kind:
            case "crash":
                process.crash("by a kill")
                return not process.alive
            case "freeze":
                return process.freeze(blow.span_s)
            case "cut":
                process.tell(f"is cut off for {blow.span_s:.1f} s")
                world.faults.cut_off[process.name] = until
            case "silence":
                process.tell(f"its beats get no answer for {blow.span_s:.1f} s")
                world.faults.silent[process.name] = until
            case "clock":
                by_s = blow.span_s if blow.luck * 10 % 1 < 0.5 else -blow.span_s
                process.tell(f"the clock of its host is set by {by_s:+.1f} s")
                world.wall_of(process.name).skew_s += by_s
        return True

    def _deploy(self, blow: Blow) -> None:
        """Another release: here, or everywhere. Workers that are there are stopped, or killed."""
        release = int(blow.span_s) if blow.luck < 0.8 else FIRST
        slots = [slot for slot in self._world.plan.slots if slot.env is None]
        if blow.pick < 0.6 and slots:
            slots = [slots[int(blow.luck * 10) % len(slots)]]
        self._deploy_to(slots, release)

    def _rename(self) -> None:
        """Deploys a release that renames a step to every worker, and a migrator for the runs that do not fit it."""
        self._deploy_to([slot for slot in self._world.plan.slots if slot.env is None], RENAMED)
        migrator = self._world.new_sender("migrator")
        migrator.spawn(lambda: keep_migrating(migrator, migrator.client))

    def _deploy_to(self, slots: list[Slot], release: int) -> None:
        world = self._world
        for slot in slots:
            self._tell(slot.name, f"release {release} is deployed")
            world.deployed[slot.name] = release
        for worker in world.workers():
            if worker.slot in slots:
                worker.stop(2.0)

    def _damage(self, blow: Blow) -> bool:
        world = self._world
        runs = [run_id for run_id in world.programs if world.state(run_id).status is not None]
        if not runs:
            return False
        run_id = runs[int(blow.pick * len(runs))]
        how = world.storage.damage(RunId(run_id), blow.luck)
        if how is not None:
            self._tell("storage", f"the document of {run_id} is spoiled: {how}")
            world.damaged[run_id] = world.state(run_id).head_seq
        return how is not None

    def _tell(self, who: str, what: str) -> None:
        self._world.story.tell(self._world.kernel.time, who, what)

    # ---- the end of chaos

    def calm_down(self) -> None:
        """Ends all faults, and makes sure that every run has a process that could drive it."""
        world = self._world
        self._tell("world", "from here on nothing goes wrong any more")
        world.faults.on = False
        world.faults.silent.clear()
        roomy = world.plan.driving_runs_max > len(world.plan.runs)
        if world.plan.single_host and roomy and not any(blow.kind == "clock" for blow in world.plan.blows):
            world.calm_at = EPOCH + world.kernel.time
        for process in list(world.processes.values()):
            process.thaw()
        for slot in world.plan.slots:
            world.fill(slot)
        for post in world.plan.posts:
            world.man(post)
        self._serve_all()
        if world.plan.schedules:
            owner = world.new_sender("owner-of-schedules")
            owner.spawn(lambda: remove_times(owner, owner.client))
        if world.damaged:
            doctor = world.new_sender("doctor")
            doctor.spawn(lambda: heal(doctor, doctor.client))
        if world.plan.deploys:
            for number in (FIRST, SAME, MORE, RENAMED) if world.plan.renames else (FIRST, SAME, MORE):
                slot = Slot(f"worker-of-release-{number}", _EVERY_QUEUE)
                world.deployed[slot.name] = number
                world.fill(slot)

    def _serve_all(self) -> None:
        """Starts a worker for each scope that has runs and no process to drive them."""
        world = self._world
        scopes = {(run.stack, run.env): None for run in world.plan.runs}
        # Those that workers have started are of their stacks.
        scopes.update({(slot.stack, None): None for slot in world.plan.slots})
        for stack, env in scopes:
            served = {
                queue for slot in world.plan.slots for queue in slot.queues
                if slot.env == env and (None in (stack, slot.stack) or slot.stack == stack)
            }  # fmt: skip
            if not served >= set(_EVERY_QUEUE):
                slot = Slot(f"worker-of-{stack or 'any'}-{env or 'default'}", _EVERY_QUEUE, env, stack)
                world.deployed[slot.name] = FIRST
                world.fill(slot)
