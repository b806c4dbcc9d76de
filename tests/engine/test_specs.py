"""Runs of specs: what is recorded, what runs beside what, and that every prefix of a log leads to the same end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.client.client import Client, Run
from buoy.engine.spec.source import SpecSource
from buoy.engine.spec.workflow import SpecWorkflow, spec_of
from buoy.ports.records import Message
from tests.patience import LOOK_S

from . import spec_functions
from .harness import log_of, plant, renamed, result_of, state_of, store_at, types_of, until, until_event, until_status
from .spec_functions import RAN, times

FUNCTIONS = "tests.engine.spec_functions"
OPTIONS = buoy.RunnerOptions(stop_grace_s=2.0, calls=("tests",))


@pytest.fixture(autouse=True)
def forget_what_ran() -> None:
    RAN.clear()


def spec(text: str, name: str = "x") -> SpecWorkflow:
    body = text.replace("F:", f"{FUNCTIONS}:")
    return spec_of(SpecSource("test.yaml", f"name: {name}\n{body}"), calls=None)


@asynccontextmanager
async def opened(url: str, *workflows: SpecWorkflow, specs: bool = True) -> AsyncIterator[Client]:
    async with buoy.open(url, workflows=workflows, options=OPTIONS, specs=specs) as app:
        yield app


async def failure_of(run: Run[Any]) -> buoy.RunFailed:
    with pytest.raises(buoy.RunFailed) as caught:
        await run.result()
    return caught.value


# ---- what is recorded


async def test_a_step_with_modules_has_the_events_of_its_modules(any_url: str) -> None:
    workflow = spec(
        """
steps:
  - id: gather
    modules:
      - {id: fetch, call: "F:value", with: {x: 3}}
      - {id: review, ask: {title: "Publish {{ modules.fetch }}?", options: [yes, no]}}
      - {id: store, call: "F:threaded", with: {x: 4}}
  - {id: after, call: "F:value", with: {x: "{{ steps.gather.store.x }}"}}
result: "{{ steps.gather }}"
"""
    )
    async with opened(any_url, workflow) as app:
        run = await app.start_as("r1", workflow)
        state = await until_status(app, "r1", "awaiting_input")
        question = state.questions()[0].question
        assert question is not None
        assert question.title == "Publish 3?"
        await run.answer("yes")
        assert await result_of(app, run) == {"fetch": 3, "review": "yes", "store": {"x": 4}}
        log = [(event.type, getattr(event.body, "leaf", None)) for event in await log_of(app, "r1")]
    assert log == [
        ("workflow_created", None),
        ("claimed", None),
        ("step_started", "gather#1"),
        ("module_started", "gather/fetch#1"),
        ("module_completed", "gather/fetch#1"),
        ("module_started", "gather/review#1"),
        ("interaction_requested", "gather/review/ask#1"),
        ("interaction_response", "gather/review/ask#1"),
        ("module_completed", "gather/review#1"),
        ("module_started", "gather/store#1"),
        ("module_completed", "gather/store#1"),
        ("step_completed", "gather#1"),
        ("step_started", "after#1"),
        ("step_completed", "after#1"),
        ("workflow_completed", None),
    ]


async def test_a_run_is_bound_to_the_stored_definition(any_url: str) -> None:
    workflow = spec("parameters: {k: '1:2'}\nsteps: [{id: 'a_{k}', call: 'F:value'}]", "night")
    async with opened(any_url, workflow) as app:
        run = await app.start(workflow, k=[5, 6])
        await result_of(app, run)
        created = (await log_of(app, run.id))[0].body
        assert isinstance(created, e.WorkflowCreated)
        assert (created.workflow, created.version) == ("spec:night", workflow.version)
        assert b'"k":[5,6]' in bytes(created.input)
        assert await app.store.definition(workflow.version) == workflow.stored
        assert (await state_of(app, run.id)).leaves.keys() == {"a_5#1", "a_6#1"}


async def test_nothing_is_stored_when_the_parameters_are_wrong(url: str) -> None:
    workflow = spec("parameters: {k: '1:2'}\nsteps: [{id: 'a_{k}', call: 'F:value'}]")
    async with opened(url, workflow) as app:
        with pytest.raises(buoy.BadInput, match="no parameter 'j'"):
            await app.start(workflow, j=1)
        with pytest.raises(buoy.BadInput, match="step id 'a_a b' is not allowed"):
            await app.start(workflow, k="a b")
        assert (await app.runs()).runs == ()
        assert await app.store.definition(workflow.version) is None


# ---- failures, retries, conditions, files


async def test_options_of_a_question_are_filled_in_from_results(url: str) -> None:
    workflow = spec(
        """
parameters: {last: none of them}
steps:
  - {id: found, call: "F:anything", with: {x: [web-1, 2]}}
  - {id: one, call: "F:anything", with: {x: web-9}}
  - id: q
    ask: {title: "Which?", options: ["{{ steps.found }}", "{{ steps.one }}", "not {{ steps.one }}", "{last}"]}
result: "{{ steps.q }}"
"""
    )
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        question = await run.question()
        assert question.question.options == ("web-1", "2", "web-9", "not web-9", "none of them")
        await run.answer("2")
        assert await result_of(app, run) == "2"


async def test_a_question_whose_options_come_to_nothing_fails_its_step(url: str) -> None:
    workflow = spec(
        """
steps:
  - {id: found, call: "F:anything", with: {x: []}}
  - {id: q, ask: {title: "Which?", options: "{{ steps.found }}"}}
"""
    )
    async with opened(url, workflow) as app:
        error = await failure_of(await app.start_as("r1", workflow))
        assert "q#1 failed: a question of kind 'choose' needs options" in str(error)


async def test_a_failed_step_bars_its_descendants_and_nobody_else(url: str) -> None:
    workflow = spec(
        """
steps:
  - {id: bad, call: "F:fails", needs: []}
  - {id: child, call: "F:value", needs: [bad]}
  - {id: grandchild, call: "F:value", needs: [child, other]}
  - {id: other, call: "F:value", needs: []}
  - {id: after, call: "F:value", needs: [other]}
"""
    )
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        error = await failure_of(run)
        assert error.type == "ValueError"
        assert "ValueError: bad#1 failed: it is wrong" in str(error)
        assert "not run, because they need what failed: child, grandchild" in str(error)
        assert sorted(leaf for _, leaf, _ in RAN) == ["after#1", "bad#1", "other#1"]


async def test_a_failed_module_fails_its_step(url: str) -> None:
    workflow = spec(
        "steps: [{id: s, modules: [{id: a, call: 'F:value'}, {id: b, call: 'F:fails'}, {id: c, call: 'F:value'}]}]"
    )
    async with opened(url, workflow) as app:
        error = await failure_of(await app.start_as("r1", workflow))
        assert "ValueError: s/b#1 failed: it is wrong" in str(error)
        assert (await types_of(app, "r1"))[-3:] == ["module_failed", "step_failed", "workflow_failed"]
        assert times("r1", "s/c#1") == 0


async def test_modules_and_steps_are_tried_again(url: str) -> None:
    workflow = spec(
        """
steps:
  - {id: a, call: "F:flaky", with: {good_from: 3}, retries: 2, backoff: 1ms}
  - {id: b, modules: [{id: m, call: "F:flaky", with: {good_from: 2}, retries: 1, backoff: 1ms}]}
  - {id: c, call: "F:own_retries"}
result: ["{{ steps.a }}", "{{ steps.b.m }}", "{{ steps.c }}"]
"""
    )
    async with opened(url, workflow) as app:
        assert await result_of(app, await app.start_as("r1", workflow)) == [3, 2, 7]
    assert [attempt for _, leaf, attempt in RAN if leaf == "b/m#1"] == [1, 2]


async def test_a_step_whose_condition_is_false_is_skipped_and_its_dependents_run(url: str) -> None:
    workflow = spec(
        """
parameters: {mode: quick}
steps:
  - {id: a, call: "F:value", with: {x: 5}}
  - {id: long, call: "F:value", when: "parameters.mode == 'full' and steps.a > 1"}
  - {id: chain, call: "F:value", when: "steps.long == 1"}
  - {id: end, call: "F:value", when: "steps.a >= 5", with: {x: 9}}
"""
    )
    async with opened(url, workflow) as app:
        found = await result_of(app, await app.start_as("r1", workflow))
    assert found == {"completed": 2, "skipped": 2, "skipped_steps": ["long", "chain"]}
    assert [leaf for _, leaf, _ in RAN] == ["a#1", "end#1"]


async def test_a_condition_or_reference_that_makes_no_sense_fails_its_step(url: str) -> None:
    workflow = spec(
        """
steps:
  - {id: a, call: "F:threaded", with: {x: 1}, needs: []}
  - {id: b, call: "F:value", when: "steps.a > 3"}
  - {id: c, call: "F:value", with: {x: "{{ steps.a.y }}"}}
  - {id: d, call: "F:value", with: {x: "{{ steps.a.x }} apples"}}
"""
    )
    async with opened(url, workflow) as app:
        error = str(await failure_of(await app.start_as("r1", workflow)))
        failed = [event.body for event in await log_of(app, "r1") if isinstance(event.body, e.StepFailed)]
    assert {each.leaf for each in failed} == {"b#1", "c#1", "d#1"}
    text = error + "".join(each.error.message for each in failed)
    assert "only two numbers or two texts can be ordered" in text
    assert "steps.a has no 'y': it has x" in text
    assert "failed too: " in error


async def test_files_are_looked_at_before_and_after(url: str, tmp_path: Path) -> None:
    good = spec(
        f"""
steps:
  - {{id: use, call: "F:value", inputs: ["made.txt"]}}
  - {{id: make, call: "F:make", with: {{path: "{tmp_path}/made.txt"}}, outputs: ["made.txt"]}}
"""
    )
    bad = spec(
        f"""
steps:
  - {{id: make, call: "F:make", with: {{path: "{tmp_path}/x", really: false}}, outputs: ["other.txt"]}}
""",
        "bad",
    )
    async with opened(url, good, bad) as app:
        await result_of(app, await app.start_as("r1", good, directory=str(tmp_path)))
        assert [leaf for _, leaf, _ in RAN] == ["make#1", "use#1"]
        error = await failure_of(await app.start_as("r2", bad, directory=str(tmp_path)))
        assert error.type == "OutputMissing"


async def test_no_more_runs_at_the_same_time_than_allowed(url: str) -> None:
    workflow = spec(
        """
max_parallel: 2
parameters: {k: "1:6"}
steps: [{id: "a_{k}", needs: [], call: "F:value"}, {id: q, needs: [], ask: "still there?"}]
"""
    )
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await until_event(app, "r1", "step_completed", 6)
        await until_status(app, "r1", "awaiting_input")
        await run.answer("yes")
        await result_of(app, run)
        open_now, most = 0, 0
        for event in await log_of(app, "r1"):
            if isinstance(event.body, e.StepStarted) and event.body.leaf.startswith("a_"):
                open_now += 1
            elif isinstance(event.body, e.StepCompleted) and event.body.leaf.startswith("a_"):
                open_now -= 1
            most = max(most, open_now)
    assert most == 2


# ---- cancel, pause, other runners


async def test_a_cancelled_run_ends_and_its_question_with_it(url: str) -> None:
    workflow = spec("steps: [{id: q, ask: {title: sure, kind: confirm}}, {id: a, call: 'F:value'}]")
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await until_status(app, "r1", "awaiting_input")
        await run.cancel("not today")
        with pytest.raises(buoy.RunCancelled, match="not today"):
            await run.result()
        assert RAN == []


async def test_a_paused_run_starts_nothing_and_goes_on_later(url: str) -> None:
    workflow = spec("steps: [{id: q, ask: go}, {id: a, call: 'F:value'}]")
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await until_status(app, "r1", "awaiting_input")
        await run.pause()
        await until_status(app, "r1", "paused")
        await run.resume()
        await until_status(app, "r1", "awaiting_input")
        await run.answer("x")
        await result_of(app, run)
    assert times("r1", "a#1") == 1


async def test_a_runner_without_the_functions_leaves_the_run_to_one_that_has_them(any_url: str) -> None:
    workflow = spec("steps: [{id: a, call: 'F:value', with: {x: 4}}]\nresult: '{{ steps.a }}'")
    async with buoy.connect(any_url) as client:
        await client.start_as("r1", workflow)
        async with buoy.open(any_url, specs=True) as unable:
            assert unable.runner is not None
            await until(lambda: unable.runner.specs.unable == {"spec:x"})  # type: ignore[union-attr]
            async with opened(any_url) as app:
                assert await result_of(app, await app.get("r1")) == 4


async def test_a_run_that_its_starter_cannot_drive_is_made_for_others(url: str) -> None:
    workflow = spec("steps: [{id: a, call: 'F:value', with: {x: 4}}]\nresult: '{{ steps.a }}'")
    async with buoy.open(url, workflows=[workflow]) as unable:
        await unable.start_as("r1", workflow)
        await unable.store.wait_for_change(0.2)
        assert await types_of(unable, "r1") == ["workflow_created"]
        async with opened(url) as app:
            assert await result_of(app, await app.get("r1")) == 4


async def test_a_runner_that_takes_no_specs_takes_none(url: str) -> None:
    workflow = spec("steps: [{id: a, call: 'F:value'}]")
    async with buoy.connect(url) as client:
        await client.start_as("r1", workflow)
        async with opened(url, specs=False) as app:
            await app.store.wait_for_change(0.2)
            assert (await types_of(app, "r1")) == ["workflow_created"]


async def test_a_missing_definition_is_told_and_the_run_is_not_lost(url: str) -> None:
    workflow = spec("steps: [{id: a, call: 'F:value'}]")
    async with store_at(url) as store:
        await plant(
            store,
            "r1",
            [e.Event(1, 1.0, e.WorkflowCreated(workflow="spec:x", input=e.NULL, version="0" * 32), nonce="n")],
        )
    async with opened(url, workflow) as app:
        assert app.runner is not None
        await until(lambda: "is not in" in str(app.runner.troubles()[1]))  # type: ignore[union-attr]
        assert (await until_status(app, "r1", "paused")).version == "0" * 32


# ---- replay

EVERYTHING = """
parameters: {k: "1:2"}
steps:
  - id: gather
    needs: []
    modules:
      - {id: fetch, call: "F:value", with: {x: 3}}
      - {id: review, ask: {title: "ok?", kind: confirm}}
      - {id: ask, call: "F:threaded", with: {x: "{{ modules.fetch }}"}}
  - {id: "train_{k}", needs: [gather], call: "F:value", with: {x: "{k}"}}
  - {id: never, needs: [gather], call: "F:value", when: "not steps.gather.review"}
  - {id: flaky, needs: [], call: "F:flaky", with: {good_from: 2}, retries: 1, backoff: 1ms}
  - {id: question, needs: [], ask: {title: "which?", options: [a, b]}}
  - {id: end, needs: ["train_{k}", never, flaky], call: "F:value", with: {x: "{{ steps.flaky }}"}}
result:
  - "{{ steps.train_{k} }}"
  - "{{ steps.question }}"
  - "{{ steps.end }}"
  - "{{ steps.gather.ask.x }}"
  - "{{ steps.never }}"
"""
EXPECTED = [[1, 2], "b", 2, 3, None]


async def answer_all(app: Client, run: Run[Any]) -> None:
    """Answers whatever is asked, until the run ends."""
    while not (document := await run.document()).ended:
        for leaf in document.open:
            if leaf.question_id is not None:
                with suppress(buoy.WrongState, buoy.UnknownQuestion):  # answered already
                    await run.answer(True if leaf.leaf.startswith("gather") else "b", leaf.question_id)
        await asyncio.sleep(LOOK_S)


def as_of(run: str, message: Message) -> Message:
    """The message as one to another run: question ids hold the run's id."""
    return msgspec.convert(
        {
            "run_id": run,
            "kind": message.kind,
            "dedupe": message.dedupe.replace("whole", run),
            "body": msgspec.Raw(bytes(message.body).replace(b"whole", run.encode())),
        },
        Message,
    )


def completed_leaves(log: list[e.Event]) -> set[str]:
    return {
        str(event.body.leaf)
        for event in log
        if isinstance(event.body, e.StepCompleted | e.ModuleCompleted | e.InteractionResponse)
    }


async def test_every_prefix_of_a_log_goes_on_to_the_same_end(url: str) -> None:
    workflow = spec(EVERYTHING)
    async with opened(url, workflow) as app:
        run = await app.start_as("whole", workflow)
        await answer_all(app, run)
        assert await run.result() == EXPECTED
        log = await log_of(app, "whole")
        messages = await app.store.inbox(RunId("whole"))
    assert len(log) > 25
    prefixes = {f"cut-{count:02}": renamed(log[:count], "whole", f"cut-{count:02}") for count in range(1, len(log))}
    async with store_at(url) as store:
        for name, prefix in prefixes.items():
            read = {getattr(event.body, "message", None) for event in prefix}
            await plant(store, name, prefix, [as_of(name, each) for each in messages if each.number in read])
    async with opened(url, workflow) as app:
        runs = {name: await app.get(name) for name in prefixes}
        await asyncio.gather(*(answer_all(app, run) for run in runs.values()))
        for name, run in runs.items():
            assert await run.result() == EXPECTED, name
            again = {leaf for leaf in completed_leaves(prefixes[name]) if times(name, leaf)}
            assert again == set(), f"{name} executed completed leaves again"
            final = await log_of(app, name)
            state = await state_of(app, name)
            assert state.anomalies == [], name
            assert completed_leaves(final) == completed_leaves(log), name


async def test_a_cancel_that_came_when_all_was_done_ends_nothing_else(url: str) -> None:
    workflow = spec('steps: [{id: one, call: "F:value", with: {x: 3}}]\nresult: "{{ steps.one }}"')
    async with opened(url, workflow) as app:
        assert await result_of(app, await app.start_as("whole", workflow)) == 3
        log = await log_of(app, "whole")
    # As a run that was paused while its last step was under way, and got both messages at once.
    late = [e.Paused(reason="user"), log[-2].body, e.Resumed(), e.CancelRequested(reason="too late")]
    events = [*log[:-2], *(e.Event(log[-2].seq + at, log[-2].at, body) for at, body in enumerate(late))]
    async with store_at(url) as store:
        await plant(store, "late", renamed(events, "whole", "late"))
    async with opened(url, workflow) as app:
        assert await result_of(app, await app.get("late")) == 3


async def test_a_log_of_another_spec_pauses_the_run_with_the_difference(url: str) -> None:
    workflow = spec("steps: [{id: a, call: 'F:value'}, {id: q, ask: go}]")
    async with opened(url, workflow) as app:
        await app.start_as("r1", workflow)
        await until_status(app, "r1", "awaiting_input")
        log = await log_of(app, "r1")
    for wrong, why in (("b#1", "has no step 'b'"), ("q#1", "before all that it needs is over")):
        changed = renamed(renamed(log[:3], '"a#1"', f'"{wrong}"'), "r1", f"r-{wrong[0]}")
        async with store_at(url) as store:
            await plant(store, f"r-{wrong[0]}", changed)
        async with opened(url, workflow) as app:
            state = await until_status(app, f"r-{wrong[0]}", "paused")
            assert state.pause is not None
            assert why in str(state.pause.detail)


async def test_a_module_is_found_by_its_name_not_by_its_place(url: str) -> None:
    """Two starts of one module after a crash must not let the next one be passed over."""
    workflow = spec(
        "steps: [{id: s, modules: [{id: a, call: 'F:value'}, {id: b, call: 'F:value'}, {id: c, call: 'F:value'}]}]"
    )
    async with opened(url, workflow) as app:
        await result_of(app, await app.start_as("whole", workflow))
        log = await log_of(app, "whole")
    started = next(event for event in log if isinstance(event.body, e.ModuleStarted) and event.body.module == "b")
    cut = log[: started.seq]
    again = e.Event(started.seq + 1, started.at, started.body, nonce="again")
    async with store_at(url) as store:
        await plant(store, "r1", renamed([*cut, again], "whole", "r1"))
    RAN.clear()
    async with opened(url, workflow) as app:
        await result_of(app, await app.get("r1"))
    assert [leaf for _, leaf, _ in RAN] == ["s/b#1", "s/c#1"]


async def test_a_retry_by_hand_keeps_what_was_completed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = spec(
        """
steps:
  - {id: a, call: "F:value", needs: []}
  - {id: b, call: "F:fails", needs: [a]}
  - {id: c, call: "F:value", needs: [b]}
"""
    )
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await failure_of(run)
        assert app.runner is not None
        app.runner.specs.kit.calls._found.clear()
        monkeypatch.setattr(spec_functions, "fails", spec_functions.value)
        await app.retry("r1")
        await result_of(app, run)
    assert [times("r1", leaf) for leaf in ("a#1", "b#1", "c#1")] == [1, 2, 1]


async def test_going_back_into_a_step_runs_its_later_modules_again(url: str) -> None:
    workflow = spec(
        "steps: [{id: s, modules: [{id: a, call: 'F:value'}, {id: b, call: 'F:value'}, {id: c, call: 'F:value'}]},"
        " {id: t, call: 'F:value'}]"
    )
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await result_of(app, run)
        await app.jump("r1", "s/b#1")
        await result_of(app, run)
        assert (await state_of(app, "r1")).anomalies == []
        assert [times("r1", leaf) for leaf in ("s/a#1", "s/b#1", "s/c#1", "t#1")] == [1, 2, 2, 2]
        await app.jump("r1", "s#1")
        await result_of(app, run)
        assert [times("r1", leaf) for leaf in ("s/a#1", "s/b#1", "s/c#1", "t#1")] == [2, 3, 3, 3]
        assert (await state_of(app, "r1")).anomalies == []


async def test_thousands_of_steps_do_not_take_the_square_of_the_time(url: str) -> None:
    workflow = spec("parameters: {k: '1:3000'}\nsteps: [{id: 'a_{k}', call: 'F:value'}, {id: end, call: 'F:value'}]")
    async with opened(url, workflow) as app:
        run = await app.start(workflow)
        assert (await run.result())["completed"] == 3001
        assert (await state_of(app, RunId(run.id))).anomalies == []


def test_a_spec_that_no_log_could_hold_is_refused_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.engine.spec.workflow.SPEC_LOG_EVENTS_MAX", 1_100)
    many = "parameters: {k: '1:%d'}\nsteps: [{id: 'a_{k}', modules: [{id: m, ask: 'Well?'}]}]"
    spec(many % 16)
    with pytest.raises(
        buoy.BadSpec, match="17 steps make at least 102 events, and the log of a spec's run holds 1,100"
    ):
        spec(many % 17)
    # Parameters that are given at the start count, too.
    with pytest.raises(buoy.TooLarge, match="17 steps"):
        workflow = spec(many % 16)
        workflow.arguments.decode(workflow.arguments.encode((), {"k": list(range(17))}))


async def test_the_log_of_a_spec_may_be_longer_than_that_of_code(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.engine.run.leaves.LOG_EVENTS_MAX", 20)
    workflow = spec("parameters: {k: '1:30'}\nsteps: [{id: 'a_{k}', call: 'F:value', needs: []}]")
    async with opened(url, workflow) as app:
        assert (await (await app.start(workflow)).result())["completed"] == 30
