"""Opening: takes a run over: claims it, replays its code against its log, and delivers what came since.

Invariants: all that taking a run over leads to is one commit; a replay that ends in a difference or in an error leaves
nothing behind but the claim and the pause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from buoy.core.log import events as e
from buoy.core.log.state import fold
from buoy.core.remedy.version_fit import worth_retrying
from buoy.errors import BadInput, Diverged
from buoy.ports.records import Message

if TYPE_CHECKING:
    from buoy.engine.run.execution import Execution


class Opening:
    """The beginning of one execution of a run that has a log."""

    def __init__(self, execution: Execution, log: Sequence[e.Event]) -> None:
        self._execution = execution
        self._log = log
        self._claim: Sequence[e.Body] = ()
        self.under_way = False
        # The end that the code came to, kept until all of the log was delivered.
        self.ending: e.Ending | None = None

    async def take_over(self, claimed: e.Claimed | None, messages: Sequence[Message]) -> None:
        """Claims the run (None: that is done), replays its code and delivers what it has not seen."""
        execution = self._execution
        state, mailbox = execution.state, execution.mailbox
        new_code = worth_retrying(state.pause, state.version, execution.workflow.version) or self._input_fits_now()
        expired = self._pause_is_over()
        if state.pause is not None and not new_code and not expired and not mailbox.controls(messages):
            mailbox.mark_seen(messages)
            execution.ledger.task_change = None
            return
        claim: list[e.Body] = [] if claimed is None else [claimed]
        if new_code:
            version = execution.workflow.version
            claim.append(e.Resumed(by=f"code of version {version}", version=version))
        elif expired:
            claim.append(e.Resumed(by="the end of its pause"))
        self._claim = claim
        for body in claim:
            execution.record(body)
        if state.pause is not None:
            mailbox.take_controls(messages)
        self.under_way = True
        fits = state.pause is None and await self._replay()
        if fits:
            execution.code.catch_up()
        if fits and execution.code.begun:
            mailbox.take(messages)
            execution.children.catch_up()
        if not execution.code.begun:  # nothing was consumed; but what was looked at must not wake the run forever
            mailbox.mark_seen(messages)

    def _input_fits_now(self) -> bool:
        """Whether the run was paused for code that did not take its input, and this code does."""
        pause, created = self._execution.state.pause, self._execution.state.created
        if pause is None or pause.reason != "input" or created is None:
            return False
        return self._execution.workflow.arguments.fit(created.input)

    def _pause_is_over(self) -> bool:
        pause = self._execution.state.pause
        return pause is not None and pause.expires_at is not None and pause.expires_at <= self._execution.ledger.now()

    async def _replay(self) -> bool:
        """Brings the code to where the log ends. False: code and log disagree, and the run is paused."""
        execution = self._execution
        try:
            execution.code.make()
        except BadInput as error:
            return self._misfit(error)
        except Exception as error:  # noqa: BLE001 - see `fail_safely`
            execution.fail_safely(error)
            return True
        execution.replaying = True
        try:
            await execution.code.replay(self._log, execution.ledger.pending)
            execution.replaying = False
            if self.ending is not None:
                execution.history.finish()
                execution.bind()
                execution.end(self.ending)
            else:
                execution.code.check_replayed()
        except (Diverged, BadInput) as error:
            execution.replaying = False
            execution.diverged(error)
            return False
        except Exception as error:  # noqa: BLE001 - see `fail_safely`
            execution.replaying = False
            execution.fail_safely(error)
        finally:
            execution.replaying = False
        return True

    def _misfit(self, error: BadInput) -> bool:
        """The run's input does not fit the parameters of its code, and the run waits for code that takes it.

        It was accepted once: a deploy must not end queued runs. To cancel a run before its first leaf needs no code.
        """
        execution, state = self._execution, self._execution.state
        if state.cancel is not None and not state.leaves and not state.branch_count:
            execution.end(e.WorkflowCancelled(reason=state.cancel.reason))
            return True
        execution.diverged(error, reason="input")
        return False

    def start_over(self) -> bool:
        """Forgets all that the replay asked for, but not the claim. False: the run was taken over before."""
        self.ending = None
        if not self._log:
            return False
        execution = self._execution
        execution.state = fold(execution.run_id, self._log)
        execution.ledger.start_over(execution.state)
        for body in self._claim:
            execution.record(body)
        return True

    def over(self) -> None:
        """The run is taken over, or held."""
        self.under_way = False
        self._log = ()
