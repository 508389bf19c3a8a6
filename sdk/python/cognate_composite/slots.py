"""What a component remembers inside its database: the tables that docs/composite-wire.md names, shared with others.

A slot is a row of a pool that is updated in place, in the same local transaction as the service's SQL. Each start of
a component takes a new generation and writes it into its row and all its slots, waiting for whoever still writes
there; a statement about a slot of another generation fails, so that the local transaction of an older process fails
as a whole. It fails by the cast of a text of ours to a number, which no service's own SQL is taken for.
"""

from __future__ import annotations

import json
import secrets
import threading
from dataclasses import asdict, dataclass, fields

import psycopg

from .database import Pool, Statement, Transaction
from .locks import Arrival
from .participant import SlotFacts
from .problem import Problem
from .sessions import FENCED, application_name, end_older, is_postgresql

# Slots of a new component, and how many are added when they do not suffice.
_SLOTS = 128
# How long a call waits for somebody else who makes slots, in seconds.
_PATIENCE = 5

_TABLES = (
    "CREATE SCHEMA IF NOT EXISTS cognate_composite",
    """CREATE TABLE IF NOT EXISTS cognate_composite.component (
        name text PRIMARY KEY, generation bigint NOT NULL, journal text, database text)""",
    # Room on each page for the versions that updates leave, and pages enough for an index to be worth it.
    """CREATE TABLE IF NOT EXISTS cognate_composite.slot (
        component text NOT NULL, id int NOT NULL, generation bigint NOT NULL, root text, facts text,
        noted boolean NOT NULL DEFAULT false, PRIMARY KEY (component, id)) WITH (fillfactor = 10)""",
    """CREATE TABLE IF NOT EXISTS cognate_composite.answer (
        component text NOT NULL, key text NOT NULL, root text NOT NULL, arguments text NOT NULL,
        answer text NOT NULL, kept_until timestamptz NOT NULL, PRIMARY KEY (component, key))""",
)
_OVERTAKEN = "another process has taken this component over"
# What is no number where a slot is not this root's any more.
UNDONE = "cognate-composite: undone already"
# An insertion that always meets its row is the one statement that can fail on what it finds, on every database.
_WRITE = f"""INSERT INTO cognate_composite.slot AS s
    VALUES (%s::text, %s::int, %s::bigint, %s::text, %s::text, false)
    ON CONFLICT (component, id) DO UPDATE SET root = excluded.root, facts = excluded.facts, noted = false,
        generation = (CASE WHEN s.generation = excluded.generation THEN s.generation::text
            ELSE '{FENCED}' END)::bigint"""
_RELEASE = f"""INSERT INTO cognate_composite.slot AS s VALUES (%s::text, %s::int, %s::bigint, %s::text, NULL, false)
    ON CONFLICT (component, id) DO UPDATE SET root = NULL, facts = NULL,
        generation = (CASE WHEN s.generation = excluded.generation AND s.root = excluded.root THEN s.generation::text
            WHEN s.generation = excluded.generation THEN '{UNDONE}' ELSE '{FENCED}' END)::bigint"""
_FENCE = f"""SELECT (CASE WHEN count(*) = 1 THEN '1'::text ELSE '{FENCED}' END)::int FROM cognate_composite.component
    WHERE name = %s::text AND generation = %s::bigint"""
_LATEST = """SELECT 1 FROM cognate_composite.component
    WHERE name = %s::text AND generation = %s::bigint"""
_FREE = """UPDATE cognate_composite.slot SET root = NULL, facts = NULL
    WHERE component = %s::text AND generation = %s::bigint AND id = ANY(%s::int[])"""
_NOTE = """UPDATE cognate_composite.slot SET noted = true
    WHERE component = %s::text AND generation = %s::bigint AND id = ANY(%s::int[]) AND root = %s::text"""
# The component's row is locked, so that no later process misses slots that come late.
_GROW = """INSERT INTO cognate_composite.slot
    SELECT c.name, g, c.generation FROM (SELECT name, generation FROM cognate_composite.component
        WHERE name = %s::text AND generation = %s::bigint FOR UPDATE) c, generate_series(%s::int, %s::int) g"""
# An update waits for whoever still writes the row; a read would not.
_TOUCH = """UPDATE cognate_composite.slot SET generation = generation
    WHERE component = %s::text AND id = %s::int AND generation = %s::bigint RETURNING root"""
_KEEP = """INSERT INTO cognate_composite.answer VALUES (%s::text, %s::text, %s::text, %s::text, %s::text,
    now() + make_interval(secs => %s::float8))"""
_KEPT = """SELECT arguments, answer, kept_until < now() FROM cognate_composite.answer
    WHERE component = %s::text AND key = %s::text"""
_FORGET = """DELETE FROM cognate_composite.answer
    WHERE component = %s::text AND key = %s::text AND kept_until < now()"""
# The last one of the next keys, in the order of the primary key: no other index says which answers are over.
_PIECE = """SELECT max(key) FROM (SELECT key FROM cognate_composite.answer
    WHERE component = %s::text AND key > %s::text ORDER BY key LIMIT 1000) piece"""
_SWEEP = """DELETE FROM cognate_composite.answer
    WHERE component = %s::text AND key > %s::text AND key <= %s::text AND kept_until < now()"""
# How many pieces are swept at a time. Slots wait to be freed as long.
_PIECES = 64
# It waits for whoever is inserting the same key, and is taken back.
_TOUCH_KEY = """INSERT INTO cognate_composite.answer VALUES (%s::text, %s::text, '', '', '', now())
    ON CONFLICT (component, key) DO UPDATE SET root = cognate_composite.answer.root RETURNING root"""


class Fenced(Problem):
    """Another process has taken the component over."""

    def __init__(self) -> None:
        super().__init__(503, "fenced", _OVERTAKEN)


@dataclass(frozen=True)
class Facts:
    """What a slot says, as JSON."""

    call: str
    parent: str | None
    ancestors: list[str]
    service: str
    item: str
    sequence: int
    arguments: int
    answer: str
    # What the service pushed for its undo, each as JSON, the last one last.
    undo: list[str]
    children: list[tuple[str, int]]
    began_here: bool
    decision: list[tuple[str, int]] | None
    deadline_ms: int

    @staticmethod
    def read(text: str) -> Facts:
        """As a slot has them. A component in Rust, which this one may take over from, says more in its own."""
        said, known = json.loads(text), {field.name for field in fields(Facts)}
        return Facts(**{name: value for name, value in said.items() if name in known})

    def of(self, root: str, slot: int, is_noted: bool) -> SlotFacts:
        """As the participant remembers it."""
        arrival = Arrival(
            root, self.call, self.parent, tuple(self.ancestors), self.service, self.item, self.arguments
        )
        return SlotFacts(
            slot, arrival, self.sequence, self.answer, self.children, self.began_here, self.decision, is_noted
        )


@dataclass(frozen=True)
class Row:
    """A slot in use, as it is found at a start."""

    slot: int
    root: str
    facts: Facts
    is_noted: bool


class Slots:
    """The pool of slots of a component, and its other rows. A start takes them over from whoever had them."""

    def __init__(self, component: str, connection: psycopg.Connection) -> None:
        self.component = component
        for table in _TABLES:
            try:
                connection.execute(table)
            except psycopg.Error:
                # Two components that start at once may both make them; the second one finds them made.
                connection.execute(table)
        taken = connection.execute(
            """INSERT INTO cognate_composite.component AS c (name, generation, database)
               VALUES (%s::text, 1, %s::text)
               ON CONFLICT (name) DO UPDATE SET generation = c.generation + 1,
                   database = coalesce(c.database, excluded.database)
               RETURNING generation, journal, database""",
            (component, secrets.token_hex(16)),
        ).fetchone()
        assert taken is not None
        self.generation: int = taken[0]
        self.journal: str | None = taken[1]
        # The database's mark, made with the component's row.
        self.database: str = taken[2]
        # By that name a later start ends this one's session, and an earlier one does not.
        connection.execute(f"SET application_name = '{application_name(component, self.generation)}'")
        self.is_postgresql = is_postgresql(connection)
        end_older(connection, component, self.generation, self.is_postgresql)
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        # Waits for whoever still writes a slot.
        take = "UPDATE cognate_composite.slot SET generation = %s::bigint WHERE component = %s::text"
        connection.execute(take, (self.generation, component))
        read = """SELECT id, root, facts, noted FROM cognate_composite.slot
            WHERE component = %s::text ORDER BY id"""
        found = connection.execute(read, (component,)).fetchall()
        # A start that was overtaken must not take back what the later one has taken. One that writes its generation
        # after this look takes the slots after this transaction, which has their rows.
        if connection.execute(_LATEST, (component, self.generation)).fetchone() is None:
            connection.execute("ROLLBACK")
            raise ValueError(_OVERTAKEN)
        connection.execute("COMMIT")
        self.rows = [Row(slot, root, Facts.read(facts), noted) for slot, root, facts, noted in found if root]
        self._free = [slot for slot, root, _, _ in found if not root]
        self._next = 1 + max((slot for slot, *_ in found), default=-1)
        # Slots of roots that are over; in the database they are not free yet.
        self._freeing: list[tuple[int, str]] = []
        self._lock = threading.Lock()
        # Held by who makes slots: others wait for these instead of making more.
        self._growing = threading.Lock()
        # The key up to which answers whose time is over were removed.
        self._swept = ""

    def name_journal(self, connection: psycopg.Connection, journal: str) -> None:
        """From now on the database belongs to this journal, unless a later start has one of its own."""
        name = """UPDATE cognate_composite.component SET journal = %s::text
            WHERE name = %s::text AND generation = %s::bigint"""
        if connection.execute(name, (journal, self.component, self.generation)).rowcount == 0:
            raise ValueError(_OVERTAKEN)

    # Slots.

    def choose(self, pool: Pool) -> int:
        """A slot to write; the pool grows if there is none."""
        while (slot := self._take()) is None:
            if not self._growing.acquire(timeout=_PATIENCE):
                raise Problem(409, "conflict", "no slot became free in time")
            try:
                if (slot := self._take()) is not None:
                    return slot
                self._grow(pool)
            finally:
                self._growing.release()
        return slot

    def _take(self) -> int | None:
        with self._lock:
            return self._free.pop() if self._free else None

    def _grow(self, pool: Pool) -> None:
        with self._lock:
            first, self._next = self._next, self._next + _SLOTS
        # Who needs a slot has a connection already.
        grown = pool.run((_GROW, (self.component, self.generation, first, first + _SLOTS - 1)), is_within=True)
        if grown[0].rowcount == 0:
            raise Fenced()
        self.released(*range(first + _SLOTS - 1, first - 1, -1))

    def released(self, *slots: int) -> None:
        """These are free, in the database, too."""
        with self._lock:
            self._free.extend(slots)

    def write(self, slot: int, root: str, facts: Facts) -> Statement:
        """Writes a slot; fails if it belongs to another generation."""
        return _WRITE, (self.component, slot, self.generation, root, json.dumps(asdict(facts)))

    def release(self, slot: int, root: str) -> Statement:
        """Frees the slot of a call that is undone; fails if it is not this root's any more."""
        return _RELEASE, (self.component, slot, self.generation, root)

    def fence(self) -> Statement:
        """Fails if the component has another generation."""
        return _FENCE, (self.component, self.generation)

    def free_later(self, root: str, slots: list[int]) -> None:
        """The root is over: its slots may be used again."""
        with self._lock:
            self._freeing.extend((slot, root) for slot in slots)

    def free_now(self, pool: Pool) -> set[str]:
        """Frees the slots of roots that are over, all together; answers these roots."""
        with self._lock:
            batch, self._freeing = self._freeing, []
        if batch:
            try:
                self._update(pool, _FREE, [slot for slot, _ in batch])
            except (psycopg.Error, Problem):
                with self._lock:
                    self._freeing = batch + self._freeing
                raise
            self.released(*(slot for slot, _ in batch))
        return {root for _, root in batch}

    def note(self, pool: Pool, root: str, slots: list[int]) -> bool:
        """Writes into the slots of a root that it is committed. Answers whether they all are still its own: those that
        were freed meanwhile may be another root's, of which nothing is known."""
        noted = pool.run((_NOTE, (self.component, self.generation, slots, root)))
        return noted[0].rowcount == len(slots)

    def _update(self, pool: Pool, sql: str, slots: list[int]) -> None:
        updated = pool.run((sql, (self.component, self.generation, slots)))
        if updated[0].rowcount != len(slots):
            raise Fenced()

    def holder(self, pool: Pool, slot: int) -> str | None:
        """The root that a slot holds, once whoever still writes it has ended."""
        row = pool.run((_TOUCH, (self.component, slot, self.generation)))[0].fetchone()
        if row is None:
            raise Fenced()
        return row[0]

    # Answers.

    def keep(self, key: str, root: str, arguments: str, answer: str, seconds: float) -> Statement:
        """Keeps an answer; fails for a key that is kept already."""
        return _KEEP, (self.component, key, root, arguments, answer, seconds)

    def kept(self, pool: Pool, key: str) -> tuple[str, str] | None:
        """Arguments and answer of a key."""
        row = pool.run((_KEPT, (self.component, key)))[0].fetchone()
        if row and row[2]:
            pool.run((_FORGET, (self.component, key)))
            return None
        return (row[0], row[1]) if row else None

    def sweep_answers(self, pool: Pool) -> None:
        """Removes answers whose time is over, of the next keys; the next time it goes on from there. There may be a day's
        answers, and a statement about all of them would take too long."""
        for _ in range(_PIECES):
            row = pool.run((_PIECE, (self.component, self._swept)))[0].fetchone()
            last = row[0] if row else None
            if last is None:
                self._swept = ""
                return
            pool.run((_SWEEP, (self.component, self._swept, last)))
            self._swept = last

    def is_kept(self, pool: Pool, key: str, root: str) -> bool:
        """Whether this root's answer is kept, once nobody can be writing it any more."""
        touching = Transaction(pool, "read committed")
        try:
            row = touching.execute(_TOUCH_KEY, (self.component, key)).fetchone()
            return row is not None and row[0] == root
        finally:
            touching.roll_back()
