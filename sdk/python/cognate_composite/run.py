"""A call from its arrival to its answer, and a root from its beginning to its end.

```text
arrive ─▶ lock ─▶ handler ─▶ slot and COMMIT ─▶ answer                     part of another root
arrive ─▶ lock ─▶ handler ─▶ votes ─▶ answer's row, slot and COMMIT ─▶ answer      begins one
```

A local transaction that met another one is run again here, if it has called nobody. A root that met a conflict
anywhere is aborted, and begun again under another name.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from queue import Empty

import psycopg

from . import shape
from .database import NotCommitted, Statement, Transaction
from .locks import Arrival, Obstacle
from .node import Node, UnderWay, again, retry
from .problem import Problem, is_serialization, of
from .root import ABORTING
from .service import Call, Service
from .slots import Facts, Fenced

log = logging.getLogger("cognate_composite")

# How often a local transaction is run again that met another one, and how often a root is begun.
_LOCAL_ATTEMPTS = 5
_ROOT_ATTEMPTS = 20
# How long the abort of a root is waited for before its retry begins, or its client is answered, in seconds.
_ABORT = 1.0
# A root ends so long after its time at the latest, unless its database does not say what has become of it: an abort is
# waited for so long, and a lock. In seconds.
_LATE = 3.0
# How often a call that waits looks whether the component still says anything, in seconds.
_LOOK = 0.5


@dataclass(frozen=True)
class Request:
    """A call as it came."""

    arrival: Arrival
    service: Service
    arguments: tuple
    deadline: float
    # A client's name for the root that begins here, and its arguments as they are compared.
    key: tuple[str, str] | None = None
    # Headers of the request's trace, passed on to whoever is called for it.
    trace: dict[str, str] = field(default_factory=dict)
    # The roots that were begun for it, the last one last.
    begun: list[str] = field(default_factory=list)


def _deadline() -> Problem:
    return Problem(504, "deadline", "the time of the request is over")


def _unknown() -> Problem:
    """The database has not said whether a root is committed."""
    return Problem(503, "unknown", "the answer of COMMIT was lost; it may have happened")


def _beside(work: Callable[[], str]) -> Future:
    """Does something in a thread of its own."""
    ended: Future = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return ended


class Runner:
    """Executes the calls of a component."""

    def __init__(self, node: Node, answers_kept: float) -> None:
        self._node, self._answers_kept = node, answers_kept
        # Requests with a key take turns: a lock, and how many have or want it.
        self._turns: dict[str, list] = {}

    def begin(self, request: Request) -> str:
        """Answers a request that begins a root. Its client is told when that takes longer than its time: the database
        may say nothing. What was begun goes on, and whoever asks with the same key waits for what comes of it."""
        key = request.key
        ended = _beside(lambda: self.once(request, key[0]) if key else self.root(request))
        wait([ended], max(0.0, request.deadline + _LATE - time.monotonic()))
        if not ended.done():
            raise _deadline() if self._is_given_up(request) else _unknown()
        return ended.result()

    def _is_given_up(self, request: Request) -> bool:
        """Whether nothing can come of a request any more whose time is over."""
        with self._node.lock:
            if not request.begun:
                return True
            known = self._node.participant.roots.get(request.begun[-1])
            return known is not None and known.phase == ABORTING

    def once(self, request: Request, key: str) -> str:
        """Answers a request that has a key: exactly once."""
        with self._node.lock:
            turn = self._turns.setdefault(key, [threading.Lock(), 0])
            turn[1] += 1
        has_it = turn[0].acquire(timeout=max(0.0, request.deadline - time.monotonic()))
        try:
            if not has_it:
                raise Problem(409, "running", "the first request with this key is still under way")
            kept = self._kept(key)
            if kept is None:
                if time.monotonic() >= request.deadline:
                    raise _deadline()
                return self.root(request)
            arguments, answer = kept
            assert request.key is not None
            if arguments != request.key[1]:
                raise Problem(422, "key", "this key was used with other arguments")
            return answer
        finally:
            if has_it:
                turn[0].release()
            with self._node.lock:
                turn[1] -= 1
                if turn[1] == 0:
                    self._turns.pop(key, None)

    def _kept(self, key: str) -> tuple[str, str] | None:
        try:
            return self._node.slots.kept(self._node.pool, key)
        except psycopg.Error as error:
            raise of(error) from error

    def root(self, request: Request) -> str:
        """Begins a root, again if it meets conflicts, until it is committed, refused, or its time is over."""
        met: Problem | None = None
        for attempt in itertools.count(1):
            root = f"{self._node.name}-{self._node.generation}-{secrets.token_hex(8)}"
            arrival = Arrival(root, "1", None, (), request.arrival.service, request.arrival.item, request.arrival.arguments)
            with self._node.lock:
                request.begun.append(root)
                self._node.aborts[root] = []
            try:
                return self.execute(replace(request, arrival=arrival))
            except Problem as problem:
                if met and problem.reason == "deadline":
                    # What it has met before has taken its time.
                    raise met from problem
                if not problem.is_transient or attempt == _ROOT_ATTEMPTS or time.monotonic() >= request.deadline:
                    raise
                met = problem
            finally:
                self._aborted(root)
            retry(attempt + 1)
        raise AssertionError("the last attempt returns")

    def _aborted(self, root: str) -> None:
        """Waits until the abort messages of a root were answered, within a bound."""
        with self._node.lock:
            threads = self._node.aborts.pop(root, [])
        until = time.monotonic() + _ABORT
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def execute(self, request: Request) -> str:
        """Executes a call."""
        name = (request.arrival.root, request.arrival.call)
        with self._node.lock:
            if self._node.is_fenced.is_set():
                raise Fenced()
            self._node.check()
            effects = self._node.participant.arrive(request.arrival)
            what, *_, detail = effects[0]
            if what == "repeat":
                return detail
            if what == "refuse":
                raise self._refused(detail)
            under_way = self._node.under_way[name] = UnderWay()
            self._node.time(request.arrival.root, request.deadline)
            self._node.perform(effects)
        try:
            why = self._permission(under_way)
            if why is not None:
                raise self._refused(why)
            return self._run(request, under_way)
        finally:
            with self._node.lock:
                # The same call may have come again meanwhile, which is another one.
                if self._node.under_way.get(name) is under_way:
                    del self._node.under_way[name]

    def _permission(self, under_way: UnderWay) -> str | Obstacle | None:
        """Waits for the lock of a call; answers why it does not get it. A component that has failed says nothing more."""
        while True:
            try:
                return under_way.start.result(_LOOK)
            except TimeoutError:
                self._node.check()

    def _verdict(self, under_way: UnderWay) -> bool:
        """Waits until a root is decided, or given up."""
        while True:
            try:
                return under_way.verdict.get(timeout=_LOOK)
            except Empty:
                self._node.check()

    def _refused(self, why: str | Obstacle) -> Problem:
        if isinstance(why, Obstacle):
            if why.kind == "ancestor":
                return Problem(409, "ancestor", f"the call conflicts with {why.call}, which it is part of")
            if why.kind == "sibling":
                return Problem(409, "conflict", f"call {why.call} of the same root did not end in time")
            detail = f"a call of {why.service} about {why.item!r} holds a lock, of root {why.root}"
            return Problem(409, "conflict", detail, holder=why.root, item=why.item)
        return {
            "running": Problem(409, "running", "this call is under way"),
            "ended": Problem(409, "ended", "the root has ended here, or can only be aborted"),
            "arguments": Problem(422, "arguments", "this call was made with other arguments"),
            "late": Problem(409, "conflict", "the lock became free too late"),
        }[why]

    def _run(self, request: Request, under_way: UnderWay) -> str:
        """Runs the handler of a call that has its lock, and ends its local transaction."""
        arrival, service = request.arrival, request.service
        with self._node.lock:
            is_within = self._node.participant.has_any(arrival.root, list(arrival.ancestors))
        for attempt in itertools.count(1):
            work = Transaction(self._node.pool, service.isolation, is_within)
            where = (arrival.root, arrival.call, arrival.ancestors)
            running = Call(self._node, *where, request.deadline, request.trace, work)
            with self._node.lock:
                under_way.work, work.is_cancelled = work, under_way.is_cancelled
            try:
                answer = self._answer(service, running, request.arguments)
                if arrival.parent is None:
                    return self._decide(request, under_way, running, work, answer)
                return self._commit(request, running, work, answer)
            except Exception as error:
                failure = error
            finally:
                work.roll_back()
            has_called = self._node.has_called(arrival.root, arrival.call)
            if (
                is_serialization(failure)
                and not has_called
                and attempt < _LOCAL_ATTEMPTS
                and not self._node.participant.is_lost(arrival.root)
            ):
                retry(attempt + 1)
                continue
            self._node.tell("rolled_back", arrival.root, arrival.call)
            raise self._failure(failure, request, under_way, has_called) from failure
        raise AssertionError("the last attempt returns")

    def _answer(self, service: Service, running: Call, arguments: tuple) -> str:
        answer = service.run(running, *arguments)
        try:
            return shape.write(answer)
        except (TypeError, ValueError) as error:
            raise Problem(400, "failed", f"the answer cannot be written: {error}") from error

    def _failure(self, error: Exception, request: Request, under_way: UnderWay, has_called: bool) -> Problem:
        """Why a call is not answered. Its local transaction is rolled back."""
        problem = of(error)
        if problem.reason == "defect":
            log.error("service %s has failed", request.service.name, exc_info=error)
        if under_way.is_cancelled:
            problem = Problem(409, "ended", "the root was aborted")
        if under_way.is_cancelled and time.monotonic() >= request.deadline:
            problem = _deadline()
        problem.began |= has_called
        return problem

    def _commit(self, request: Request, running: Call, work: Transaction, answer: str) -> str:
        """Commits the local transaction of a call that is part of another root."""
        root = request.arrival.root
        if self._node.participant.is_lost(root):
            raise self._node.why_lost(root) or Problem(409, "ended", "the root can only be aborted")
        slot = None
        if request.service.reads and not running.has_called:
            try:
                self._end(request, work, [])
            except NotCommitted as error:
                raise error.cause if is_serialization(error.cause) else self._node.of_ours(error.cause)
        else:
            slot = self._write_slot(request, running, work, answer, None)
        # If the root was aborted meanwhile, this is undone now; whoever hears the answer votes in vain.
        self._node.tell("committed", root, request.arrival.call, slot, answer)
        return answer

    def _decide(self, request: Request, under_way: UnderWay, running: Call, work: Transaction, answer: str) -> str:
        """The handler of the call that began the root has answered: has everybody vote, and commits."""
        arrival = request.arrival
        self._node.tell("finish", arrival.root)
        if not self._verdict(under_way):
            if time.monotonic() >= request.deadline:
                raise _deadline()
            under_way.is_cancelled = False
            raise self._node.why_lost(arrival.root) or Problem(409, "conflict", "a component has voted no")
        with self._node.lock:
            children = self._node.participant.roots[arrival.root].children
            decision = [(name, child.nonce) for name, child in children.items()]
        if decision and time.monotonic() >= request.deadline:
            # A child that has undone its part at its deadline, which is not before this one, executes a late duplicate
            # of it once more when its mark is over. What was voted until now is no vote for that; what is voted later
            # may be, also if this process has not run for long.
            raise _deadline()
        slot = None
        if decision:
            slot = self._write_slot(request, running, work, answer, decision)
        else:
            self._commit_alone(request, work, answer)
        self._node.tell("committed", arrival.root, arrival.call, slot, answer)
        return answer

    def _commit_alone(self, request: Request, work: Transaction, answer: str) -> None:
        """A root that called nobody: its local transaction is all there is."""
        try:
            self._end(request, work, self._keep(request, answer))
        except NotCommitted as error:
            if error.cause is not None:
                # If it met another local transaction, the root is begun again.
                raise self._node.of_ours(error.cause) from error
            if request.key is None:
                raise _unknown() from error
            for attempt in itertools.count(1):
                again(attempt)
                try:
                    if self._node.slots.is_kept(self._node.pool, request.key[0], request.arrival.root):
                        return
                    break
                except (psycopg.Error, Problem) as problem:
                    log.warning("whether an answer was kept is not known yet: %s", problem)
            # There is no slot that says so: if the answer is not there, it may still come. Who asks again with the key
            # finds it, or has it fail by his own.
            raise _unknown() from error

    def _write_slot(
        self, request: Request, running: Call, work: Transaction, answer: str, decision: list | None
    ) -> int:
        """Writes the slot and commits. Answers the slot."""
        root, call = request.arrival.root, request.arrival.call
        facts = self._facts_of(request, running, answer, decision)
        slot = self._node.slots.choose(self._node.pool)
        try:
            self._end(request, work, [self._node.slots.write(slot, root, facts), *self._keep(request, answer)])
        except NotCommitted as error:
            if is_serialization(error.cause):
                self._node.slots.released(slot)
                raise error.cause from error
            problem = self._node.after_slot(error, slot, root)
            if isinstance(problem, Fenced) and error.cause is None:
                # A later process has the component, and knows what has become of it.
                problem.began = True
                raise (problem if decision is None else _unknown()) from error
            if problem is not None:
                self._node.slots.released(slot)
                raise problem from error
        with self._node.lock:
            self._node.facts.setdefault(root, {})[call] = (slot, facts)
        return slot

    def _end(self, request: Request, work: Transaction, ours: list[Statement]) -> None:
        """Ends a local transaction with statements of ours. One that only reads cannot write ours: they come after it,
        which is as good, since nothing of it could be lost or doubled."""
        if request.service.reads and ours:
            work.commit([], is_fenced=True)
            work = Transaction(self._node.pool, "read committed", True)
        work.commit(ours, is_fenced=True)

    def _keep(self, request: Request, answer: str) -> list[Statement]:
        if request.key is None:
            return []
        key, arguments = request.key
        return [self._node.slots.keep(key, request.arrival.root, arguments, answer, self._answers_kept)]

    def _facts_of(self, request: Request, running: Call, answer: str, decision: list | None) -> Facts:
        arrival = request.arrival
        with self._node.lock:
            known = self._node.participant.roots[arrival.root]
            entry = known.calls[arrival.call]
            return Facts(
                call=arrival.call,
                parent=arrival.parent,
                ancestors=list(arrival.ancestors),
                service=arrival.service,
                item=arrival.item,
                sequence=entry.sequence,
                arguments=arrival.arguments,
                answer=answer,
                undo=running.pushed,
                children=list(entry.children.items()),
                began_here=known.began is not None,
                decision=decision,
                deadline_ms=max(0, int((request.deadline - time.monotonic()) * 1000)),
            )
