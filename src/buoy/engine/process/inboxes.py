"""Inboxes: delivers new messages to the runs that this runner drives, also while other runs are replayed.

Invariants: a message is marked as seen only after its run has taken it; where the run's next commit says so, it is not
written twice. A run takes messages only when its replay is over, or when its creation is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from buoy.core.limits import INBOX_PAGE
from buoy.engine.process.polling import PollLoop
from buoy.errors import Unavailable

if TYPE_CHECKING:
    from buoy.core.ids import RunId
    from buoy.engine.process.runner import Runner
    from buoy.engine.run.execution import Execution


class InboxLoop:
    """The loop that reads messages."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._put_off = False
        # Runs whose last commit was durable at the last look, and that had nothing new to read.
        self._read_up: set[RunId] = set()
        self.round = PollLoop(runner, "inboxes", self._look)

    def opened(self) -> None:
        """A run was replayed: it can take messages now."""
        if self._put_off:
            self.round.wake()

    async def _look(self) -> bool:
        self._put_off = False
        await self.read()
        return False

    async def read(self) -> None:
        """Reads every inbox with unseen messages."""
        runner = self._runner
        read_up, self._read_up = self._read_up, set()
        if not runner.executions:
            return  # a look is a request, and there is no run that could take a message
        for run_id in await runner.store.unread_runs(runner.id):
            execution = runner.executions.get(run_id)
            if execution is None or execution.detached:
                continue
            if execution.opening or not execution.ledger.durable_seq:
                # Not durable: its creation may be fenced by a run that is just being taken here, and a message that it
                # called seen would never reach that run.
                self._put_off = True
                continue
            try:
                await self._read(run_id, execution, again=run_id in read_up)
            except Unavailable:
                raise  # the store is away, for every run
            except Exception as error:  # noqa: BLE001 - one inbox that cannot be read must not hide the others
                runner.note(f"run {run_id}: its inbox cannot be read: {error}", error)

    async def _read(self, run_id: RunId, execution: Execution, *, again: bool) -> None:
        runner, mailbox, ledger = self._runner, execution.mailbox, execution.ledger
        news = False
        while page := await runner.store.inbox(run_id, mailbox.seen, INBOX_PAGE):
            news, before = True, mailbox.seen
            execution.take(page)
            if mailbox.seen - before < INBOX_PAGE or execution.opening or execution.detached:
                break  # that was the last page, or the run holds at a message and leaves the rest
        if not news and ledger.idle:
            self._read_up.add(run_id)
        # `again`: a durable commit has marked them as read, but the store does not show it.
        if not ledger.tells(mailbox.seen) or (again and not news):
            await runner.store.mark_read(run_id, runner.id, mailbox.seen)
