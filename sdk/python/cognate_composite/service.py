"""What a developer has: services, what they have while they run, and what their undo has."""

from __future__ import annotations

import logging
import threading
import typing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg

from . import shape
from .database import Transaction
from .matrix import Declared
from .names import child
from .problem import Problem, Refused, of

if TYPE_CHECKING:
    from .node import Node

log = logging.getLogger("cognate_composite")


class Service:
    """A service's function, with what is declared about it. It is still a function, and can be called as one."""

    def __init__(
        self, run: Callable, name: str, item: Callable[[Any], Any] | None, reads: bool, isolation: str
    ) -> None:
        self.name, self.run, self.item, self.reads = name, run, item, reads
        self.isolation = "read only" if reads else isolation
        self.undoing: Callable | None = None
        hints = typing.get_type_hints(run)
        self.answers = hints.pop("return", Any)
        parameters = run.__code__.co_varnames[1 : run.__code__.co_argcount]
        if len(parameters) > 1:
            raise TypeError(f"{name}: a service has a call and at most one argument")
        self.takes: Any = hints.get(parameters[0], Any) if parameters else None
        self._has_argument = bool(parameters)
        self._undo_takes: Any = Any
        # What cannot be an argument is found now, not by the first call.
        shape.check(self.takes)

    def __call__(self, call: Call, *arguments: Any) -> Any:
        return self.run(call, *arguments)

    def undo(self, undoing: Callable) -> Callable:
        """How a call is undone after its local transaction has committed: it runs for each value that the service
        pushed with `Call.undo`, the last one first, in one local transaction."""
        hints = typing.get_type_hints(undoing)
        second = undoing.__code__.co_varnames[1]
        self.undoing, self._undo_takes = undoing, hints.get(second, Any)
        shape.check(self._undo_takes)
        return undoing

    @property
    def declared(self) -> Declared:
        """What the matrix needs to know."""
        return Declared(self.name, self.item is not None, self.reads, self.undoing is not None)

    def prepare(self, arguments: Any) -> tuple[tuple, str]:
        """The arguments as the function takes them, and what they are about. A ValueError says what does not fit."""
        fitting = shape.read(self.takes, arguments)
        try:
            about = str(self.item(fitting)) if self.item else ""
        except (ValueError, RecursionError):
            raise
        except Exception as error:
            # Nothing has begun, so its caller's root may go on without it.
            log.error("service %s has failed", self.name, exc_info=error)
            raise of(error) from error
        return ((fitting,) if self._has_argument else ()), about

    def undo_one(self, undo: Undo, pushed: str) -> None:
        """Undoes what one value stands for."""
        if self.undoing is None:
            raise Refused(f"there is no undo of service {self.name}")
        self.undoing(undo, shape.read(self._undo_takes, shape.loads(pushed), "what was pushed for the undo"))


class Undo:
    """What an undo has: SQL in a local transaction, which commits together with the mark that its call is undone. It
    makes no calls: what its call did elsewhere is undone there."""

    def __init__(self, work: Transaction) -> None:
        self._work = work

    def execute(self, query: Any, parameters: Any = None) -> psycopg.Cursor:
        """Executes a statement."""
        return self._work.execute(query, parameters)


class Call:
    """A call that runs."""

    def __init__(
        self,
        node: Node,
        root: str,
        call: str,
        ancestors: tuple[str, ...],
        deadline: float,
        trace: dict[str, str],
        work: Transaction,
    ) -> None:
        self.root, self.deadline = root, deadline
        self._node, self._call, self._trace, self._work = node, call, trace, work
        # The calls that a call made here is part of: the root's first, this one last.
        self._chain = [*ancestors, call]
        self._lock = threading.Lock()
        self._calls = 0
        self.pushed: list[str] = []

    @property
    def has_called(self) -> bool:
        """Whether anybody was called."""
        return self._calls > 0

    def execute(self, query: Any, parameters: Any = None) -> psycopg.Cursor:
        """Executes a statement in the local transaction, which begins with it and commits when the service has
        answered. Not from several threads at once."""
        return self._work.execute(query, parameters)

    def undo(self, value: Any) -> None:
        """Pushes what the undo of this call will need; stored in the commit of the local transaction."""
        self.pushed.append(shape.write(value))

    def call(self, component: str, service: str, arguments: Any = None) -> Any:
        """Calls a service of another component, as part of the same root; answers its answer. If anything of a call
        that fails may be left, the root can only be aborted, also if the error is caught."""
        body = shape.write(arguments)
        if not self._node.may_call(self.root, self._call, component):
            raise self._node.why_lost(self.root) or Problem(409, "ended", "the root can only be aborted")
        with self._lock:
            self._calls += 1
            identifier = child(self._call, self._calls)
        sent, generation = "failed", 0
        try:
            answer, generation = self._node.peers.call(
                component, service, self.root, identifier, self._chain, self.deadline, body, self._trace
            )
            sent = "answered"
            return answer
        except Problem as problem:
            sent = "not sent" if problem.is_unsent else "failed" if problem.began else "left nothing"
            # The service may do without this answer; its root cannot, and is told why.
            if sent == "failed":
                self._node.note_no(self.root, problem)
            raise
        finally:
            self._node.tell("called", self.root, self._call, component, sent, generation)

    def all(self, *calls: tuple) -> list[Any]:
        """Several calls at once, each `(component, service, arguments)`; answers their answers. If some fail, the
        first of these failures is raised once all have ended."""
        with ThreadPoolExecutor(max_workers=max(1, len(calls))) as pool:
            running = [pool.submit(self.call, *call) for call in calls]
        return [one.result() for one in running]
