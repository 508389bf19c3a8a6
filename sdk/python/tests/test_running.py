"""Components in this process: their database can be made silent, and their calls can be held."""

import contextlib
import http.client
import json
import os
import shutil
import socket
import tempfile
import threading
import time
import unittest
from typing import Any
from unittest.mock import patch

import psycopg

from cognate_composite import Component, Problem, Refused, Running, never
from cognate_composite.locks import Arrival
from cognate_composite.root import Vote
from cognate_composite.run import Request
from support import database_url, execute

NAME = "apart"


def close(listener: socket.socket) -> None:
    """Closes it, and has whoever waits for connections there return."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


class Proxy:
    """Between a component and its database, of which nothing is heard as long as `flows` is not set."""

    def __init__(self) -> None:
        self.flows = threading.Event()
        self.flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = "postgresql://{PGUSER}@127.0.0.1:{port}/{PGDATABASE}?sslmode=disable".format(port=port, **os.environ)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        close(self._listener)
        self.flows.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((os.environ["PGHOST"], int(os.environ["PGPORT"])))
            for ends in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_held: bool) -> None:
        try:
            while piece := source.recv(1 << 16):
                if is_held:
                    self.flows.wait()
                sink.sendall(piece)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class Apart(unittest.TestCase):
    def setUp(self) -> None:
        # It asserts that there is a database.
        database_url()
        self.addCleanup(self.forget)

    def forget(self) -> None:
        execute("DROP TABLE IF EXISTS apart_word")
        for table, column in (("component", "name"), ("slot", "component"), ("answer", "component")):
            execute(f"DELETE FROM cognate_composite.{table} WHERE {column} = '{NAME}'")

    def component(self) -> Component:
        return Component(NAME, setup=["CREATE TABLE IF NOT EXISTS apart_word (word text NOT NULL)"])

    def start(self, component: Component, database: str, connections: int = 24) -> Running:
        folder = tempfile.mkdtemp(prefix="cognate-composite-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        running = component.start(database=database, data=folder, connections=connections)
        self.addCleanup(running.stop)
        return running

    def post(self, address: tuple[str, int], word: Any, **headers: str) -> tuple[int, Any]:
        """Calls `enter`; answers the status and the answer."""
        connection = http.client.HTTPConnection(*address, timeout=60)
        try:
            connection.request("POST", "/services/enter", json.dumps(word).encode(), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def enter(self, address: tuple[str, int], deadline_ms: int, **more: str) -> tuple[int, object]:
        """The same about `a`, in so much time; of a problem answers the reason."""
        status, answer = self.post(address, "a", **({"Cognate-Deadline-Ms": str(deadline_ms)} | more))
        return status, answer["reason"] if isinstance(answer, dict) else answer


class Silence(Apart):
    @patch("cognate_composite.run._LATE", 1.0)
    def test_a_client_hears_that_the_database_does_not_say_what_has_become_of_its_root(self) -> None:
        proxy, component = Proxy(), self.component()
        self.addCleanup(proxy.close)

        @component.service()
        def enter(call, word: str) -> str:
            call.execute("INSERT INTO apart_word VALUES (%s)", [word])
            # What is left is to commit.
            proxy.flows.clear()
            return word

        address = self.start(component, proxy.url).listen("127.0.0.1", 0)
        key = {"Idempotency-Key": "k"}
        self.assertEqual(self.enter(address, 3000, **key), (503, "unknown"))
        self.assertEqual(self.enter(address, 100, **key), (409, "running"))
        proxy.flows.set()
        self.assertEqual(self.enter(address, 60_000, **key), (200, "a"))
        with psycopg.connect(database_url(), autocommit=True) as connection:
            self.assertEqual(connection.execute("SELECT word FROM apart_word").fetchall(), [("a",)])

    def test_a_client_hears_that_its_time_is_over_though_its_service_goes_on(self) -> None:
        component, is_over = self.component(), threading.Event()
        self.addCleanup(is_over.set)

        @component.service()
        def enter(call, word: str) -> str:
            is_over.wait(120)
            return word

        running = self.start(component, database_url())
        self.assertEqual(self.enter(running.listen("127.0.0.1", 0), 300), (504, "deadline"))
        is_over.set()
        until = time.monotonic() + 60
        while running._node.status()["roots"]:
            self.assertLess(time.monotonic(), until, running._node.status())
            time.sleep(0.02)

    def test_what_a_person_decides_is_pending_while_nothing_is_heard(self) -> None:
        proxy, component = Proxy(), self.component()
        self.addCleanup(proxy.close)

        @component.service()
        def enter(call, word: str) -> None:
            call.execute("INSERT INTO apart_word VALUES (%s)", [word])
            call.undo(word)

        @enter.undo
        def forget(undo, word: str) -> None:
            undo.execute("DELETE FROM apart_word WHERE word = %s", [word])

        running = self.start(component, proxy.url)
        of = {"Cognate-Root": "r", "Cognate-Parent": "office", "Cognate-Call": "r.1"}
        self.assertEqual(self.enter(running.listen("127.0.0.1", 0), 60_000, **of), (200, None))
        vote = running._node.vote("r", "office", 1, None).result(60)
        self.assertIsNone(vote.no)
        proxy.flows.clear()
        for _ in range(2):
            self.assertEqual(running._node.settle("r", "committed", time.monotonic() + 0.5), "pending")
        proxy.flows.set()
        until = time.monotonic() + 60
        while running._node.status()["roots"]:
            self.assertLess(time.monotonic(), until, running._node.status())
            time.sleep(0.02)
        self.assertIsNone(running._node.settle("r", "committed", time.monotonic() + 60))


class Within(Apart):
    def test_a_component_with_one_connection_calls_itself(self) -> None:
        component = self.component()

        @component.service()
        def enter(call, word: str) -> str:
            call.execute("INSERT INTO apart_word VALUES (%s)", [word])
            # It has the one connection, and the call needs one, and another one for the first slots.
            call.call(NAME, "note", f"{word} noted")
            return word

        @component.service()
        def note(call, word: str) -> None:
            call.execute("INSERT INTO apart_word VALUES (%s)", [word])
            call.undo(word)

        @note.undo
        def forget(undo, word: str) -> None:
            undo.execute("DELETE FROM apart_word WHERE word = %s", [word])

        component.conflicts(never("enter", "note"))
        running = self.start(component, database_url(), connections=1)
        address = running.listen("127.0.0.1", 0)
        running.set_peer(NAME, "http://{}:{}".format(*address))
        self.assertEqual(self.enter(address, 20_000), (200, "a"))
        with psycopg.connect(database_url(), autocommit=True) as connection:
            found = connection.execute("SELECT word FROM apart_word ORDER BY word").fetchall()
        self.assertEqual(found, [("a",), ("a noted",)])


class Heads(Apart):
    @patch("cognate_composite.server._Handler.timeout", 0.5)
    def test_a_head_that_comes_byte_by_byte_has_no_more_time(self) -> None:
        address = self.start(self.component(), database_url()).listen("127.0.0.1", 0)
        for begun, piece in [(b"", b"x"), (b"POST /services/enter HTTP/1.1\r\nX-Long: ", b"x"), (b"", b"\r\n")]:
            with socket.create_connection(address, timeout=60) as connection:
                connection.sendall(begun)
                # A byte each time that nothing has come: at this pace the head would take an hour.
                connection.settimeout(0.05)
                with contextlib.suppress(ConnectionError):
                    for _ in range(1200):
                        try:
                            self.assertEqual(connection.recv(4096), b"")
                            break
                        except TimeoutError:
                            connection.sendall(piece)
                    else:
                        self.fail("the head has as much time as it likes")


class Options(unittest.TestCase):
    @patch("logging.basicConfig")
    def test_wrong_ones_are_named(self, _: object) -> None:
        given = (("--listen", "8702"), ("--listen", "[::1]"), ("--listen", "localhost:65536"), ("--peers", "stock"))
        for option, value in given:
            with self.subTest(value), self.assertRaisesRegex(SystemExit, f"{option}.*: not "):
                Component(NAME).main([option, value, "--database", "", "--data", ""])


class Items(Apart):
    def test_an_item_that_cannot_be_found_out_leaves_nothing(self) -> None:
        component = self.component()

        @component.service(item=lambda arguments: arguments["key"])
        def enter(call, arguments: dict) -> None:
            call.execute("INSERT INTO apart_word VALUES ('a')")

        address = self.start(component, database_url()).listen("127.0.0.1", 0)
        status, problem = self.post(address, {})
        self.assertEqual((status, problem["reason"], problem["began"]), (503, "defect", False))
        self.assertIn("KeyError", problem["detail"])
        self.assertEqual(self.post(address, {"key": 1})[0], 200)


class Texts(Apart):
    def test_a_text_of_several_statements_does_nothing(self) -> None:
        component = self.component()

        @component.service()
        def enter(call, text: str) -> None:
            call.execute("INSERT INTO apart_word VALUES ('own')")
            call.execute(text)

        address = self.start(component, database_url()).listen("127.0.0.1", 0)
        insert = "INSERT INTO apart_word VALUES ('of several')"
        for text, reason in [
            (f"{insert}; COMMIT; BEGIN", "failed"),
            (f"{insert}; /* so */ COMMIT; BEGIN ISOLATION LEVEL SERIALIZABLE; {insert}", "failed"),
            (f"{insert}; ROLLBACK; BEGIN", "failed"),
            (f"{insert}; {insert}", "failed"),
            (f"COMMIT; BEGIN; {insert}", "defect"),
        ]:
            status, problem = self.post(address, text)
            self.assertEqual((status, problem["reason"]), (400 if reason == "failed" else 503, reason), text)
        with psycopg.connect(database_url(), autocommit=True) as connection:
            self.assertEqual(connection.execute("SELECT word FROM apart_word").fetchall(), [])
        # One is one, whatever stands in it.
        self.assertEqual(self.post(address, "INSERT INTO apart_word VALUES ('a; COMMIT; BEGIN');"), (200, None))


class Others(Apart):
    def test_a_client_hears_why_its_root_was_given_up(self) -> None:
        component, hanging_up = self.component(), socket.create_server(("127.0.0.1", 0))
        self.addCleanup(close, hanging_up)

        def hang_up() -> None:
            while True:
                try:
                    hanging_up.accept()[0].close()
                except OSError:
                    return

        @component.service()
        def enter(call, word: str) -> str:
            try:
                return call.call("elsewhere", "enter", word)
            except Problem:
                # It would do without, but something may be left there.
                return word

        threading.Thread(target=hang_up, daemon=True).start()
        running = self.start(component, database_url())
        running.set_peer("elsewhere", f"http://127.0.0.1:{hanging_up.getsockname()[1]}")
        self.assertEqual(self.enter(running.listen("127.0.0.1", 0), 20_000), (503, "away"))
        self.assertEqual(running._node._noes, {})

    def test_who_does_not_speak_of_a_root_that_he_is_asked_about_is_away(self) -> None:
        component, begun = self.component(), []

        @component.service()
        def enter(call, word: str) -> str:
            begun.append(call.root)
            call.call("stock", "take", word)
            return word

        running = self.start(component, database_url())
        address = running.listen("127.0.0.1", 0)
        peers = running._node.peers
        for status, text in ((200, b'{"roots":[]}'), (200, b'{"roots":[{"root":"s","vote":"no"}]}'), (500, b"")):
            begun.clear()
            with patch.multiple(peers, call=lambda *_: (None, 1), _post=lambda *_: (status, None, text)):
                self.assertEqual(self.enter(address, 20_000), (503, "away"), text)
            self.assertEqual(len(begun), 1, "it is begun again, for nothing")

    def test_a_vote_that_comes_after_the_time_of_its_root_does_not_count(self) -> None:
        component = self.component()

        @component.service()
        def enter(call, word: str) -> str:
            call.call("stock", "take", word)
            call.execute("INSERT INTO apart_word VALUES (%s)", [word])
            return word

        running = self.start(component, database_url())
        node = running._node

        def prepare(child: str, root: str, calls: int, generation: int | None) -> tuple[Vote, None]:
            until = time.monotonic() + 0.5
            # As if the process had been stopped: its timers do not run.
            with node.lock:
                while time.monotonic() < until:
                    pass
                node.tell("voted", root, child, Vote(nonce=5))
            return Vote(nonce=5), None

        done = {"commit": lambda *_: "done", "abort": lambda *_: "done"}
        with patch.multiple(node.peers, call=lambda *_: (None, 1), prepare=prepare, **done):
            self.assertEqual(self.enter(running.listen("127.0.0.1", 0), 500), (504, "deadline"))
        with psycopg.connect(database_url(), autocommit=True) as connection:
            self.assertEqual(connection.execute("SELECT word FROM apart_word").fetchall(), [])

    @patch("cognate_composite.node._LOOK", 0.05)
    def test_a_process_that_nobody_calls_notices_that_it_was_taken_over(self) -> None:
        older = self.start(self.component(), database_url())
        later = self.start(self.component(), database_url())
        waiting = threading.Thread(target=older.wait_fenced, daemon=True)
        waiting.start()
        waiting.join(60)
        self.assertFalse(waiting.is_alive(), "it goes on as if nothing had happened")
        self.assertFalse(later._node.is_fenced.is_set())

    def test_an_older_process_says_of_nothing_that_it_never_heard_of_that_it_is_done(self) -> None:
        older = self.start(self.component(), database_url())
        told = ("commit_told", "r", "shop", 7)
        self.assertEqual(older._node.settled(*told), "done")
        later = self.start(self.component(), database_url())
        # The later one may have promised it, and its parent would forget it.
        self.assertEqual(older._node.settled(*told), "pending")
        self.assertEqual(later._node.settled(*told), "done")

    def test_a_call_that_comes_again_while_the_first_one_ends_is_another_one(self) -> None:
        component, runs, problems = self.component(), [], []
        has_begun, may_end = threading.Event(), threading.Event()
        self.addCleanup(may_end.set)

        @component.service()
        def take(call) -> None:
            runs.append(call)
            if len(runs) == 2:
                has_begun.set()
                may_end.wait(60)
            raise Refused("sold out")

        running = self.start(component, database_url())
        node, name = running._node, ("r", "r.1")
        arrival = Arrival(*name, "shop", (), "take", "", 1)
        request = Request(arrival, take, (), time.monotonic() + 60)

        def execute_again() -> None:
            try:
                running._runner.execute(request)
            except Problem as problem:
                problems.append(problem.reason)

        again, tell = threading.Thread(target=execute_again), node.tell

        def tell_and_call(event: str, *details: object) -> list[tuple]:
            effects = tell(event, *details)
            if event == "rolled_back" and len(runs) == 1:
                # The first one is rolled back, and has not left yet.
                again.start()
                self.assertTrue(has_begun.wait(60))
            return effects

        with patch.object(node, "tell", tell_and_call):
            with self.assertRaises(Refused):
                running._runner.execute(request)
            self.assertIn(name, node.under_way)
            may_end.set()
            again.join(60)
        self.assertEqual((problems, node.under_way), (["failed"], {}))


if __name__ == "__main__":
    unittest.main()
