"""A component's local database: connections, and the local transaction of a call.

A connection goes back to the pool only if it is known to be idle; otherwise it is closed. A local transaction begins
with its first statement. It ends with statements of ours (such as the slot), a look at the generation, and COMMIT: a
failed statement makes COMMIT a rollback, and then ours has failed before it, so a commit is never believed that was
none. The look and COMMIT are one message, which ends at its first error; `sessions` has what it rests on.

What a service executes neither begins nor ends a transaction: what it has done is to be committed with its slot or not
at all. The first word of a text tells, if the text is one statement; and so that it is, each is prepared, as in Rust. A
database prepares no text of several statements, and then executes none of them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from .problem import Problem, is_out_of_date
from .sessions import Terms

# How long one waits for a connection, in seconds.
_PATIENCE = 5
# Of so many connections there is one more, and at least these, for whom somebody waits who has one.
_RESERVED = 4
_RESERVED_MIN = 2
# When a connection is taken for lost whose other side is silent on the network, if its address says nothing of that: it is
# looked at after so many seconds, with such pauses, so often; in milliseconds, for what was sent and is not confirmed.
_SILENT = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
# Waits that only the database sees are bounded here.
_SETTINGS = ("SET lock_timeout = '2s'", "SET idle_in_transaction_session_timeout = '60s'")

BEGIN = {
    "serializable": "BEGIN ISOLATION LEVEL SERIALIZABLE",
    "read committed": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "read only": "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
}

Statement = tuple[str, Sequence[Any]]

# What may stand before a word of a statement, but for comments that may have others in them; and where these begin and
# end.
_GAP = re.compile(r"(?:[\s;]|--[^\n\r]*)*")
_MARK = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[A-Za-z]*")
# Words by which a transaction begins or ends.
_ENDS = {"begin", "start", "commit", "end", "abort"}


def _word(query: str, at: int) -> tuple[str, int]:
    """The next word of a statement, or none, and where it ends."""
    depth = 0
    while True:
        if depth == 0:
            at = _GAP.match(query, at).end()
            if not query.startswith("/*", at):
                word = _WORD.match(query, at)
                return word[0].lower(), word.end()
        mark = _MARK.search(query, at)
        if mark is None:
            return "", len(query)
        at = mark.end()
        depth += 1 if mark[0] == "/*" else -1


def _is_of_transactions(query: str) -> bool:
    """Whether a statement begins or ends a transaction. Back to a savepoint one may go."""
    first, at = _word(query, 0)
    if first not in ("prepare", "rollback"):
        return first in _ENDS
    second, at = _word(query, at)
    if first == "prepare":
        return second == "transaction"
    if second in ("work", "transaction"):
        second, _ = _word(query, at)
    return second != "to"


def _defect() -> Problem:
    return Problem(503, "defect", "a service neither begins nor ends a transaction: its own is its component's")


def _text(query: Any) -> str:
    """The text of a statement, however it is given."""
    if isinstance(query, bytes):
        return query.decode("latin-1")
    if isinstance(query, sql.Composable):
        return query.as_string(None)
    if not isinstance(query, str):
        # Whatever else the driver would take cannot be looked into.
        raise Problem(503, "defect", "a statement is a text, or made by psycopg.sql")
    return query


def _check(query: Any) -> None:
    """Refuses what would begin or end a transaction: a service's own is begun and ended around it."""
    if _is_of_transactions(_text(query)):
        raise _defect()


class NotCommitted(Exception):
    """COMMIT went wrong: rolled back because of the cause, or unknown, since its answer was lost."""

    def __init__(self, cause: Exception | None) -> None:
        super().__init__(str(cause or "the answer of COMMIT was lost"))
        self.cause = cause


class Pool:
    """Connections that are kept for the next one. There are so many at most, and a few more for whom somebody waits who has
    one: a call within a call, or a call that needs a slot. They must not wait for each other."""

    def __init__(self, url: str, application_name: str, most: int, terms: Terms) -> None:
        self._url, self._application_name, self.terms = url, application_name, terms
        said = conninfo_to_dict(url)
        self._silent = {name: value for name, value in _SILENT.items() if name not in said}
        self._idle: list[psycopg.Connection] = []
        self._lock = threading.Lock()
        self._most, self._reserve = max(1, most), most // _RESERVED + _RESERVED_MIN
        self._taken, self._is_left = 0, threading.Condition()

    def _enter(self, is_within: bool) -> None:
        most = self._most + (self._reserve if is_within else 0)
        with self._is_left:
            if not self._is_left.wait_for(lambda: self._taken < most, _PATIENCE):
                raise Problem(409, "conflict", "no connection to the database became free in time")
            self._taken += 1

    def _leave(self) -> None:
        with self._is_left:
            self._taken -= 1
            # Who is woken alone may be none that may go on.
            self._is_left.notify_all()

    def take(self, *, new: bool = False, is_within: bool = False) -> psycopg.Connection:
        """A connection that is idle, as far as one can see from here; `is_within` says that somebody waits for the taker who
        has one."""
        self._enter(is_within)
        with self._lock:
            if new:
                self._close_idle()
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
        try:
            connection = psycopg.connect(
                self._url,
                autocommit=True,
                application_name=self._application_name,
                connect_timeout=_PATIENCE,
                **self._silent,
            )
        except psycopg.Error as error:
            self._leave()
            raise Problem(503, "database", f"the component's database is away: {error}".strip()) from error
        try:
            for setting in _SETTINGS:
                connection.execute(setting)
            self._hold(connection)
        except psycopg.Error as error:
            self.give_back(connection, False)
            raise Problem(503, "database", f"the component's database is away: {error}".strip()) from error
        return connection

    def _hold(self, connection: psycopg.Connection) -> None:
        """Holds its session for this generation. If it cannot, whatever the reason, the look at COMMIT tells."""
        if self.terms.hold is None:
            return
        try:
            connection.execute(self.terms.hold, prepare=False)
        except psycopg.Error:
            connection.execute("ROLLBACK")

    def give_back(self, connection: psycopg.Connection, is_usable: bool = True) -> None:
        """Takes a connection back, or closes it."""
        is_idle = is_usable and connection.info.transaction_status == TransactionStatus.IDLE
        with self._lock:
            if is_idle:
                self._idle.append(connection)
        if not is_idle:
            connection.close()
        self._leave()

    def begin(self, statement: str, *, is_within: bool = False) -> psycopg.Connection:
        """A connection in a transaction that has just begun. One that was lost while it was idle is replaced."""
        for is_last in (False, True):
            connection = self.take(new=is_last, is_within=is_within)
            try:
                connection.execute(statement)
                return connection
            except psycopg.Error as error:
                self.give_back(connection, False)
                if is_last:
                    raise Problem(503, "database", f"the component's database is away: {error}".strip()) from error
        raise AssertionError("the last attempt returns")

    def run(self, *statements: Statement, is_within: bool = False) -> list[psycopg.Cursor]:
        """Statements of ours in a local transaction of their own."""
        work = Transaction(self, "read committed", is_within)
        try:
            results = [work.execute(*statement) for statement in statements]
            work.commit([])
            return results
        except NotCommitted as error:
            raise error.cause or Problem(503, "database", str(error)) from error
        finally:
            work.roll_back()

    def close(self) -> None:
        """Closes what is idle: connections that are as old as one that turned out to be lost."""
        with self._lock:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()


class Transaction:
    """The local transaction of one call. Used by one thread, but for `cancel`."""

    def __init__(self, pool: Pool, isolation: str, is_within: bool = False) -> None:
        """`is_within`: another call of the same root, which waits for this one, may have a connection."""
        self._pool, self._isolation, self._is_within = pool, isolation, is_within
        self._connection: psycopg.Connection | None = None
        self._lock = threading.Lock()
        self._is_out_of_date = False
        self.is_cancelled = False

    def _begin(self) -> psycopg.Connection:
        if self._connection is None:
            connection = self._pool.begin(BEGIN[self._isolation], is_within=self._is_within)
            with self._lock:
                self._connection = connection
        elif self._connection.info.transaction_status == TransactionStatus.IDLE:
            # Something has ended it by another way, such as the connection's own methods. What comes now would be
            # committed by itself.
            raise _defect()
        if self.is_cancelled:
            raise Problem(409, "ended", "the root was aborted")
        return self._connection

    def execute(self, query: Any, parameters: Any = None) -> psycopg.Cursor:
        """Executes one statement. It is prepared, since the database would take several without that, and any of them
        but the first one could end the transaction, and begin another one."""
        _check(query)
        connection = self._begin()
        try:
            return connection.execute(query, parameters, prepare=True)
        except psycopg.Error as error:
            # The driver may keep what it has prepared, and whoever has the connection next would fail as well.
            self._is_out_of_date |= is_out_of_date(error)
            raise

    def commit(self, statements: list[Statement], *, is_fenced: bool = False) -> None:
        """Runs our own statements and COMMIT; fenced: only if no later process has taken the component over."""
        if self._connection is None and not statements and not is_fenced:
            return
        try:
            self._begin()
            for statement in statements:
                self.execute(*statement)
        except (psycopg.Error, Problem) as error:
            self.roll_back()
            raise NotCommitted(error) from error
        connection = self._connection
        assert connection is not None
        try:
            end = f"{self._pool.terms.look}; COMMIT" if is_fenced else "COMMIT"
            ended = connection.execute(end, prepare=False)
            # The last answer is that of COMMIT.
            while ended.nextset():
                pass
            word = ended.statusmessage
        except psycopg.Error as error:
            self.roll_back()
            is_known = error.sqlstate is not None and not error.sqlstate.startswith(("08", "57P", "58"))
            raise NotCommitted(error if is_known else None) from error
        self._leave()
        if word != "COMMIT":
            raise NotCommitted(Problem(400, "failed", f"COMMIT was answered {word}"))

    def roll_back(self) -> None:
        """Rolls back, if anything was begun."""
        if self._connection is not None:
            try:
                self._connection.execute("ROLLBACK")
            except psycopg.Error:
                self._connection.close()
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        assert connection is not None
        # A cancellation that was sent may still arrive, and would meet whoever has the connection next.
        is_usable = not (connection.closed or self.is_cancelled or self._is_out_of_date)
        self._pool.give_back(connection, is_usable)

    def cancel(self) -> None:
        """Stops what is under way, from another thread; nothing is begun any more."""
        self.is_cancelled = True
        with self._lock:
            if self._connection is not None and not self._connection.closed:
                try:
                    self._connection.cancel()
                except psycopg.Error:
                    pass
