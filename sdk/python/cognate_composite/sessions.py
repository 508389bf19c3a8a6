"""Sessions of a component in its database, and how a later start ends those of earlier ones.

A local transaction that writes no slot looks at the component's generation in the message of its COMMIT, which ends at
its first error. PostgreSQL may let it pass although a later start commits its generation at the same time, and that
one would not see what is committed after its own look. So there each connection begins with one block, which

1. takes a shared advisory lock for the session, whose key is component and generation,
2. looks at the component's generation, and fails if that is another one.

A start writes its generation, lists the sessions that hold the lock of an older one (or are named after it), terminates
them, and waits until the database has none of them any more; then it takes the slots. Each step of the block sees what
is committed when it begins: either its look came after the later generation, and has failed, or the lock was there
before, and the list has the session.

Of two starts the later one ends the earlier one's session, which is named after its generation as soon as there is one.
The earlier one may still be about to take the slots: it keeps them only if the component still has its generation.

All of this is about sessions of the database. A pooler that gives each transaction another session must not stand
between. Keys and names are those of components in Rust, so that either may take over from the other.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass

import psycopg

# How often a start looks whether the sessions of earlier ones have ended, and how long it waits in between, in seconds.
_LOOKS = 500
_PAUSE = 0.02
# A local transaction of so many seconds may be what a statement has waited for in vain: half of how long one waits
# (`lock_timeout`), since who is in the way was there before.
_LONG = 1
# Above all generations: the largest number that the key of an advisory lock has room for.
_GENERATION_MAX = (1 << 32) - 1


# What is no number where the generation is another one: statements of ours fail by its cast.
FENCED = "cognate-composite: another generation"


@dataclass(frozen=True)
class Terms:
    """What connections of a component that was taken over begin with, and what their COMMIT does first."""

    # On PostgreSQL: holds the session for this generation. It fails if there was a later start.
    hold: str | None
    # Fails if there was a later start.
    look: str


def terms(component: str, generation: int, is_postgresql: bool) -> Terms:
    """The terms of a component's connections. Its name needs no quoting."""
    look = f"""SELECT (CASE WHEN count(*) = 1 THEN '1'::text ELSE '{FENCED}' END)::int
        FROM cognate_composite.component WHERE name = '{component}' AND generation = {generation}"""
    hold = f"""BEGIN ISOLATION LEVEL READ COMMITTED;
        SELECT pg_advisory_lock_shared({lock_class(component)}, {generation}); {look}; COMMIT"""
    return Terms(hold if is_postgresql else None, look)


def lock_class(component: str) -> int:
    """The first half of the key of a component's advisory locks; the generation is the other one."""
    digest = hashlib.sha256(f"cognate-composite:{component}".encode()).digest()
    # An `int` that needs no sign.
    return int.from_bytes(digest[:4]) >> 1


def application_name(component: str, generation: int) -> str:
    """The name of a component's connections. Those of a start have generation 0 until it has taken its own, and are
    nobody's to end: whichever of two starts is the later one is not known yet."""
    return f"cognate-composite:{component}:{generation}"


def is_postgresql(connection: psycopg.Connection) -> bool:
    """Whether the database is PostgreSQL itself, on one server."""
    row = connection.execute("SELECT version()").fetchone()
    return row is not None and names_postgresql(row[0])


def names_postgresql(version: str) -> bool:
    """Whether a version is PostgreSQL's, and no other system's that speaks its protocol."""
    is_its = re.match(r"PostgreSQL [0-9.]+[ ,]", version) is not None
    return is_its and ", compiled by " in version and "Cognate" not in version


def end_older(connection: psycopg.Connection, component: str, generation: int, is_postgresql: bool) -> None:
    """Ends the sessions of earlier processes of the component, where the database can; on PostgreSQL returns once they
    have ended. Who may not terminate one does not start."""
    ending = older(connection, component, generation, is_postgresql)
    for pid in ending:
        try:
            connection.execute("SELECT pg_terminate_backend(%s::int)", (pid,))
        except psycopg.errors.FeatureNotSupported:
            return
    if not is_postgresql or not ending:
        return
    # A session is in this view until its last transaction is over.
    left = "SELECT pid FROM pg_stat_activity WHERE pid = ANY(%s::int[])"
    for _ in range(_LOOKS):
        if not connection.execute(left, (ending,)).fetchall():
            return
        time.sleep(_PAUSE)
    raise ValueError("the sessions of an earlier process were terminated in its database, and do not end")


def is_earlier_at_work(connection: psycopg.Connection, component: str) -> bool:
    """Whether an earlier process of the component, or what it has left behind, has been in a local transaction for so
    long that a statement which waits for a lock may have given up because of it. It is asked before a start has a
    generation, by which all that have one are earlier."""
    earlier = older(connection, component, _GENERATION_MAX, is_postgresql(connection))
    long = f"""SELECT pid FROM pg_stat_activity
        WHERE pid = ANY(%s::int[]) AND xact_start < now() - interval '{_LONG} second'"""
    return bool(connection.execute(long, (earlier,)).fetchall())


def older(connection: psycopg.Connection, component: str, generation: int, is_postgresql: bool) -> list[int]:
    """The sessions of earlier processes of the component, which are in the same database."""
    named = connection.execute(
        """SELECT pid, application_name FROM pg_stat_activity
           WHERE application_name IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()"""
    )
    prefix = f"cognate-composite:{component}:"
    found = set()
    for pid, name in named.fetchall():
        its = name.removeprefix(prefix) if name.startswith(prefix) else ""
        if its.isascii() and its.isdecimal() and 1 <= int(its) < generation:
            found.add(pid)
    if is_postgresql:
        # A name may be cut, or changed.
        holding = connection.execute(
            f"""SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
                AND classid = '{lock_class(component)}' AND objid < '{generation}' AND pid <> pg_backend_pid()
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
        )
        found |= {row[0] for row in holding.fetchall()}
    return sorted(found)
