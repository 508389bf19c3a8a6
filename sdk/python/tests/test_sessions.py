"""Two processes for one component: whose sessions are ended, and who has the slots. They need the database alone."""

import unittest
from unittest.mock import patch

import psycopg

from cognate_composite import sessions
from cognate_composite.sessions import application_name, lock_class, names_postgresql, older, terms
from cognate_composite.slots import Slots
from support import database_url


class Versions(unittest.TestCase):
    def test_other_systems_are_not_taken_for_postgresql(self) -> None:
        for version in (
            "PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc 12.2.0, 64-bit",
            "PostgreSQL 18.0, compiled by Visual C++ build 1944, 64-bit",
        ):
            self.assertTrue(names_postgresql(version), version)
        for version in (
            "",
            "PostgreSQL 15.0 (Cognate 0.1.0)",
            "PostgreSQL 11.2-YB-2.18.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang, 64-bit",
            "CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15 21:28:29, go1.22.2)",
        ):
            self.assertFalse(names_postgresql(version), version)

    def test_only_postgresqls_sessions_are_held(self) -> None:
        self.assertIsNone(terms("stock", 3, False).hold)
        self.assertIn(f"pg_advisory_lock_shared({lock_class('stock')}, 3)", terms("stock", 3, True).hold or "")
        self.assertLess(max(map(lock_class, ("shop", "stock", "payment"))), 1 << 31)


class Starts(unittest.TestCase):
    component = "overtaken"

    def connect(self, name: str) -> psycopg.Connection:
        connection = psycopg.connect(database_url(), autocommit=True, application_name=name)
        self.addCleanup(connection.close)
        return connection

    def pid(self, connection: psycopg.Connection) -> int:
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        assert row is not None
        return row[0]

    def setUp(self) -> None:
        self.own = self.connect(application_name(self.component, 0))
        self.addCleanup(self.forget)

    def forget(self) -> None:
        with psycopg.connect(database_url(), autocommit=True) as connection:
            for table, column in (("component", "name"), ("slot", "component")):
                connection.execute(f"DELETE FROM cognate_composite.{table} WHERE {column} = %s::text", (self.component,))

    def test_sessions_of_earlier_processes_are_told_from_others_by_their_names(self) -> None:
        Slots(self.component, self.own)
        # Those of a later start are not earlier, and neither are those of a component whose name goes on, or of a start
        # that has no generation yet.
        names = [("solo", 1), ("solo", 2), ("solo", 3), ("solo", 12), ("solo-2", 1), ("solo", 0)]
        pids = [self.pid(self.connect(application_name(*name))) for name in names]
        self.assertEqual(older(self.own, "solo", 3, False), sorted(pids[:2]))

    def test_a_start_that_was_overtaken_takes_nothing_back(self) -> None:
        first = Slots(self.component, self.own)
        self.own.execute(
            "INSERT INTO cognate_composite.slot VALUES (%s::text, 0, %s::bigint, NULL, NULL, false)",
            (self.component, first.generation),
        )
        later = self.connect(application_name(self.component, 0))
        taken = []

        def overtake(*arguments: object) -> None:
            # The later start has come and gone before the earlier one takes the slots.
            with patch("cognate_composite.slots.end_older"):
                taken.append(Slots(self.component, later))

        with patch("cognate_composite.slots.end_older", side_effect=overtake):
            with self.assertRaisesRegex(ValueError, "another process has taken this component over"):
                Slots(self.component, self.own)
        generations = "SELECT generation FROM cognate_composite.slot WHERE component = %s::text"
        found = later.execute(generations, (self.component,)).fetchall()
        self.assertEqual(found, [(taken[0].generation,)])
        self.assertEqual(taken[0].generation, first.generation + 2)
        self.assertEqual(taken[0].database, first.database)
        # Nor does it name its journal there.
        taken[0].name_journal(later, "later")
        with self.assertRaises(ValueError):
            first.name_journal(self.own, "earlier")

    def test_a_start_is_named_after_its_generation_and_spares_a_later_one(self) -> None:
        slots = Slots(self.component, self.own)
        later = self.connect(application_name(self.component, slots.generation + 1))
        starting = self.connect(application_name(self.component, 0))
        self.assertEqual(older(later, self.component, slots.generation + 1, False), [self.pid(self.own)])
        sessions.end_older(self.own, self.component, slots.generation, False)
        for connection in (later, starting):
            self.assertEqual(connection.execute("SELECT 1").fetchone(), (1,))


if __name__ == "__main__":
    unittest.main()
