"""Facts that hold for every log, every value and every answer that can be thought of."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from buoy.core.durations import seconds
from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.codec import decode, decode_events, encode, encode_events
from buoy.core.log.document import document
from buoy.core.log.lifecycle import TERMINAL, Status, allowed
from buoy.core.log.lineage import hidden_at, visible
from buoy.core.log.questions import Question, check_answer, check_question
from buoy.core.log.state import HANDLERS, State, fold
from buoy.errors import BadInput, CorruptLog

from .logbook import RUN, claimed, completed, created, log, one_by_one, retrying, seqs, started

LEAVES = st.sampled_from([LeafId(text) for text in ("a#1", "a#2", "b#1", "g.1/a#1", "g.2/a#1")])
MESSAGES = st.none() | st.integers(1, 5)
TIMES = st.floats(0, 1e9, allow_nan=False)
ERRORS = st.builds(e.ErrorInfo, type=st.just("ValueError"), message=st.text(max_size=5), retryable=st.booleans())
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
RAWS = st.sampled_from([msgspec.Raw(text) for text in (b"null", b"true", b'{ "n" : 1.50 }', b'["\\u00e4"]')])
BY_FIELD: dict[str, st.SearchStrategy[Any]] = {
    "leaf": LEAVES,
    "to": LEAVES,
    "message": MESSAGES,
    "due_at": TIMES,
    "error": ERRORS,
    "attempt": st.integers(1, 3),
    "evidence": st.just({}),
    "parent": st.none(),
    "child": st.just(RunId("child-1")),
    "leaves": st.lists(LEAVES, max_size=2).map(tuple),
    "limits": st.just({}),
    "changes": st.just(()),
    "items": st.lists(st.builds(e.PublishedItem, step=LEAVES, value=RAWS), max_size=2).map(tuple),
    "question": st.builds(Question, title=st.just("Go?"), kind=st.just("confirm")),
}


def payloads(kind: type[e.Payload]) -> st.SearchStrategy[Any]:
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(kind):
        if kind in (e.MessageRefused, e.JobsEnded) and field.name == "message":
            fields[field.name] = st.integers(1, 5)
        elif kind is e.JobsEnded and field.name == "lot":
            fields[field.name] = st.just(RunId("child-1"))
        elif field.name in BY_FIELD:
            fields[field.name] = BY_FIELD[field.name]
        elif field.type is msgspec.Raw:
            fields[field.name] = RAWS
        elif field.type is str:
            fields[field.name] = st.sampled_from(["x", "y", "completed"])
        elif field.required:
            fields[field.name] = st.integers(0, 5)
    return st.builds(kind, **fields)


BODIES = st.one_of([payloads(kind) for kind in e.BODIES if kind is not e.BranchCreated])


# Cutoff and parent are drawn as shares of what is there when the branch begins.
SHARES = st.floats(0, 1)
BRANCHES = st.builds(
    lambda parent, cutoff, kept, dropped, cause: (parent, cutoff, tuple(kept), tuple(dropped), cause),
    SHARES,
    SHARES,
    st.lists(LEAVES, max_size=2),
    st.lists(LEAVES, max_size=2),
    st.sampled_from(["recovery", "jump", "retry", "restart"]),
)


def written(sound: bool, moves: list[Any]) -> list[e.Event]:
    """Any events in any order, perhaps after a sound beginning; branches have a sound parent."""
    bodies: list[e.Body] = [created(), e.Claimed(runner="r1", cause="created")] if sound else []
    branch = 0
    for move in moves:
        if isinstance(move, tuple):
            parent, cutoff, kept, dropped, cause = move
            bodies.append(
                e.BranchCreated(
                    branch=BranchId(branch + 1),
                    parent=BranchId(round(parent * branch)),
                    cutoff_seq=round(cutoff * len(bodies)),
                    kept=kept,
                    dropped=dropped,
                    cause=cause,
                )
            )
            branch += 1
        else:
            bodies.append(move)
    return log(*bodies)


def logs(*, branching: bool = True, length: int = 25) -> st.SearchStrategy[list[e.Event]]:
    moves = st.one_of(BODIES, BODIES, BODIES, BRANCHES) if branching else BODIES
    return st.builds(written, st.booleans(), st.lists(moves, max_size=length))


def open_by_meaning(state: State) -> int:
    return state.active + sum(state.tally.values())


@given(logs())
def test_any_log_folds_to_a_state_that_agrees_with_itself(events: list[e.Event]) -> None:
    state = fold(RUN, events)
    assert state.head_seq == len(events)
    assert set(state.open) <= set(state.leaves)
    assert open_by_meaning(state) == len(state.open)
    assert all(count >= 0 for count in (state.active, *state.tally.values()))
    for leaf in state.open.values():
        assert leaf.phase in (("open", "retrying", "held") if leaf.kind == "job" else ("open", "retrying"))
    assert state.held == sum(leaf.phase == "held" for leaf in state.open.values())
    assert (state.status == Status.PAUSED) <= (state.pause is not None)
    if state.created is not None:
        assert document(state) == document(fold(RUN, events))


def by_transitions(events: list[e.Event]) -> State:
    """Each event by its transition alone."""
    state = State(run_id=RUN)
    for event in events:
        if not allowed(state.status, type(event.body)):
            state.odd(f"event {event.seq}: {event.type} while {state.status or 'not created'}")
        if not HANDLERS[type(event.body)](state, event, event.body):
            state.settle()
        state.head_seq, state.updated_at = event.seq, event.at
    return state


GROUPS = st.builds(e.StepStarted, leaf=LEAVES, name=st.just("x"), group=st.just(True))
ENDS_WELL = st.builds(e.StepCompleted, leaf=LEAVES)
BESIDE = [payloads(kind) for kind in (e.StepStarted, e.StepCompleted, e.RetryScheduled, e.SignalWaited)]
STEPS = st.one_of(ENDS_WELL, GROUPS, *BESIDE)
# `one_of` alone would draw each kind as often as every other.
MOSTLY_STEPS = st.integers(0, 5).flatmap(lambda drawn: BODIES if drawn == 5 else STEPS)


@given(st.builds(written, st.just(True), st.lists(MOSTLY_STEPS, max_size=25)))
@example(log(created(), claimed(), started("a#1"), retrying("a#1"), started("a#1", 2), completed("a#1")))
@example(log(created(), claimed(), started("a#1"), completed("a#1", message=1)))
@settings(max_examples=300)
def test_a_fold_adds_steps_as_their_transitions_do(events: list[e.Event]) -> None:
    state = State(run_id=RUN)
    state.apply_all(events)
    assert state == by_transitions(events)


@given(logs())
def test_an_event_is_hidden_from_the_branch_on_that_no_longer_shows_it(events: list[e.Event]) -> None:
    hidden = hidden_at(events)
    assert set(hidden) == set(seqs(events)) - set(seqs(visible(events)))
    for seq, since in hidden.items():
        assert isinstance(events[since - 1].body, e.BranchCreated)
        assert seq in seqs(visible(events[: since - 1]))
        assert seq not in seqs(visible(events[:since]))


@given(logs(branching=False), st.data())
def test_without_branches_a_folded_prefix_goes_on_like_the_whole(events: list[e.Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    state = fold(RUN, events[:cut])
    for event in events[cut:]:
        state.apply(event)
    assert state == fold(RUN, events) == one_by_one(events)


@given(logs(), st.data())
def test_after_the_last_branch_a_folded_prefix_goes_on_like_the_whole(
    events: list[e.Event], data: st.DataObject
) -> None:
    last = max((event.seq for event in events if isinstance(event.body, e.BranchCreated)), default=0)
    cut = data.draw(st.integers(last, len(events)))
    state = fold(RUN, events[:cut])
    for event in events[cut:]:
        state.apply(event)
    assert state == fold(RUN, events)


@given(logs())
def test_the_visible_events_are_a_part_of_the_log_in_its_order(events: list[e.Event]) -> None:
    shown = visible(events)
    assert seqs(shown) == sorted(set(seqs(shown)))
    assert all(event in events for event in shown)
    assert [event for event in events if e.is_run_level(event.body)] == [
        event for event in shown if e.is_run_level(event.body)
    ]


@given(logs())
def test_to_look_twice_shows_the_same(events: list[e.Event]) -> None:
    shown = visible(events)
    assert visible(shown) == shown


@given(logs())
def test_only_visible_events_count_for_leaves_and_messages(events: list[e.Event]) -> None:
    shown = visible(events)
    state = fold(RUN, events)
    assert state.consumed == {getattr(event.body, "message", None) for event in shown} - {None}
    begun = {e.leaf_of(event.body) for event in shown}
    assert {LeafId(leaf.partition("!")[0]) for leaf in state.leaves} <= begun


@given(logs())
def test_events_come_back_as_they_were(events: list[e.Event]) -> None:
    assert decode_events(encode_events(events)) == events


@given(logs(length=4), st.data())
def test_damaged_bytes_are_read_or_refused_as_corrupt(events: list[e.Event], data: st.DataObject) -> None:
    stored = bytearray(encode_events(events))
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_events(bytes(stored))
    except CorruptLog:
        return
    assert len(found) == len(events)


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value: object) -> None:
    assert decode(encode(value, "it"), Any, "it") == value


SCHEMAS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["object", "array", "integer", "string", "nothing"]),
        "properties": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from([{}, {"type": "string"}, True, 5])),
        "multipleOf": st.sampled_from([3, 0.1, 1e-300, 0]),
        "pattern": st.sampled_from(["^a", "(", "["]),
        "$ref": st.sampled_from(["#", "#/properties/a", "#/nowhere", "other.json", "http://127.0.0.1:9/x"]),
        "items": st.sampled_from([{"$ref": "#"}, False]),
        "enum": st.lists(PLAIN, max_size=2),
        "const": PLAIN,
        "maxLength": st.integers(0, 3),
        "uniqueItems": st.booleans(),
    },
)
QUESTIONS = st.builds(
    Question,
    title=st.sampled_from(["Go?", ""]),
    kind=st.sampled_from(["confirm", "choose", "choose_many", "text", "form"]),
    options=st.sampled_from([(), ("yes", "no")]),
    schema=st.none() | SCHEMAS,
)
ANSWERS = PLAIN | st.floats() | st.lists(st.sampled_from(["yes", "no"])) | st.sampled_from(["yes", "no", 10**400])


@settings(max_examples=300)
@given(QUESTIONS, ANSWERS)
def test_an_answer_to_a_sound_question_is_taken_or_refused_and_nothing_else(question: Question, answer: object) -> None:
    try:
        check_question(question)
        found = check_answer(question, answer)
    except BadInput:
        return
    assert check_answer(question, found) == found or found != found


@given(st.text() | st.floats() | st.integers() | st.none() | st.timedeltas() | st.booleans())
def test_a_duration_is_read_or_refused_and_nothing_else(value: Any) -> None:
    try:
        assert 0 <= seconds(value) < 1e10
    except BadInput:
        return


def test_the_strategies_reach_every_status() -> None:
    """Or the facts above would be facts about little."""
    found: set[Status | None] = set()

    @settings(max_examples=500, database=None, derandomize=True)
    @given(logs())
    def look(events: list[e.Event]) -> None:
        found.add(fold(RunId("r"), events).status)

    look()
    assert found >= TERMINAL | {Status.PENDING, Status.RUNNING, Status.PAUSED, Status.INTERRUPTED, Status.WAITING}
