"""Questions: finds the question that an answer is for, or the reason why there is none.

Invariant: a refusal names its reason by a stable word. The log decides which: whether the question was answered,
withdrawn, hidden by a rewind, or never asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import Document, OpenLeaf, document
from buoy.core.log.state import fold
from buoy.engine.read_log import read_log
from buoy.errors import QuestionAnswered, UnknownQuestion

if TYPE_CHECKING:
    from buoy.engine.client.client import Client


async def find_question(client: Client, run_id: str, question_id: str | None) -> tuple[Document, OpenLeaf]:
    """The run and its open question; `question_id` may be a leaf, or None if one question is open."""
    doc = (await client.record(run_id)).document
    if doc.open_count > len(doc.open):
        # The document's list is cut; the log knows all of them.
        doc = document(await client.state(run_id), open_max=doc.open_count)
    asked = [leaf for leaf in doc.open if leaf.question_id is not None]
    if question_id is None and len(asked) == 1:
        return doc, asked[0]
    for leaf in asked:
        if question_id in (leaf.question_id, leaf.leaf):
            return doc, leaf
    known = ", ".join(str(leaf.question_id) for leaf in asked) or "none"
    if question_id is not None:
        raise refusal(doc.run_id, await read_log(client.store, doc.run_id), question_id, known)
    if asked:
        raise UnknownQuestion(f"run {doc.run_id} has several open questions, say which: {known}", reason="several_open")
    raise UnknownQuestion(f"run {doc.run_id} has no open question; it is {doc.status}", reason="none_open")


def refusal(run_id: RunId, log: Sequence[e.Event], question_id: str, known: str) -> UnknownQuestion:
    """Why a question that is not open takes no answer. `known`: the open ones, for the message."""
    asked = [each.body for each in log if isinstance(each.body, e.InteractionRequested)]
    mine = [each for each in asked if question_id in (each.question_id, each.leaf)]
    if not mine:
        return UnknownQuestion(f"run {run_id} never asked question {question_id!r}; open: {known}")
    current = fold(run_id, log).leaves.values()
    leaf = next((each for each in current if each.question_id == mine[-1].question_id), None)
    if leaf is None:
        text = f"question {question_id!r} of run {run_id} was asked on a branch that is superseded; open: {known}"
        return UnknownQuestion(text, reason="superseded")
    if leaf.phase == "completed":
        return QuestionAnswered(f"question {question_id} of run {run_id} was answered already; open: {known}")
    text = f"question {question_id!r} of run {run_id} was withdrawn without an answer; open: {known}"
    return UnknownQuestion(text, reason="withdrawn")
