"""Catalogue: every trouble, or apparent trouble, that a diagnosis can find. Data only.

Invariant: the docs page, `buoy why` and the web page are generated from this table, so they cannot disagree with it. A
code never changes its meaning.
"""

from __future__ import annotations

from buoy.core.advice import Blank, Hint
from buoy.core.diagnosis.allocation_entries import ALLOCATION_ENTRIES
from buoy.core.diagnosis.catalogue_entry import Entry

_RECOVER = (
    Hint("do it now", ("recover", "RUN")),
    Hint("see first what it would do", ("recover", "RUN", "--dry-run")),
)
_ANSWER = Hint("answer it", ("answer", "RUN", Blank("ANSWER")))
_WORKER = Hint("start a worker that can run it", ("worker", Blank("FILE.py")))
# R2: what is done about a document that is wrong, and about one that is ahead of its log.
REWRITTEN = "The log is the truth: Buoy rewrites the document from it."
LOSS_WRITTEN_DOWN = (
    "Buoy first records in the log that events may have been lost (workflow_recovered, with both event numbers). The "
    "run continues where its log ends. Steps that completed in lost events run again, with the same idempotency keys."
)


_ENTRIES = (
    Entry(
        code="A1",
        word="answer not taken up",
        title="Status awaiting_input, but no question is open",
        how="A question was answered and the run moved on, but its process ended before its summary said so.",
        remedy="Buoy continues the run after its last recorded result or answer. Completed steps and answers are kept; "
        "the question is not asked again. In the log: a new branch at the last step_completed, module_completed or "
        "interaction_response.",
        you_can=_RECOVER,
    ),
    Entry(
        code="A2",
        word="question without an owner",
        title="Status running, but a question is open and no process drives the run",
        how="The run asked its question, and its process ended before its summary said so.",
        remedy="Buoy goes back to just before the question and asks it again, under the same id. Completed steps keep "
        "their results. In the log: a new branch at module_started, or before the question where code asks by itself.",
        you_can=_RECOVER,
    ),
    Entry(
        code="A3",
        word="end not recorded",
        title="Status running, but every step of the spec has completed",
        how="The last step completed, and its process ended before the end of the run was recorded.",
        remedy="Buoy records the end that is missing: a worker takes the run, finds all steps completed and completes "
        "the run. No step is executed again. In the log: a new branch at the last module_completed or step_completed.",
        you_can=_RECOVER,
    ),
    Entry(
        code="A4",
        word="failure not handled",
        title="A step failed, and the run did not react",
        how="A failure was recorded, and the process ended before the run could react.",
        remedy="By class of the error. transient: run again on a branch cut before it, at most 3 times; resource "
        "(memory, time): the same, at most twice, with the limits that it has (the audit notes by which factor it may "
        "need more; Buoy itself raises none); permanent: the run undoes its completed steps and fails; "
        "misconfiguration: on hold for a person; unknown: by the run's policy.",
        you_can=(Hint("correct the cause, if it lies with you"), *_RECOVER),
    ),
    Entry(
        code="NS",
        word="nothing to go back to",
        title="A branch is needed, but no stable event was found",
        how="The run was damaged before anything in it had completed.",
        remedy="A new branch at 0: the run begins again from the start, and its audit event says so.",
        you_can=_RECOVER,
    ),
    Entry(
        code="B1",
        word="open question",
        title="A question is open",
        trouble=False,
        how="The run asked a person and waits.",
        remedy="A run may wait for an answer as long as it takes.",
        you_can=(_ANSWER,),
    ),
    Entry(
        code="B2",
        word="old question",
        title="A question has been open for long",
        trouble=False,
        how="The person who was asked has not answered for a week or more.",
        remedy="The answer is welcome at any time; questions have no time-out of their own.",
        you_can=(_ANSWER,),
    ),
    Entry(
        code="C1",
        word="step under way",
        title="A module or step was started and has not completed",
        trouble=False,
        how="The process ended while it was under way, or it still executes.",
        remedy="The next owner executes it again, with the same idempotency key.",
    ),
    Entry(
        code="C2",
        word="step half done",
        title="A step was started, and some of its modules have not completed",
        trouble=False,
        how="The process ended between two modules, or the step still executes.",
        remedy="The next owner continues with the first module that has no result.",
    ),
    Entry(
        code="D1",
        word="unused branch",
        title="A branch that nothing leads to",
        trouble=False,
        how="A branch was recorded, and the run continued on another one.",
        remedy="No lineage refers to it; it does no harm.",
    ),
    Entry(
        code="D2",
        word="half a jump",
        title="A jump was recorded, but its branch is not active",
        how="The jump was written down, and the process ended before the run moved to its branch.",
        remedy="A new branch at the event before the jump; the run continues as if the jump had not been requested.",
        you_can=(*_RECOVER, Hint("afterwards ask for the jump again", ("jump", "RUN", Blank("STEP")))),
    ),
    Entry(
        code="E1",
        word="no version",
        title="The run names no version",
        how="It comes from another system, or from a Buoy without versions.",
        remedy="Code: nothing, it is bound to the code that takes it and fits. A spec: it is bound to its first "
        "version if that is known, else it is paused for a person: the store does not say what to run.",
        you_can=(
            Hint("bind it to the spec that it is of", ("migrate", "RUN", "--spec", Blank("FILE.yaml"))),
            *_RECOVER,
        ),
    ),
    Entry(
        code="E2",
        word="version missing",
        title="The run's version is not in this store",
        how="The definition was never copied here, or was removed by hand.",
        remedy="It is bound to the version that it began with if that is here, else paused for a person: it cannot "
        "continue without a definition.",
        you_can=(
            Hint(
                "start the same spec in this store once, so that its definition is there", ("run", Blank("SPEC.yaml"))
            ),
            Hint("then continue the run", ("resume", "RUN")),
        ),
    ),
    Entry(
        code="F1",
        word="watched, not executed",
        title="A client watches live, but no runner executes",
        how="The process that drove the run ended, and a stream to a client stayed open.",
        remedy="The cause is recovered like any other; a run that is put off is queued at once. One that is due waits "
        "its turn, and the recovery says since when, or which worker is missing.",
        you_can=(Hint("see why", ("why", "RUN")), *_RECOVER),
    ),
    Entry(
        code="F2",
        word="executed, not watched",
        title="The run executes, and no client watches",
        trouble=False,
        how="The client went away; the run continues.",
        remedy="Events are stored with or without a watching client.",
    ),
    Entry(
        code="H1",
        word="dead worker",
        title="The runner that holds the run is dead",
        how="Its process was killed, crashed, or its machine was lost.",
        remedy="All that it held is released at once and taken over, by policy: resume, restart, fail or hold.",
        you_can=(_WORKER, *_RECOVER),
    ),
    Entry(
        code="H2",
        word="interrupted",
        title="The run was interrupted and no worker took it over",
        how="Its runner stopped in good order and gave it back.",
        remedy="It is queued again.",
        you_can=(Hint("bring it back", ("resume", "RUN")),),
    ),
    Entry(
        code="H3",
        word="no progress",
        title="The run does not move, and its owner is not proven dead",
        how="Trouble: its process is stopped, silent, does not act on what is due, or one call holds its event loop. "
        "Notice only: nothing has moved for long, and its worker is alive: a long step is healthy.",
        remedy="It is reported: as a trouble (suspect) if the owner stands still, else as a notice; silence proves no "
        "death.",
        you_can=(Hint("look at the process that is named; end it if it hangs"),),
    ),
    Entry(
        code="W1",
        word="waits for nothing",
        title="The workflow waits for something that can never come",
        how="Its code waits, for example for an asyncio.Event, and no step, question, signal, timer or child is open: "
        "no event could wake it. Certain if the log ends with an outcome, or its worker says so with a "
        "heartbeat. Until then code that was just claimed may still compute, and it is only a notice.",
        remedy="It is reported: only another code, or a cancellation, can end the wait.",
        you_can=(
            Hint("correct the code and restart the worker: code that fits the log takes the run over"),
            Hint("or cancel it", ("cancel", "RUN")),
        ),
    ),
    Entry(
        code="Q1",
        word="task missing",
        title="The run is active and has no task",
        how="The task was lost, or was never made: a damaged store, or a start that was cut off between two writes.",
        remedy="A new task is made, under the key RUN:orchestrate:GENERATION with the generation raised; nothing else "
        "is changed.",
        you_can=_RECOVER,
    ),
    Entry(
        code="Q2",
        word="task ended",
        title="The run is active and its task has ended",
        how="The run had ended and its task with it; it was brought back (jump, retry), and the new task is missing. "
        "Stores keep no ended tasks: what tells this from Q1 is an end in the log after which no runner drove it. "
        "Between two pieces of work a run keeps its task, so that an ended one is never normal.",
        remedy="A new task is made, its generation raised, so that the ended one never comes back under its key.",
        you_can=_RECOVER,
    ),
    Entry(
        code="Q3",
        word="unknown holder",
        title="The run's task is held by a runner that the store does not know",
        how="The holder's record was lost, or it comes from another store. A holder that the store knows is H1 when it "
        "is dead, and no trouble while it lives: a hold does not lapse by time.",
        remedy="The task is made due; nothing else is changed.",
        you_can=_RECOVER,
    ),
    Entry(
        code="Q4",
        word="lost wake-up",
        title="A wake-up was lost",
        how="A timer or retry is overdue, a message was not read, a child ended, or work is ready, and nothing woke "
        "the run. Found only while no runner holds it and it is not queued; a child's end also under a live owner.",
        remedy="It is queued again; the parent gets the message about its child's end again.",
        you_can=_RECOVER,
    ),
    Entry(
        code="Q5",
        word="no worker can run it",
        title="No live worker can run it",
        how="No live worker knows its workflow, or serves its queue, stack and env. Seen once the run is due.",
        remedy="It is reported, with what is missing. It stays queued; nothing is lost.",
        you_can=(_WORKER,),
    ),
    Entry(
        code="Q6",
        word="foreign document",
        title="A foreign document without a task and without workflow_created",
        how="Another system wrote it into this store. A run that Buoy drove and that has no events is R1: its log is "
        "gone.",
        remedy="It is skipped and counted; a sweep with --adopt takes it in.",
        you_can=(Hint("take it in", ("sweeper", "--once", "--adopt")),),
    ),
    *ALLOCATION_ENTRIES,
    Entry(
        code="P1",
        word="poison",
        title="The run is poison: it crashes the processes that drive it",
        how="From the third crash in a row on it was isolated, and it crashed five more times without progress.",
        remedy="It is quarantined: paused with reason poison, with the step and how the process ended.",
        you_can=(Hint("correct the step, then continue it", ("release", "RUN")),),
    ),
    Entry(
        code="R1",
        word="unreadable log",
        title="The log cannot be read",
        how="It has a gap, an unknown event or bytes that are none, or the store did not answer.",
        remedy="Nothing: what cannot be read is no evidence.",
        you_can=(
            Hint("keep a copy of the store; upgrade Buoy if the log was written by a newer one"),
            Hint("give it up: copy its bytes to a file and remove it", ("purge", "RUN", "--broken")),
        ),
    ),
    Entry(
        code="R2",
        word="wrong summary",
        title="The document and the log disagree",
        how="The document was damaged, or written by something else. Being behind the log is no disagreement. Being "
        "ahead of it may mean that events were lost: an older copy of the log was put back, or its end was cut off.",
        remedy=f"{REWRITTEN} If the document is ahead: {LOSS_WRITTEN_DOWN[0].lower()}{LOSS_WRITTEN_DOWN[1:]}",
        you_can=(
            Hint("repair it now", ("recover", "RUN")),
            Hint("or all such runs at once", ("doctor", "--fix")),
        ),
    ),
)

CATALOGUE: dict[str, Entry] = {entry.code: entry for entry in _ENTRIES}


def named(code: str) -> str:
    """A code with its words: `H1 (dead worker)`."""
    return f"{code} ({CATALOGUE[code].word})"
