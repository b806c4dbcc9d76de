"""Pictures of runs: order, parts, tries and branches, as text, Mermaid and SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec

from buoy.core.graph.folding import fold_alike
from buoy.core.graph.svg import as_svg
from buoy.core.graph.text import as_mermaid, as_text
from buoy.core.graph.view import GraphView, graph_view
from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.questions import Question
from tests.patience import cpu_s

RUN = RunId("run-1")
ERROR = e.ErrorInfo(type="ValueError", message='no <luck> & "so"')


def view_of(*bodies: e.Body | tuple[int, e.Body], **extra: object) -> GraphView:
    """A view of a log, one second between events; a pair names the branch."""
    first = e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"{}"))
    log = []
    for seq, each in enumerate((first, e.Claimed(runner="r", cause="created"), *bodies), 1):
        branch, body = each if isinstance(each, tuple) else (0, each)
        log.append(e.Event(seq, 1000.0 + seq, body, BranchId(branch)))
    return graph_view(RUN, log, now=1000.0 + len(log), **extra)  # type: ignore[arg-type]


def start(leaf: str, attempt: int = 1) -> e.StepStarted:
    name = leaf.rpartition("/")[2].partition("#")[0]
    return e.StepStarted(leaf=LeafId(leaf), name=name, attempt=attempt)


def done(leaf: str) -> e.StepCompleted:
    return e.StepCompleted(leaf=LeafId(leaf))


def links(view: GraphView) -> set[tuple[str, str]]:
    return {(view.nodes[one].leaf, view.nodes[other].leaf) for one, other in view.links}


def test_steps_one_after_another_are_a_chain() -> None:
    view = view_of(start("a#1"), done("a#1"), start("b#1"), done("b#1"), start("c#1"))
    assert links(view) == {("a#1", "b#1"), ("b#1", "c#1")}
    assert [(node.phase, view.duration_s(node)) for node in view.nodes] == [
        ("completed", 1.0),
        ("completed", 1.0),
        ("open", 0.0),
    ]


def test_concurrent_parts_fork_and_join_and_do_not_know_each_other() -> None:
    view = view_of(
        start("a#1"),
        done("a#1"),
        start("1/x#1"),
        done("1/x#1"),
        start("2/y#1"),
        start("1/x#2"),
        done("2/y#1"),
        done("1/x#2"),
        start("b#1"),
    )
    assert links(view) == {
        ("a#1", "1/x#1"),
        ("a#1", "2/y#1"),
        ("1/x#1", "1/x#2"),
        ("1/x#2", "b#1"),
        ("2/y#1", "b#1"),
    }


def test_tries_and_repetitions_after_a_crash_are_told_apart() -> None:
    leaf = LeafId("a#1")
    view = view_of(
        start("a#1"),
        e.RetryScheduled(leaf=leaf, attempt=1, due_at=5.0, error=ERROR),
        start("a#1", 2),
        e.Claimed(runner="r2", cause="taken_over"),
        start("a#1", 2),
        e.StepFailed(leaf=leaf, error=ERROR, attempt=2),
    )
    (node,) = view.nodes
    assert (node.phase, node.attempt, node.retries, node.repeats) == ("failed", 2, 1, 1)
    assert "failed, attempt 2, begun again 1 time, ValueError: no <luck>" in as_text(view)


def test_what_a_branch_hides_is_still_shown_as_hidden() -> None:
    view = view_of(
        start("a#1"),
        done("a#1"),
        start("b#1"),
        e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=4, cause="retry", dropped=(LeafId("b#1"),)),
        (1, start("b#1")),
        (1, done("b#1")),
    )
    assert [(node.leaf, node.branch, node.hidden, node.phase) for node in view.nodes] == [
        ("a#1", 0, False, "completed"),
        ("b#1", 0, True, "cancelled"),
        ("b#1", 1, False, "completed"),
    ]
    assert view.links == ((0, 2),)
    assert "-- branch 1: retry, from branch 0 at event 6" in as_text(view)


def test_every_kind_of_leaf_has_a_name_for_people() -> None:
    view = view_of(
        e.InteractionRequested(leaf=LeafId("ask#1"), question_id="q", question=Question(title="Ship it?")),
        e.InteractionResponse(leaf=LeafId("ask#1"), question_id="q", answer=msgspec.Raw(b"true")),
        e.SignalWaited(leaf=LeafId("signal#1"), name="packed"),
        e.SignalReceived(leaf=LeafId("signal#1")),
        e.TimerStarted(leaf=LeafId("timer#1"), due_at=5.0),
        e.LeafCancelled(leaf=LeafId("timer#1")),
        e.ChildStarted(leaf=LeafId("child#1"), child=RunId("c"), workflow="ship", input=msgspec.Raw(b"{}")),
        e.ChildFinished(leaf=LeafId("child#1"), child=RunId("c"), status="failed", error=ERROR),
        start("pay#2"),
        done("pay#2"),
        e.CompensationStarted(leaf=LeafId("pay#2")),
        e.CompensationCompleted(leaf=LeafId("pay#2")),
        e.WorkflowFailed(error=ERROR),
    )
    told = as_text(view)
    for text in ("✓ ask 'Ship it?'", "✓ signal packed", "⊘ timer", "✗ child ship", "✓ pay #2", "✓ undo pay#2"):
        assert text in told
    assert told.startswith("run-1  order  failed\n")


def test_a_picture_is_sound_whatever_the_names_are() -> None:
    nasty = '</text><script>alert("x")</script>&#"`\x1b[2J'
    view = view_of(
        e.SignalWaited(leaf=LeafId("a#1"), name=nasty),
        e.StepStarted(leaf=LeafId("1.2/b#1"), name=nasty),
        e.StepFailed(leaf=LeafId("1.2/b#1"), error=e.ErrorInfo(type=nasty, message=nasty)),
    )
    tree = ElementTree.fromstring(as_svg(view))
    assert not [each for each in tree.iter() if each.tag.endswith("script")]
    chart = as_mermaid(view)
    assert "<script" not in chart and "\x1b" not in chart
    assert all(line.count('"') % 2 == 0 for line in chart.splitlines())
    assert 'subgraph s1_2["part 1.2"]' in chart


def test_a_picture_of_nothing_yet_is_a_picture() -> None:
    view = view_of()
    assert as_text(view) == "run-1  order  running\n"
    ElementTree.fromstring(as_svg(view))
    assert "flowchart TD" in as_mermaid(view)


def test_a_very_long_run_is_drawn_in_part_and_in_time() -> None:
    def drawn(count: int) -> str:
        bodies = [body for number in range(count) for body in (start(f"a#{number}"), done(f"a#{number}"))]
        view = view_of(*bodies)
        assert (len(view.nodes), view.left_out) == (400, count - 400)
        return as_text(view)

    assert "19,600 more leaves" in drawn(20_000)
    # Eight times as many leaves: eight times the work, and not sixty-four times.
    assert cpu_s(lambda: drawn(20_000), 1) < 24 * cpu_s(lambda: drawn(2_500))


def fan_out(parts: int, *last: e.Body) -> list[e.Body]:
    """So many concurrent parts of two steps each."""
    bodies: list[e.Body] = [start("load#1"), done("load#1")]
    for part in range(1, parts + 1):
        bodies += [start(f"{part}/fetch#1"), done(f"{part}/fetch#1"), start(f"{part}/save#1"), done(f"{part}/save#1")]
    return [*bodies, *last, start("report#1")]


def test_parts_that_did_the_same_are_drawn_as_one_with_their_number() -> None:
    view = view_of(*fan_out(200), fold_nodes=fold_alike)
    assert [(node.leaf, node.alike) for node in view.nodes] == [
        ("load#1", 1), ("1/fetch#1", 200), ("1/save#1", 200), ("report#1", 1)
    ]  # fmt: skip
    assert links(view) >= {("load#1", "1/fetch#1"), ("1/save#1", "report#1")}
    text = as_text(view)
    assert len(text.splitlines()) == 6 and "200 similar parts, the first is 1" in text
    assert "200 times, 1.0 s to 1.0 s each" in text
    assert view_of(*fan_out(200)).left_out == 2


def test_a_part_that_failed_or_is_under_way_is_drawn_by_itself() -> None:
    failed = e.StepFailed(leaf=LeafId("91/fetch#1"), error=ERROR)
    view = view_of(*fan_out(9, start("91/fetch#1"), failed, start("92/fetch#1")), fold_nodes=fold_alike)
    assert [(node.leaf, node.alike, node.phase) for node in view.nodes if node.scope] == [
        ("1/fetch#1", 9, "completed"),
        ("1/save#1", 9, "completed"),
        ("91/fetch#1", 1, "failed"),
        ("92/fetch#1", 1, "open"),
    ]


def test_a_few_parts_are_drawn_one_by_one() -> None:
    assert all(node.alike == 1 for node in view_of(*fan_out(3), fold_nodes=fold_alike).nodes)


def test_calls_of_one_step_that_ran_side_by_side_are_drawn_as_one() -> None:
    calls = [f"work#{number}" for number in range(1, 201)]
    view = view_of(*map(start, calls), *map(done, calls), start("report#1"), done("report#1"), fold_nodes=fold_alike)
    assert [(node.leaf, node.alike) for node in view.nodes] == [("work#1", 200), ("report#1", 1)]
    assert links(view) == {("work#1", "report#1")}
    assert "200 times" in as_text(view)


def test_calls_of_one_step_one_after_another_are_drawn_one_by_one() -> None:
    chain = [each for number in range(1, 10) for each in (start(f"work#{number}"), done(f"work#{number}"))]
    assert len(view_of(*chain, fold_nodes=fold_alike).nodes) == 9


def test_an_svg_says_that_its_widths_are_not_to_scale() -> None:
    assert "not to scale" in as_svg(view_of(start("a#1"), done("a#1")))
