"""Lanes to the database: each has a few sessions, and as many daemon threads that do its work.

Invariants: a session is used by one thread, or by one borrower, at a time. A lane opens no more sessions than it may
have, and each only when work waits for it. A session that failed is dropped, and the next work opens another one. Work
that reads is tried again once on a new session; work that writes never is, since its outcome is unclear. A call that
hangs keeps neither the event loop nor the end of the process waiting.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import psycopg

from buoy.errors import Problem
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.errors import READ_ONLY, closed, code_of, collided, translated, unreachable
from buoy.stores.postgres.read_groups import ReadGroups, ReadMany
from buoy.stores.postgres.silence import Silence

_LOG = logging.getLogger("buoy.stores")

T = TypeVar("T")
K = TypeVar("K")
Work = Callable[[Connection], T]
Connect = Callable[[], Connection]

# The work in hand may take that long after `close`; then its line is cut.
CLOSE_PATIENCE_S = 5.0
# A transaction that the server gave up for another one is tried again so often.
COLLISIONS_MAX = 5


class _Job:
    """Work that waits for a session, and the caller that waits for the work."""

    def __init__(self, work: Work[Any], loop: asyncio.AbstractEventLoop, *, repeats: bool) -> None:
        self.work = work
        self.repeats = repeats
        self.done: asyncio.Future[Any] = loop.create_future()

    def answer(self, value: object, error: BaseException | None) -> None:
        """Tells the caller, from the session's thread."""
        try:
            self.done.get_loop().call_soon_threadsafe(self._settle, value, error)
        except RuntimeError as closed_loop:
            # The caller's loop has ended with its process or its thread, and the caller with it.
            _LOG.debug("the answer of a store came too late: %s", closed_loop)

    def _settle(self, value: object, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(value)
        else:
            self.done.set_exception(error)


class Lane:
    """Up to `sessions` sessions that share one queue of work."""

    def __init__(self, connect: Connect, silence: Silence, name: str, sessions: int = 1) -> None:
        self._connect = connect
        self._silence = silence
        self._name = name
        self._sessions_max = sessions
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._waiting = 0
        self._working = 0
        self._threads: list[threading.Thread] = []
        self._open: set[Connection] = set()
        # Open and not in use. Each thread at work and each borrower holds a permit, so that there are never too many.
        self._free: list[Connection] = []
        self._permits = threading.Semaphore(sessions)
        self._closing = False

    async def run(self, work: Work[T], *, repeats: bool = False) -> T:
        """What the work gives. `repeats`: it only reads."""
        job = _Job(work, asyncio.get_running_loop(), repeats=repeats)
        with self._lock:
            if self._closing:
                raise closed(self.store_name)
            self._waiting += 1
            if self._waiting > len(self._threads) - self._working and len(self._threads) < self._sessions_max:
                self._add_thread()
        self._jobs.put(job)
        with self._silence.watch():
            found: T = await job.done
        return found

    @property
    def silence(self) -> Silence:
        return self._silence

    @property
    def store_name(self) -> str:
        return self._silence.store_name()

    def borrow(self) -> Connection | None:
        """An open session for the caller's own thread, until `give_back`. None: the lane has work, or none is open."""
        with self._lock:
            if self._closing:
                raise closed(self.store_name)
            if self._waiting or self._working or not self._free or not self._permits.acquire(blocking=False):
                return None
            return self._free.pop()

    def give_back(self, session: Connection) -> None:
        """Ends a loan. A session that its borrower has closed is dropped."""
        self._rest(session)
        self._permits.release()

    async def close(self) -> None:
        """Lets the work in hand end, then closes. Twice is once."""
        with self._lock:
            self._closing = True
            threads = tuple(self._threads)
        for _ in threads:
            self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._end, threads)

    def _end(self, threads: tuple[threading.Thread, ...]) -> None:
        for cut in (False, True):
            if cut:
                with self._lock:
                    lines = tuple(self._open)
                for line in lines:
                    line.hang_up()
            for thread in threads:
                thread.join(CLOSE_PATIENCE_S)
            if not any(thread.is_alive() for thread in threads):
                break
        with self._lock:
            free, self._free = self._free, []
        for session in free:
            self._drop(session)

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        """The life of a thread."""
        while True:
            job = self._jobs.get()
            if job is None:
                break
            with self._lock:
                self._waiting -= 1
                self._working += 1
            answer: tuple[object, BaseException | None] = (None, None)
            try:
                if not job.done.cancelled():
                    answer = self._do_on_session(job)
            finally:
                with self._lock:
                    self._working -= 1
            # Last: who has the answer finds the session free.
            job.answer(*answer)

    def _do_on_session(self, job: _Job) -> tuple[object, BaseException | None]:
        with self._permits:
            with self._lock:
                session = self._free.pop() if self._free else None
            session, value, error = self._do(job, session)
            if session is not None:
                self._rest(session)
        return value, error

    def _do(
        self, job: _Job, session: Connection | None
    ) -> tuple[Connection | None, object, BaseException | None]:  # fmt: skip
        """Does one job. The session to use from now on (None: a new one), and the job's answer."""
        tries = 2 if job.repeats and session is not None else 1
        for attempt in range(1, tries + 1):
            try:
                if session is None:
                    session = self._begin()
                return session, _patiently(job.work, session), None
            except psycopg.Error as error:
                translate = unreachable if session is None else translated
                if session is None or session.raw.closed or code_of(error) == READ_ONLY:
                    self._drop(session)
                    session = None
                    if attempt < tries:
                        continue
                return session, None, _caused(translate(error, self.store_name), error)
            except BaseException as error:  # noqa: BLE001 - it is the caller's, who waits in another thread
                return session, None, error
        raise AssertionError("the last try gives an answer")

    def _begin(self) -> Connection:
        session = self._connect()
        with self._lock:
            self._open.add(session)
        return session

    def _rest(self, session: Connection) -> None:
        """Keeps a session for the next work."""
        with self._lock:
            keep = not self._closing and not session.raw.closed
            if keep:
                self._free.append(session)
        if not keep:
            self._drop(session)

    def _drop(self, session: Connection | None) -> None:
        if session is not None:
            with self._lock:
                self._open.discard(session)
            session.close()


class ReadLane(Lane):
    """Work that only reads."""

    def __init__(self, connect: Connect, silence: Silence, name: str, sessions: int = 1) -> None:
        super().__init__(connect, silence, name, sessions)
        self._groups = ReadGroups(self.read)

    async def read(self, query: Work[T]) -> T:
        return await self.run(query, repeats=True)

    async def read_one(self, many: ReadMany[K, T], key: K) -> T:
        """The answer for one key. Reads of that kind which wait at the same time share a statement."""
        return await self._groups.get(many, key)


class WriteLane(Lane):
    """Work that writes: one statement, or one transaction."""

    async def write(self, work: Work[T]) -> T:
        """When this returns, what the work wrote is durable."""
        return await self.run(work)


def _patiently(work: Work[T], session: Connection) -> T:
    """Tries again what the server rolled back for another transaction. The last try tells."""
    for _ in range(COLLISIONS_MAX - 1):
        try:
            return work(session)
        except psycopg.Error as error:
            if not collided(error):
                raise
    return work(session)


def _caused(problem: Problem, cause: BaseException) -> Problem:
    problem.__cause__ = cause
    return problem
