"""The pure parts: the matrix, the participant's rows that processes rarely meet, the journal, and shapes."""

import contextlib
import dataclasses
import json
import socket
import tempfile
import threading
import time
import unittest
from http.client import HTTPMessage
from pathlib import Path
from queue import SimpleQueue
from unittest.mock import Mock, patch

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from cognate_composite import Component, StartError, never, same_item, shape
from cognate_composite.database import NotCommitted, Pool, Transaction
from cognate_composite.journal import BadJournal, Journal
from cognate_composite.locks import Arrival
from cognate_composite.matrix import ALWAYS, NEVER, SAME_ITEM, Declared, Matrix
from cognate_composite.names import child, identifier
from cognate_composite.node import Node, UnderWay
from cognate_composite.participant import Participant
from cognate_composite.peers import Peers
from cognate_composite.problem import Problem, Refused, is_of_cast, is_serialization, of, of_database, received
from cognate_composite.root import Origin, SlotFacts, Vote, VoteFacts
from cognate_composite.run import Runner
from cognate_composite.server import Tokens, _Handler
from cognate_composite.sessions import FENCED, Terms
from cognate_composite.slots import UNDONE, Facts
from cognate_composite.slots import Slots as Kept

SERVICES = [Declared("take", True, False, True), Declared("count", True, True, False), Declared("buy", False, False, False)]
MATRIX = Matrix(SERVICES, [never("take", "take"), never("buy", "take"), same_item("take", "count")])


def arrival(root: str, call: str, parent: str | None, service: str = "take", ancestors: tuple = ()) -> Arrival:
    return Arrival(root, call, parent, ancestors, service, "7", 1)


def kinds(effects: list) -> list[str]:
    return [effect[0] for effect in effects]


class Waits(unittest.TestCase):
    @patch("cognate_composite.run._LOOK", 0.001)
    def test_who_waits_hears_that_the_component_says_nothing_more(self) -> None:
        failed = Problem(503, "defect", "the component has stopped")
        runner = Runner(Mock(**{"check.side_effect": failed}), 1.0)
        for wait in (runner._permission, runner._verdict):
            with self.assertRaises(Problem) as raised:
                wait(UnderWay())
            self.assertIs(raised.exception, failed)

    def test_what_is_said_is_heard(self) -> None:
        runner, under_way = Runner(Mock(), 1.0), UnderWay()
        under_way.start.set_result("late")
        under_way.verdict.put(False)
        self.assertEqual((runner._permission(under_way), runner._verdict(under_way)), ("late", False))


class Pools(unittest.TestCase):
    def pool(self, url: str, most: int) -> Pool:
        return Pool(url, "name", most, Terms(None, ""))

    @patch("cognate_composite.database.psycopg.connect")
    def test_a_database_that_is_silent_is_noticed_unless_its_address_says_otherwise(self, connect: Mock) -> None:
        for url, idle, sent in [
            ("postgresql://a@b/c", 30, 60_000),
            ("postgresql://a@b/c?keepalives_idle=7", None, 60_000),
            ("postgresql://a@b/c?tcp_user_timeout=9", 30, None),
        ]:
            self.pool(url, 1).take()
            given = connect.call_args.kwargs
            # What the address says is not said otherwise beside it.
            self.assertEqual((given.get("keepalives_idle"), given.get("tcp_user_timeout")), (idle, sent), url)

    @patch("cognate_composite.database._PATIENCE", 0.01)
    @patch("cognate_composite.database.psycopg.connect")
    def test_whom_somebody_waits_for_has_a_connection_left(self, connect: Mock) -> None:
        pool = self.pool("postgresql://a@b/c", 1)
        taken = [pool.take(), pool.take(is_within=True), pool.take(is_within=True)]
        for is_within in (False, True):
            with self.assertRaises(Problem) as raised:
                pool.take(is_within=is_within)
            self.assertEqual((raised.exception.status, raised.exception.reason), (409, "conflict"))
        pool.give_back(taken.pop(), False)
        pool.give_back(pool.take(is_within=True), False)
        # Whom nobody waits for waits until all of these are back.
        pool.give_back(taken.pop(), False)
        with self.assertRaises(Problem):
            pool.take()
        pool.give_back(taken.pop(), False)
        pool.take()


class Slots(unittest.TestCase):
    def test_what_a_component_in_rust_says_more_in_its_slots_is_left_out(self) -> None:
        said = {"call": "r.1", "parent": "shop", "ancestors": ["1"], "service": "take", "item": "7", "sequence": 3}
        said |= {"arguments": 5, "answer": "null", "undo": ["7"], "children": [["payment", 1]], "began_here": False}
        said |= {"decision": None, "deadline_ms": 900}
        more = {"nonce": 7, "nonces": [["payment", 3]], "origin": {"database": "d", "generation": 2}}
        self.assertEqual(Facts.read(json.dumps(said | more)), Facts(**said))


class Answers(unittest.TestCase):
    @patch("cognate_composite.slots._PIECES", 2)
    def test_answers_whose_time_is_over_are_removed_piece_by_piece(self) -> None:
        slots, pool, looks, swept = Kept.__new__(Kept), Mock(), iter(["b", "d", "e", None, "b", "d"]), []
        slots.component, slots._swept = "solo", ""

        def run(statement: tuple) -> list:
            if "DELETE" in statement[0]:
                swept.append(statement[1])
            row = () if "DELETE" in statement[0] else (next(looks),)
            return [Mock(**{"fetchone.return_value": row})]

        pool.run.side_effect = run
        for _ in range(3):
            slots.sweep_answers(pool)
        # After the last ones it begins again.
        pieces = [("", "b"), ("b", "d"), ("d", "e"), ("", "b"), ("b", "d")]
        self.assertEqual(swept, [("solo", *piece) for piece in pieces])


class Undos(unittest.TestCase):
    @patch("cognate_composite.node._UNDO_WITHIN", 0.01)
    @patch("cognate_composite.node.Transaction")
    def test_an_undo_that_does_not_end_is_cancelled(self, transaction: Mock) -> None:
        work, cancelled = transaction.return_value, threading.Event()
        work.cancel.side_effect = cancelled.set

        def undo_one(undo: object, pushed: str) -> None:
            self.assertTrue(cancelled.wait(60), "nobody cancels it")
            raise psycopg.errors.QueryCanceled("canceling statement due to user request")

        service = Mock(reads=False, isolation="serializable", **{"undo_one.side_effect": undo_one})
        node = Node("stock", {"take": service}, Mock(), Mock(), Mock(), Mock(), Mock(), Mock(), 0.2)
        problem = node._undo_once("r", 0, Mock(service="take", undo=["1"]))
        assert problem is not None
        self.assertEqual((problem.status, problem.reason), (504, "deadline"))
        work.roll_back.assert_called_once()


class Statements(unittest.TestCase):
    def test_a_service_neither_begins_nor_ends_a_transaction(self) -> None:
        pool = Mock()
        for refused in (
            "COMMIT",
            "  commit and chain",
            "END",
            "BEGIN",
            "start transaction",
            "Abort;",
            "ROLLBACK",
            "PREPARE TRANSACTION 'a'",
            "ROLLBACK PREPARED 'a'",
            ";COMMIT",
            "-- all is well\nCOMMIT",
            "/* all is well */ COMMIT",
            "/* all /* is */ well */ COMMIT",
            "ROLLBACK /* to the beginning */",
            "ROLLBACK; -- to the beginning",
            "rollback work",
            "PREPARE/* for all */TRANSACTION 'a'",
            b"COMMIT",
            sql.SQL("COMMIT"),
            sql.SQL("{} {}").format(sql.SQL("-- all is well\n"), sql.SQL("ROLLBACK")),
            Mock(),
        ):
            with self.assertRaises(Problem) as raised:
                Transaction(pool, "serializable").execute(refused)
            self.assertEqual((raised.exception.status, raised.exception.reason), (503, "defect"), refused)
        pool.begin.assert_not_called()
        for taken in (
            "SELECT 1",
            "rollback to savepoint a",
            "ROLLBACK WORK /* back */ TO a",
            "PREPARE a AS SELECT 1",
            "-- start\nSELECT 1",
            "/* end */ SELECT 1",
            "/* all /* is */ commit */ SELECT 1",
            "ENDING",
            "/* commit",
            "",
            b"SELECT 1",
            sql.SQL("SELECT {} AS commit").format(sql.Identifier("end")),
        ):
            pool.begin.reset_mock()
            Transaction(pool, "serializable").execute(taken, [1])
            pool.begin.assert_called_once()
            # Otherwise a text might be several statements.
            pool.begin.return_value.execute.assert_called_with(taken, [1], prepare=True)

    def test_what_comes_after_an_end_by_another_way_is_not_executed(self) -> None:
        pool = Mock()
        connection, work = pool.begin.return_value, Transaction(pool, "serializable")
        work.execute("SELECT 1")
        connection.info.transaction_status = TransactionStatus.IDLE
        with self.assertRaises(Problem) as raised:
            work.execute("SELECT 2")
        self.assertEqual((raised.exception.status, raised.exception.reason), (503, "defect"))
        with self.assertRaises(NotCommitted) as not_committed:
            work.commit([("SELECT 3", ())], is_fenced=True)
        self.assertEqual(not_committed.exception.cause.reason, "defect")
        executed = [call.args[0] for call in connection.execute.call_args_list]
        self.assertEqual(executed, ["SELECT 1", "ROLLBACK"])

    def test_a_connection_on_which_a_plan_is_out_of_date_is_not_used_again(self) -> None:
        for said, is_usable in [("cached plan must not change result type", False), ("no such feature", True)]:
            pool = Mock()
            connection, work = pool.begin.return_value, Transaction(pool, "serializable")
            connection.closed, connection.execute.side_effect = False, psycopg.errors.FeatureNotSupported(said)
            with self.assertRaises(psycopg.errors.FeatureNotSupported):
                work.execute("SELECT * FROM item")
            connection.execute.side_effect = None
            work.roll_back()
            pool.give_back.assert_called_once_with(connection, is_usable)


class Headers(unittest.TestCase):
    def left(self, said: str) -> float:
        handler = object.__new__(_Handler)
        handler.headers = HTTPMessage()
        handler.headers["Cognate-Deadline-Ms"] = said
        handler._arrived = 100.0
        return handler._deadline() - 100.0

    def test_zeros_in_front_of_a_deadline_change_nothing(self) -> None:
        for said, left in [("5000", 5.0), ("0" * 20 + "5000", 5.0), ("9" * 30, 60.0), ("0" * 5000 + "60001", 60.0)]:
            self.assertAlmostEqual(self.left(said), left, msg=said)
        no_numbers = [(said, 400) for said in ("-1", "+5", "1e3", "5 0", "")]
        for said, status in [("0", 504), ("0" * 20, 504), *no_numbers]:
            with self.assertRaises(Problem) as raised:
                self.left(said)
            self.assertEqual(raised.exception.status, status, said)


    def check(self, *headers: tuple[str, str]) -> int:
        """The status with which such headers of a call are refused; 200 if they are not."""
        handler = object.__new__(_Handler)
        handler.headers = HTTPMessage()
        for header, text in headers:
            # It is one more, and takes no other one's place.
            handler.headers[header] = text
        try:
            handler._check_unused()
        except Problem as problem:
            return problem.status
        return 200

    def test_what_is_not_needed_is_looked_at_all_the_same(self) -> None:
        for good in ("m:7", "m:0", "4f:0:7", ":7", "m:" + "0" * 5000 + "7", f"m:{2**64 - 1}"):
            self.assertEqual(self.check(("Cognate-Origin", good), ("Cognate-Ahead", "1")), 200, good)
        for bad in ("", "m", "m:", "m:x", "m:-1", "m:+1", "m:1 0", "m:\xb2", f"m:{2**64}", "m:" + "9" * 5000):
            self.assertEqual(self.check(("Cognate-Origin", bad)), 400, bad)
        for twice in (("Cognate-Origin", "m:7"), ("Cognate-Ahead", "1")):
            self.assertEqual(self.check(twice, twice), 400, twice)


class Child(unittest.TestCase):
    """What another component answers, byte by byte."""

    def setUp(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.peers, self._said = Peers("shop", None), SimpleQueue()
        self.peers.set("stock", f"http://127.0.0.1:{listener.getsockname()[1]}")
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as source:
                    length = 0
                    while (line := source.readline()) not in (b"\r\n", b""):
                        name, _, text = line.partition(b":")
                        length = int(text) if name.lower() == b"content-length" else length
                    source.read(length)
                    connection.sendall(self._said.get())

    def call(self, said: bytes) -> object:
        """What a call comes to that is answered so."""
        self._said.put(b"HTTP/1.1 " + said)
        try:
            answer, _ = self.peers.call("stock", "take", "r", "r.1", ["1"], time.monotonic() + 60, "1", {})
            return answer
        except Problem as problem:
            return problem.status, problem.reason, problem.began

    def test_a_part_of_an_answer_is_none(self) -> None:
        chunked = b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        for whole in (b"200 OK\r\nContent-Length: 4\r\n\r\n1000", chunked + b"2\r\n10\r\n2\r\n00\r\n0\r\n\r\n"):
            self.assertEqual(self.call(whole), 1000, whole)
        for cut in (
            b"200 OK\r\nContent-Length: 4\r\n\r\n10",
            b"200 OK\r\nContent-Length: 4\r\n\r\n",
            b"200 OK\r\nContent-Length: 4\r\n",
            b"200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n1000",
            b"200 OK\r\n\r\n1000",
            b"200 OK\r\nTransfer-Encoding: gzip\r\n\r\n1000",
            chunked + b"2\r\n10\r\n",
            chunked + b"4\r\n10",
            b"409 Conflict\r\nContent-Length: 60\r\n\r\n{}",
        ):
            self.assertEqual(self.call(cut), (503, "away", True), cut)

    def ask(self, text: str, length: int | None = None) -> tuple[Vote, str | None]:
        """The vote that is answered so, and why it is a no."""
        body = text.encode()
        self._said.put(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (length or len(body), body))
        vote, why = self.peers.prepare("stock", "r", 1, None)
        return vote, why and why.reason

    def test_a_vote_is_a_whole_answer_that_says_one_thing(self) -> None:
        yes, no, nothing = '{"root":"r","vote":"yes","nonce":5}', '{"root":"r","vote":"no","reason":"count"}', "away"
        other = '{"root":"s","vote":"yes","nonce":6}'
        self.assertEqual(self.ask('{"roots":[%s,%s,%s]}' % (other, yes, yes)), (Vote(nonce=5), None))
        self.assertEqual(self.ask('{"roots":[%s]}' % no), (Vote(no="child"), "conflict"))
        for entries in ((), (other,), (yes, no), (no, yes), (yes, yes.replace("5", "7")), (yes, no, yes)):
            said = self.ask('{"roots":[%s]}' % ",".join(entries))
            self.assertEqual(said, (Vote(no="failed"), nothing), entries)
        for nonce in ("-1", "true", '"5"', "null"):
            said = self.ask('{"roots":[%s]}' % yes.replace("5", nonce))
            self.assertEqual(said, (Vote(no="failed"), nothing), nonce)
        self.assertEqual(self.ask('{"roots":[%s]}' % yes, 100), (Vote(no="failed"), nothing))

    def test_a_cut_outcome_is_none(self) -> None:
        for what, entry in (("commit", '"state":"done"'), ("abort", '"state":"done"'), ("outcome", '"state":"aborted"')):
            body = b'{"roots":[{"root":"r",%s}]}' % entry.encode()
            tell = getattr(self.peers, what)
            more = {"commit": (5,), "abort": (), "outcome": (5, [])}[what]
            for length, is_heard in ((len(body), True), (len(body) + 1, False)):
                self._said.put(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (length, body))
                said = tell("stock", "r", *more)
                state = said[0] if isinstance(said, tuple) else said
                self.assertEqual(state is not None, is_heard, (what, length))


class Names(unittest.TestCase):
    def test_the_identifier_of_a_call_within_calls_is_never_too_long(self) -> None:
        self.assertEqual(child("1", 2), "1.2")
        longest = "c" * 128
        made = {child(call, number) for call in (longest, "c" * 127 + "d") for number in (1, 2, 10)}
        self.assertEqual(len(made), 6, "each of another call is another one")
        self.assertEqual(child(longest, 1), child(longest, 1))
        for _ in range(100):
            longest = identifier(child(longest, 1))


class Origins(unittest.TestCase):
    def test_a_question_for_a_vote_says_where_its_parent_decides(self) -> None:
        peers = Peers("shop", None)
        answer = (200, None, b'{"roots":[{"root":"r","vote":"yes","nonce":5}]}')
        asked = []
        for origin in (None, Origin("d", 3)):
            if origin:
                peers.begin(origin)
            with patch.object(peers, "_post", return_value=answer) as post:
                self.assertEqual(peers.prepare("stock", "r", 1, None), (Vote(nonce=5), None))
            asked.append(json.loads(post.call_args.args[3])["roots"][0].get("origin"))
        self.assertEqual(asked, [None, {"database": "d", "generation": 3}])

    def test_an_outcome_says_where_it_is_known(self) -> None:
        peers = Peers("stock", None)
        cases = [
            ({}, ("aborted", None)),
            ({"origin": {"database": "d", "generation": 3}}, ("aborted", Origin("d", 3))),
            ({"origin": {"database": "d", "generation": "3"}}, (None, None)),
        ]
        for more, expected in cases:
            text = json.dumps({"roots": [{"root": "r", "state": "aborted"} | more]}).encode()
            with patch.object(peers, "_post", return_value=(200, None, text)) as post:
                self.assertEqual(peers.outcome("shop", "r", 7, ["1"]), expected)
            self.assertEqual(json.loads(post.call_args.args[3])["roots"][0]["callers"], ["1"])

    def test_who_was_replaced_or_restored_speaks_for_nobody(self) -> None:
        asked = Origin("d", 7)
        speaks = [Origin(*of).speaks_for(asked) for of in (("d", 7), ("d", 8), ("d", 6), ("e", 8))]
        self.assertEqual(speaks, [True, True, False, False])


class Matrices(unittest.TestCase):
    def test_what_nothing_is_said_about_conflicts_but_reads_with_reads(self) -> None:
        self.assertEqual((MATRIX.cell("buy", "buy"), MATRIX.cell("count", "count")), (ALWAYS, NEVER))
        self.assertEqual((MATRIX.cell("take", "count"), MATRIX.cell("count", "take")), (SAME_ITEM, SAME_ITEM))

    def test_a_line_that_makes_no_sense_is_refused(self) -> None:
        for line in (never("take", "x"), same_item("buy", "take")):
            with self.assertRaises(ValueError):
                Matrix(SERVICES, [line])

    def test_the_undo_counts_and_a_line_may_be_one_way(self) -> None:
        matrix = Matrix(SERVICES, [never("take", "take").undo(SAME_ITEM), never("count", "take").one_way()])
        self.assertEqual(matrix.cell("take", "take"), SAME_ITEM)
        self.assertEqual((matrix.cell("count", "take"), matrix.cell("take", "count")), (NEVER, ALWAYS))


class Participants(unittest.TestCase):
    def setUp(self) -> None:
        self.one = Participant(MATRIX, 1)

    def answered(self, root: str, call: str, parent: str | None, slot: int = 0) -> None:
        self.assertEqual(kinds(self.one.arrive(arrival(root, call, parent))), ["run"])
        self.assertEqual(kinds(self.one.committed(root, call, slot, "null")), ["answer"])

    def test_a_call_that_comes_again_is_the_same_one(self) -> None:
        self.answered("r", "1", "shop")
        self.assertEqual(self.one.arrive(arrival("r", "1", "shop")), [("repeat", "r", "1", "null")])
        self.assertEqual(self.one.arrive(arrival("r", "1", "shop", "count")), [("refuse", "r", "1", "arguments")])

    def test_of_no_calls_every_parent_hears_yes(self) -> None:
        self.assertEqual(self.one.prepare("n", "shop", 0, None, 5)[-1], ("send_vote", "n", "shop", Vote(nonce=5)))
        self.assertEqual(self.one.prepare("n", "office", 0, None, 6), [("send_vote", "n", "office", Vote(nonce=6))])
        self.assertEqual(self.one.prepare("n", "office", 1, None, 7), [("send_vote", "n", "office", Vote(no="ended"))])

    def test_who_has_a_yes_has_it(self) -> None:
        self.answered("r", "1", "shop")
        self.one.prepare("r", "shop", 1, None, 11)
        yes = ("send_vote", "r", "shop", Vote(nonce=11))
        self.assertEqual(self.one.vote_written("r"), [yes])
        self.assertEqual(self.one.prepare("r", "shop", 2, None, 12), [("send_vote", "r", "shop", Vote(no="count"))])
        self.assertTrue(self.one.is_in_doubt("r"))
        self.assertEqual(self.one.prepare("r", "shop", 1, None, 13), [yes])

    def test_a_sibling_waits_and_another_root_conflicts(self) -> None:
        self.one.arrive(arrival("r", "1", "shop"))
        self.assertEqual(kinds(self.one.arrive(arrival("r", "2", "shop", "count"))), ["wait"])
        self.assertEqual(kinds(self.one.arrive(arrival("q", "1", "shop", "count"))), ["wait"])
        self.assertTrue(self.one.waits_for_sibling("r", "2"))
        self.assertFalse(self.one.waits_for_sibling("q", "1") or self.one.waits_for_sibling("r", "1"))
        self.assertEqual(self.one.committed("r", "1", 0, "null"), [("answer", "r", "1", "null"), ("run", "r", "2")])
        (refused,) = self.one.waited_enough("q", "1")
        self.assertEqual((refused[3].kind, refused[3].root), ("conflict", "r"))
        self.assertEqual(kinds(self.one.arrive(arrival("r", "3", "shop", "count", ("1",)))), ["refuse"])

    def test_a_further_parent_is_answered_while_the_first_ones_answer_waits_for_the_children(self) -> None:
        self.one.arrive(arrival("r", "1", "shop"))
        self.assertTrue(self.one.may_call("r", "1", "below"))
        self.one.called("r", "1", "below", "answered", 4)
        self.one.committed("r", "1", 0, "null")
        self.answered("r", "2", "office", 1)
        self.assertEqual(self.one.prepare("r", "shop", 1, None, 11), [("ask_vote", "r", "below", 1, 4)])
        self.assertEqual(self.one.prepare("r", "office", 1, None, 12), [("write_vote", "r", 11)])
        self.assertEqual(self.one.vote_written("r"), [("send_vote", "r", "office", Vote(nonce=11))])
        # With the child's yes the record is written again, and the first parent hears.
        self.assertEqual(self.one.voted("r", "below", Vote(nonce=5)), [("write_vote", "r", 11)])
        self.assertEqual(self.one.vote_written("r"), [("send_vote", "r", "shop", Vote(nonce=11))])
        self.assertEqual(kinds(self.one.commit_told("r", "shop", 11)), ["tell_commit", "send_settled"])
        # A further parent is let go once the database knows.
        self.assertEqual(self.one.commit_told("r", "office", 11), [("send_settled", "r", "office", "pending")])
        self.assertEqual(kinds(self.one.commit_told("r", "office", 11)), ["note", "send_settled"])
        self.one.noted("r")
        self.assertEqual(self.one.commit_told("r", "office", 11), [("send_settled", "r", "office", "done")])
        self.assertEqual(self.one.told("r", "below", "done"), [("free", "r", [0, 1])])
        self.assertEqual(self.one.freed("r"), [("forget", "r", True)])
        self.assertTrue(self.one.is_idle)

    def test_a_no_below_keeps_a_yes_that_is_out_in_doubt(self) -> None:
        self.one.arrive(arrival("r", "1", "shop"))
        self.one.may_call("r", "1", "below")
        self.one.called("r", "1", "below", "answered", 1)
        self.one.committed("r", "1", 0, "null")
        self.one.prepare("r", "shop", 1, None, 11)
        self.one.prepare("r", "office", 0, None, 12)
        self.one.vote_written("r")
        self.assertEqual(self.one.voted("r", "below", Vote(no="count")), [("send_vote", "r", "shop", Vote(no="child"))])
        self.assertTrue(self.one.is_in_doubt("r"))
        self.assertEqual(self.one.deadline("r"), [("ask_outcome", "r", "shop", 11), ("ask_outcome", "r", "office", 11)])
        out = self.one.learned("r", "shop", "aborted")
        self.assertEqual(out, [("mark", "r", "undone"), ("tell_abort", "r", "below"), ("undo", "r", "1")])
        self.assertEqual(self.one.undone("r", "1"), [("forget", "r", False)])
        self.one.mark_over("r")
        self.assertNotIn("r", self.one.marks)
        self.assertTrue(self.one.is_idle)

    def test_who_has_not_called_here_does_not_end_a_promise(self) -> None:
        self.answered("r", "1", "shop", 0)
        self.one.prepare("r", "shop", 1, None, 11)
        self.one.vote_written("r")
        # An office that had forgotten the root executes a call that comes late, whose own call is refused here.
        self.assertEqual(self.one.arrive(arrival("r", "2.1", "office")), [("refuse", "r", "2.1", "ended")])
        for has_asked in (False, True):
            if has_asked:
                yes = [("send_vote", "r", "office", Vote(nonce=11))]
                self.assertEqual(self.one.prepare("r", "office", 0, None, 12), yes)
            self.assertEqual(self.one.abort_told("r", "office"), [("send_settled", "r", "office", "pending")])
            self.assertEqual(self.one.learned("r", "office", "aborted"), [])
            self.assertTrue(self.one.is_in_doubt("r"))
        self.assertIn(("undo", "r", "1"), self.one.learned("r", "shop", "aborted"))

    def test_what_a_person_has_committed_is_noted(self) -> None:
        # Nobody says it again, so the database has to know it, also if the process ends now.
        self.one.arrive(arrival("r", "1", "shop"))
        self.one.may_call("r", "1", "below")
        self.one.called("r", "1", "below", "answered", 4)
        self.one.committed("r", "1", 3, "null")
        self.one.prepare("r", "shop", 1, None, 11)
        self.one.voted("r", "below", Vote(nonce=5))
        self.one.vote_written("r")
        out = self.one.learned("r", None, "committed")
        self.assertEqual(out, [("tell_commit", "r", "below", 5), ("note", "r", [3])])
        self.assertTrue(self.one.is_settled("r"))
        self.one.noted("r")
        self.assertFalse(self.one.is_settled("r"))
        # What has its slots freed at once needs no note.
        self.answered("s", "1", "shop", 5)
        self.one.prepare("s", "shop", 1, None, 13)
        self.one.vote_written("s")
        self.assertEqual(self.one.learned("s", None, "committed"), [("free", "s", [5])])
        self.assertTrue(self.one.is_settled("s"))
        self.one.freed("s")
        self.assertFalse(self.one.is_settled("s"))
        # A parent that says so remembers it.
        self.answered("q", "1", "shop", 4)
        self.one.prepare("q", "shop", 1, None, 12)
        self.one.vote_written("q")
        self.assertEqual(self.one.learned("q", "shop", "committed"), [("free", "q", [4])])
        self.assertFalse(self.one.is_settled("q"))

    def test_where_it_began_all_vote_and_the_commit_decides(self) -> None:
        self.one.arrive(arrival("r", "1", None, "buy"))
        self.one.may_call("r", "1", "stock")
        self.one.called("r", "1", "stock", "answered", 3)
        self.assertEqual(self.one.finish("r"), [("ask_vote", "r", "stock", 1, 3)])
        self.assertEqual(self.one.outcome("r", "stock", 8), "pending")
        self.assertEqual(self.one.voted("r", "stock", Vote(nonce=8)), [("decide", "r", "1")])
        out = self.one.committed("r", "1", 0, "{}")
        self.assertEqual(out, [("answer", "r", "1", "{}"), ("tell_commit", "r", "stock", 8)])
        # A vote that this was not decided by was made for a late duplicate.
        self.assertEqual([self.one.outcome("r", "stock", nonce) for nonce in (8, 9)], ["committed", "aborted"])

    def test_who_has_lost_the_call_that_called_says_aborted(self) -> None:
        self.answered("r", "1", "shop", 0)
        asked = [self.one.outcome("r", "below", 3, callers) for callers in ([], ["1"], ["1", "2"])]
        self.assertEqual(asked, ["pending", "pending", "aborted"])

    def test_who_asks_names_the_calls_that_have_called(self) -> None:
        for call, parent, ancestors in [("a.1", "shop", ("1", "a")), ("b.1", "shop", ("1", "b")), ("c.1", "office", ("c",))]:
            self.one.arrive(arrival("r", call, parent, ancestors=ancestors))
        self.one.arrive(arrival("r", "d", "shop"))
        self.assertEqual(self.one.callers("r", "shop"), ["a", "b"])
        self.assertEqual((self.one.callers("r", "office"), self.one.callers("q", "shop")), (["c"], []))

    def test_a_failed_call_dooms_its_root_and_undo_goes_backwards(self) -> None:
        self.answered("r", "1", "shop", 0)
        self.answered("r", "2", "shop", 1)
        self.one.arrive(arrival("r", "3", "shop"))
        self.one.may_call("r", "3", "below")
        self.one.called("r", "3", "below", "failed")
        self.assertEqual(kinds(self.one.arrive(arrival("r", "4", "shop"))), ["refuse"])
        self.one.rolled_back("r", "3")
        out = self.one.prepare("r", "shop", 2, None, 1)
        self.assertEqual(out[0], ("send_vote", "r", "shop", Vote(no="doomed")))
        self.assertEqual(out[1:], [("mark", "r", "undone"), ("tell_abort", "r", "below"), ("undo", "r", "2")])
        self.one.mark_over("r")
        self.assertIn("r", self.one.marks, "it is needed until nothing is left")
        self.assertEqual(self.one.undone("r", "2"), [("undo", "r", "1")])
        self.assertEqual(self.one.undone("r", "1"), [("forget", "r", False)])
        self.assertTrue(self.one.is_idle)

    def test_who_was_never_reached_is_not_asked(self) -> None:
        for number, (outcomes, children) in enumerate(
            [(["not sent"], []), (["left nothing", "not sent"], ["away"]), (["not sent", "left nothing"], ["away"])]
        ):
            root = f"n{number}"
            self.one.arrive(arrival(root, "1", "shop"))
            for _ in outcomes:
                self.assertTrue(self.one.may_call(root, "1", "away"))
            for sent in outcomes:
                self.one.called(root, "1", "away", sent)
            self.assertEqual(list(self.one.roots[root].children), children)
            self.assertEqual(list(self.one.roots[root].calls["1"].children), children)
            # Nothing is elsewhere of who has reached nobody.
            self.assertEqual(self.one.has_called(root, "1"), bool(children))
        self.assertFalse(self.one.has_called("unknown", "1"))

    def recovered(self, votes: list, marks: dict, is_whole: bool, **more: object) -> tuple[Participant, list]:
        facts = {"children": [("below", 1)], "began_here": False, "decision": None, "is_noted": False} | more
        slots = [SlotFacts(0, arrival("r", "1", "shop"), 5, "null", **facts)]
        one = Participant(MATRIX, 2)
        return one, one.recover(slots, votes, marks, is_whole)

    def test_slots_and_journal_say_what_a_root_is(self) -> None:
        yes = VoteFacts("r", 9, ["shop", "office"], [("below", 3)])
        cases = [
            ([], {}, True, {}, "active", []),
            ([yes], {}, True, {}, "in-doubt", ["ask_outcome", "ask_outcome"]),
            ([], {}, False, {}, "in-doubt", ["write_vote", "ask_outcome"]),
            # Its undo was begun, or about to be.
            ([], {"r": "undone"}, True, {}, "aborting", ["tell_abort", "undo"]),
            ([], {"r": "empty"}, True, {}, "active", []),
            ([yes], {}, True, {"is_noted": True}, "committed", ["tell_commit"]),
            ([], {}, True, {"began_here": True}, "aborting", ["tell_abort", "undo"]),
            ([], {}, True, {"began_here": True, "decision": [("below", 3)]}, "committed", ["tell_commit"]),
        ]
        for votes, marks, is_whole, more, state, expected in cases:
            one, effects = self.recovered(votes, marks, is_whole, **more)
            self.assertEqual((one.shown()[0]["state"], kinds(effects)), (state, expected))
        only_read = Participant(MATRIX, 2)
        only_read.recover([], [yes], {}, True)
        self.assertEqual(kinds(only_read.arrive(arrival("r", "2", "shop"))), ["refuse"])


class Journals(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "journal"

    def test_votes_and_marks_are_there_again_and_a_torn_line_is_not(self) -> None:
        journal = Journal(self.folder)
        name, vote = journal.name(), VoteFacts("r", 7, ["shop"], [("below", 3)], [("shop", Origin("d", 3))])
        journal.vote(vote)
        journal.vote(VoteFacts("q", None, [], []))
        journal.mark("m", "empty")
        journal.end("q", True)
        with self.assertRaises(BadJournal):
            Journal(self.folder)
        journal.close()
        with open(self.folder / "journal", "ab") as file:
            file.write(b'00000000 {"mark":["torn')
        for _ in range(2):
            journal = Journal(self.folder)
            self.assertEqual((journal.id, journal.votes), (name, {"r": vote}))
            self.assertEqual(journal.marks, {"m": "empty", "q": "committed"})
            journal.close()

    def test_a_vote_of_an_earlier_version_says_no_origin(self) -> None:
        journal = Journal(self.folder)
        earlier = {"root": "r", "nonce": 7, "parents": ["shop"], "children": [["below", 3]]}
        journal._append({"vote": earlier}, True)
        self.assertEqual(journal.votes, {"r": VoteFacts("r", 7, ["shop"], [("below", 3)])})
        journal.close()

    @patch("cognate_composite.journal._GROWN", 0)
    def test_what_is_forgotten_is_left_out_when_it_is_written_anew(self) -> None:
        journal = Journal(self.folder)
        journal.vote(VoteFacts("r", 7, ["shop"], []))
        journal.vote(VoteFacts("q", 8, ["shop"], []))
        journal.mark("m", "empty")
        for root in ("r", "m"):
            journal.forget(root)
        # It has grown, and is written anew by the first of these at the latest.
        for number in range(9):
            journal.mark(f"n{number}", "empty")
        journal.close()
        journal = Journal(self.folder)
        self.assertEqual((set(journal.votes), "m" in journal.marks), ({"q"}, False))
        journal.close()

    def test_a_yes_outlasts_a_mark_that_was_over_before_it(self) -> None:
        journal = Journal(self.folder)
        journal.mark("r", "undone")
        journal.forget("r")
        journal.vote(VoteFacts("r", 7, ["shop"], []))
        journal.close()
        # Each start writes it anew.
        for _ in range(2):
            journal = Journal(self.folder)
            self.assertEqual((set(journal.votes), journal.marks), ({"r"}, {}))
            journal.close()

    def test_damage_in_the_middle_is_not_passed_over(self) -> None:
        journal = Journal(self.folder)
        journal.name()
        journal.mark("a", "empty")
        journal.mark("b", "empty")
        journal.close()
        text = (self.folder / "journal").read_bytes()
        (self.folder / "journal").write_bytes(text.replace(b'"a"', b'"x"'))
        with self.assertRaisesRegex(BadJournal, "line 2 is damaged"):
            Journal(self.folder)


@dataclasses.dataclass
class Line:
    item: int
    count: int = 1
    note: str | None = None


class Problems(unittest.TestCase):
    def test_what_a_database_says_is_told_apart_by_what_can_be_done(self) -> None:
        for code, expected in [
            ("40001", (409, "conflict")),
            ("57014", (504, "deadline")),
            ("25006", (503, "database")),
            ("58030", (503, "database")),
            ("XX001", (503, "defect")),
            ("23505", (400, "failed")),
        ]:
            problem = of_database(psycopg.errors.lookup(code)("said"))
            self.assertEqual((problem.status, problem.reason), expected, code)

    def test_what_the_driver_refuses_is_no_database_that_is_away(self) -> None:
        for error, status, reason in [
            (psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), 400, "failed"),
            (psycopg.ProgrammingError("the query has 2 placeholders but 1 parameters were passed"), 503, "defect"),
            (psycopg.NotSupportedError("not with this libpq"), 503, "defect"),
            (psycopg.OperationalError("server closed the connection unexpectedly"), 503, "database"),
            (psycopg.InterfaceError("the connection is closed"), 503, "database"),
        ]:
            problem = of_database(error)
            self.assertEqual((problem.status, problem.reason), (status, reason), error)

    def test_a_plan_that_is_out_of_date_is_tried_again(self) -> None:
        cases = [("cached plan must not change result type", 409, True), ("no such feature", 400, False)]
        for said, status, is_again in cases:
            error = psycopg.errors.FeatureNotSupported(said)
            self.assertEqual((of_database(error).status, is_serialization(error)), (status, is_again), said)

    def test_a_service_that_divides_by_zero_is_not_taken_for_the_fence(self) -> None:
        wrong = psycopg.errors.InvalidTextRepresentation
        for error, expected in [
            (wrong(f'invalid input syntax for type bigint: "{FENCED}"'), FENCED),
            (wrong(f'invalid input syntax for type bigint: "{UNDONE}"'), UNDONE),
            (wrong('invalid input syntax for type bigint: "one"'), None),
            (psycopg.errors.DivisionByZero("division by zero"), None),
            (psycopg.errors.RaiseException(FENCED), None),
            (Problem(503, "database", FENCED), None),
            (None, None),
        ]:
            for text in (FENCED, UNDONE):
                self.assertEqual(is_of_cast(error, text), expected == text, error)

    def test_a_client_is_no_component(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(StartError, "one token"):
            tokens = Tokens("of-all", "of-all")
            Component("shop").start(database="postgresql://shop@db/shop", data=folder, tokens=tokens)

    def test_what_refuses_a_token_is_away(self) -> None:
        for body, began in [(b"", False), (b'{"reason":"token","detail":"","began":true}', True)]:
            problem = received("stock", 401, body)
            self.assertEqual((problem.status, problem.reason, problem.began), (503, "away", began), body)

    def test_a_problem_of_a_service_has_a_status_of_the_contract(self) -> None:
        def told(status: int) -> tuple[int, str]:
            problem = of(Problem(status, "mine", ""))
            return problem.status, problem.reason

        for status in (400, 401, 404, 409, 413, 422, 503, 504, 508):
            self.assertEqual(told(status), (status, "mine"))
        for status in (402, 403, 410, 418, 429, 499):
            self.assertEqual(told(status), (400, "mine"), status)
        for status in (0, 99, 100, 200, 204, 302, 500, 501, 502, 599, 1000):
            self.assertEqual(told(status), (503, "defect"), status)
        refused = Refused("sold out")
        self.assertIs(of(refused), refused)
        self.assertEqual((refused.status, refused.reason), (400, "failed"))

    def test_secrets_are_not_shown(self) -> None:
        self.assertNotIn("s3cret", repr(Tokens("s3cret", "s3cret too")))
        for address in [
            "mysql://shop:s3cret@db",
            "shop:s3cret@db",
            "postgresql://shop:s3cret%zz@db/shop",
            "postgresql://shop:s3cret@[db/shop",
            "postgresql://shop@db/shop?s3cret",
        ]:
            with tempfile.TemporaryDirectory() as folder, self.assertRaises(StartError) as raised:
                Component("shop").start(database=address, data=folder, peers={})
            self.assertNotIn("s3cret", str(raised.exception), address)
            self.assertIn("address", str(raised.exception))
        with self.assertRaises(ValueError) as refused:
            Peers("shop", None).set("stock", "http://shop:s3cret@stock:80")
        self.assertNotIn("s3cret", str(refused.exception))


class Shapes(unittest.TestCase):
    def test_what_fits_is_read_and_what_does_not_is_named(self) -> None:
        self.assertEqual(shape.read(list[Line], [{"item": 1, "more": 0}]), [Line(1)])
        self.assertEqual(shape.read(dict[str, float], {"a": 1}), {"a": 1.0})
        for of, value in [(int, True), (int, 1.5), (float, 10**400), (Line, {"count": 1}), (Line, {"item": 1, "note": 2}), (None, 0)]:
            with self.assertRaises(ValueError):
                shape.read(of, value)

    def test_what_only_python_takes_for_json_is_none(self) -> None:
        self.assertEqual(shape.loads("[1e30, -2.5]"), [1e30, -2.5])
        for text in ["NaN", "-Infinity", "1e400", "[-1e400]"]:
            with self.assertRaises(ValueError):
                shape.loads(text)

    def test_objects_have_no_order_where_they_are_compared(self) -> None:
        self.assertEqual(shape.canonical({"b": 1, "a": [2]}), shape.canonical(shape.loads('{"a":[2], "b":1}')))

    def test_numbers_are_compared_by_what_they_are(self) -> None:
        def compared(text: str) -> str:
            return shape.canonical(shape.loads(text))

        for a, b in [
            ("1", "1.0"),
            ('[1e2,{"a":-0.0}]', '[100, {"a":0}]'),
            ("9007199254740992", "9.007199254740992e15"),
            ("18446744073709549568", "18446744073709549568.0"),
            ("-9223372036854775808", "-9223372036854775808.0"),
            ("100000000000000000000", "1e20"),
            ("2.50", "25e-1"),
        ]:
            self.assertEqual(compared(a), compared(b))
        others = [("1", "1.5"), ("1", '"1"'), ("1", "true"), ("0", "false"), ("1" + "0" * 400, "1" + "0" * 401)]
        for a, b in [*others, ("9007199254740993", "9007199254740992.0")]:
            self.assertNotEqual(compared(a), compared(b))


if __name__ == "__main__":
    unittest.main()
