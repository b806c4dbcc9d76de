"""The contract of wrong clocks: what is due at once is due for everybody, however far behind his clock is."""

from __future__ import annotations

from buoy.core.ids import RunId, RunnerId
from buoy.ports import Held, Released, Store
from buoy.testing.contracts.stage import ANY, Contract, Stage, claim, claimed, message, on_stage, register

RUN = RunId("run-1")
HOUR_S = 3600.0


class ClockContract(Contract):
    @on_stage
    async def test_a_new_run_goes_to_one_whose_clock_is_behind(self, stage: Stage) -> None:
        store, behind = await stage.open(), await stage.open(HOUR_S)
        runner = await register(behind, "behind")
        await stage.author("said").create(store, Released(due_at=stage.clock.now(), cause="created"))
        stage.clock.advance(1.0)
        await stage.author("unsaid").create(store)
        assert await claim(behind, runner) == ["said", "unsaid"]

    @on_stage
    async def test_a_released_run_goes_to_one_whose_clock_is_behind(self, stage: Stage) -> None:
        store, behind = await stage.open(), await stage.open(HOUR_S)
        ahead, runner = await register(store, "ahead"), await register(behind, "behind")
        with_event = await stage.author("event").create(store, Held(ahead))
        await stage.author("bare").create(store, Held(ahead))
        at_once = Released(due_at=stage.clock.now(), cause="interrupted")
        await with_event.append(store, claimed("ahead"), task=at_once)
        assert await store.release(RunId("bare"), ahead, at_once)
        assert sorted(await claim(behind, runner)) == ["bare", "event"]

    @on_stage
    async def test_what_the_dead_held_goes_to_one_whose_clock_is_behind(self, stage: Stage) -> None:
        store, behind = await stage.open(), await stage.open(HOUR_S)
        dead, runner = await register(store, "dead"), await register(behind, "behind")
        await stage.author("never-due").create(store, Held(dead))
        await stage.author("was-due").create(store, Released(due_at=stage.clock.now()))
        assert await claim(store, dead) == ["was-due"]
        await stage.author("timer").create(store, Released(due_at=stage.clock.now() + 60.0))
        stage.clock.advance(60.0)
        assert await claim(store, dead) == ["timer"]
        stage.clock.advance(30.0)
        await store.bury(dead, "it is dead", cause="taken_over", evidence={})
        since = {name: await due_at(store, name) for name in ("never-due", "timer", "was-due")}
        now = stage.clock.now()
        assert since == {"never-due": now, "timer": now - 30.0, "was-due": now - 90.0}, "each at its own place"
        assert sorted(await claim(behind, runner)) == ["never-due", "timer", "was-due"]

    @on_stage
    async def test_an_adopted_run_goes_to_one_whose_clock_is_behind(self, stage: Stage) -> None:
        store, behind = await stage.open(), await stage.open(HOUR_S)
        runner = await register(behind, "behind")
        await stage.author(RUN).create(store, Held(RunnerId("ghost")))
        (orphan,) = await store.orphans(10)
        assert await store.adopt(orphan)
        assert await claim(behind, runner) == [RUN]

    @on_stage
    async def test_a_woken_run_goes_to_one_whose_clock_is_behind(self, stage: Stage) -> None:
        store, behind = await stage.open(), await stage.open(HOUR_S)
        ahead, runner = await register(store, "ahead"), await register(behind, "behind")
        await stage.author("parked").create(store, Released(due_at=None))
        await stage.author("timer").create(store, Released(due_at=stage.clock.now() + 60.0))
        held = await stage.author("meanwhile").create(store, Held(ahead))
        for run_id in ("parked", "timer", "meanwhile"):
            await store.send(message(run_id, "d"))
        await held.append(store, claimed("ahead"), task=Released(due_at=None))
        assert sorted(await claim(behind, runner)) == ["meanwhile", "parked", "timer"]

    @on_stage
    async def test_what_is_due_at_once_is_told_so_by_every_clock(self, stage: Stage) -> None:
        store, behind = await stage.open(), await stage.open(HOUR_S)
        runner = await register(behind, "behind")
        since = stage.clock.now()
        await stage.author(RUN).create(store, Released(due_at=since))
        stage.clock.advance(10.0)
        there, here = await behind.run(RUN), await store.run(RUN)
        assert here is not None and here.due_at == since
        assert there is not None and there.due_at is not None and there.due_at <= await behind.now()
        (task,) = await behind.claim_tasks(runner, ANY, 1)
        assert task.due_at <= await behind.now()

    @on_stage
    async def test_a_message_does_not_take_the_cause_from_what_is_due(self, stage: Stage) -> None:
        store, behind = await stage.open(), await stage.open(HOUR_S)
        dead, runner = await register(store, "dead"), await register(behind, "behind")
        await stage.author(RUN).create(store, Held(dead))
        await store.bury(dead, "it is dead", cause="taken_over", evidence={"proof": "lock"})
        await behind.send(message(RUN, "d"))
        (task,) = await behind.claim_tasks(runner, ANY, 1)
        assert (task.cause, task.evidence) == ("taken_over", {"proof": "lock"})

    @on_stage
    async def test_a_timer_is_kept_by_the_clock_of_whoever_looks(self, stage: Stage) -> None:
        store, behind = await stage.open(), await stage.open(60.0)
        runner, late = await register(store, "right"), await register(behind, "late")
        await stage.author(RUN).create(store, Released(due_at=stage.clock.now() + 30.0))
        stage.clock.advance(30.0)
        assert await claim(behind, late) == []
        assert await claim(store, runner) == [RUN]

    @on_stage
    async def test_a_timer_that_is_given_back_as_it_was_is_left_to_each_one_s_clock(self, stage: Stage) -> None:
        ahead, right = await stage.open(), await stage.open(60.0)
        first, second = await register(ahead, "ahead"), await register(right, "right")
        await stage.author(RUN).create(right, Released(due_at=stage.clock.now() + 10.0))
        stage.clock.advance(10.0)
        (task,) = await ahead.claim_tasks(first, ANY, 1)
        assert task.by_clock
        assert await ahead.release(RUN, first, Released(due_at=task.due_at, by_clock=True))
        assert await claim(right, second) == []
        stage.clock.advance(60.0)
        (task,) = await right.claim_tasks(second, ANY, 1)
        assert task.by_clock
        assert await right.release(RUN, second, Released(due_at=task.due_at))
        (task,) = await ahead.claim_tasks(first, ANY, 1)
        assert not task.by_clock, "given back as due at once"

    @on_stage
    async def test_a_message_makes_a_timer_due_by_every_clock(self, stage: Stage) -> None:
        store = await stage.open()
        runner = await register(store, "r1")
        await stage.author(RUN).create(store, Released(due_at=stage.clock.now() + 10.0))
        await store.send(message(RUN, "d"))
        (task,) = await store.claim_tasks(runner, ANY, 1)
        assert not task.by_clock

    @on_stage
    async def test_work_that_is_due_at_once_and_timers_keep_their_order(self, stage: Stage) -> None:
        store = await stage.open()
        runner = await register(store, "r1")
        for number, delay_s in enumerate((0.0, 15.0, 0.0, 35.0, 0.0)):
            await stage.author(f"run-{number}").create(store, Released(due_at=stage.clock.now() + delay_s))
            stage.clock.advance(10.0)
        assert await claim(store, runner, limit=3) == ["run-0", "run-2", "run-1"]
        assert await claim(store, runner) == ["run-4"]
        stage.clock.advance(20.0)
        assert await claim(store, runner) == ["run-3"]

    @on_stage
    async def test_much_work_that_is_due_at_once_does_not_starve_a_timer(self, stage: Stage) -> None:
        store = await stage.open()
        runner = await register(store, "r1")
        await stage.author("timer").create(store, Released(due_at=stage.clock.now() + 5.0))
        stage.clock.advance(10.0)
        for number in range(300):
            await stage.author(f"run-{number}").create(store, Released(due_at=stage.clock.now()))
        assert (await claim(store, runner, limit=3))[0] == "timer"


async def due_at(store: Store, run_id: str) -> float | None:
    record = await store.run(RunId(run_id))
    assert record is not None
    return record.due_at
