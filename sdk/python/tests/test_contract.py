"""The contract of docs/composite-wire.md, as another implementation meets it at a component in Python."""

import contextlib
import http.client
import json
import socket
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer

import psycopg

from cognate_composite.sessions import is_postgresql
from support import Fleet, database_url, execute, part_of


class Parent(HTTPServer):
    """A parent of the tests' own: answers each question for the outcome of root `a` that it knows nothing of it, and which
    database it has."""

    origin = {"database": "d", "generation": 0}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            said = {"roots": [{"root": "a", "state": "aborted", "origin": self.server.origin}]}
            body = json.dumps(said).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Questions are not logged."""


class Contract(unittest.TestCase):
    tokens: str | None = None

    def setUp(self) -> None:
        self.fleet = Fleet(("stock",), self.tokens)
        self.addCleanup(self.fleet.stop)

    def take(self, root: str, call: str, item: int = 5, **more: str) -> tuple[int, object]:
        return self.fleet.post("stock", "/services/take", {"item": item}, part_of(root, call, **more))

    def count(self, item: int = 5) -> tuple[int, object]:
        return self.fleet.post("stock", "/services/count", {"item": item})

    def reason(self, answer: tuple[int, dict]) -> tuple[int, str]:
        return answer[0], answer[1]["reason"]

    def until(self, what: str, state: str, **entry: object) -> None:
        until = time.monotonic() + 20
        while self.fleet.about("stock", what, **entry)["state"] != state:
            self.assertLess(time.monotonic(), until, self.fleet.status("stock"))
            time.sleep(0.02)


class Roots(Contract):
    def test_a_root_is_voted_for_committed_and_undone_as_its_parents_say(self) -> None:
        # A call commits early; who counts the same item meets its lock.
        self.assertEqual(self.take("a", "a.1"), (200, None))
        status, problem = self.count()
        self.assertEqual((status, problem["reason"], problem["holder"], problem["item"]), (409, "conflict", "a", "5"))
        # The same call again is the same call, and counts once.
        self.assertEqual(self.take("a", "a.1"), (200, None))
        self.assertEqual(self.reason(self.take("a", "a.1", 6)), (422, "arguments"))
        vote = self.fleet.about("stock", "prepare", root="a", parent="shop", calls=1)
        self.assertEqual(vote["vote"], "yes")
        no = self.fleet.about("stock", "prepare", root="a", parent="shop", calls=2)
        self.assertEqual((no["vote"], no["reason"]), ("no", "count"))
        shown = self.fleet.status("stock")
        self.assertEqual((shown["in_doubt"], shown["roots"][0]["state"]), (1, "in-doubt"))
        # Another nonce is another vote's.
        other = self.fleet.about("stock", "commit", root="a", parent="shop", nonce=vote["nonce"] ^ 1)
        self.assertEqual(other["state"], "refused")
        self.until("commit", "done", root="a", parent="shop", nonce=vote["nonce"])
        self.assertEqual(self.count(), (200, 999))
        self.assertEqual(self.fleet.about("stock", "abort", root="a", parent="shop")["state"], "refused")
        # What is aborted is as it was before, and nothing late of it runs.
        self.assertEqual(self.take("b", "b.1")[0], 200)
        self.until("abort", "done", root="b", parent="shop")
        self.assertEqual(self.count(), (200, 999))
        self.assertEqual(self.reason(self.take("b", "b.2")), (409, "ended"))
        self.assertEqual(self.fleet.about("stock", "commit", root="b", parent="shop")["state"], "refused")
        # Who tells it without a name is the only one who can.
        self.assertEqual(self.take("c", "c.1")[0], 200)
        self.assertEqual(self.fleet.about("stock", "prepare", root="c", parent="shop", calls=1)["vote"], "yes")
        self.until("abort", "done", root="c")
        self.assertEqual(self.fleet.status("stock")["roots"], [])

    def test_a_commit_may_go_along_with_a_question_for_votes(self) -> None:
        for root, item in (("a", 5), ("b", 6)):
            self.assertEqual(self.take(root, f"{root}.1", item), (200, None))
        nonce = self.fleet.about("stock", "prepare", root="a", parent="shop", calls=1)["nonce"]
        question = {"root": "b", "parent": "shop", "calls": 1}
        told = {"root": "a", "parent": "shop", "nonce": nonce}
        status, answer = self.fleet.post("stock", "/composite/prepare", {"roots": [question], "commits": [told]})
        self.assertEqual((status, answer["roots"][0]["vote"], answer["commits"][0]["root"]), (200, "yes", "a"))
        self.assertIn(answer["commits"][0]["state"], ("pending", "done"))
        self.assertEqual(self.fleet.status("stock")["in_doubt"], 1)
        bad = self.fleet.post("stock", "/composite/prepare", {"roots": [], "commits": 1})
        self.assertEqual(self.reason(bad), (400, "arguments"))
        for root, vote in (("a", nonce), ("b", answer["roots"][0]["nonce"])):
            self.until("commit", "done", root=root, parent="shop", nonce=vote)
        self.assertEqual(self.fleet.status("stock")["roots"], [])

    def test_of_an_unknown_root_nothing_is_known(self) -> None:
        self.assertEqual(self.fleet.about("stock", "abort", root="early", parent="shop")["state"], "done")
        self.assertEqual(self.reason(self.take("early", "1.1")), (409, "ended"))
        vote = self.fleet.about("stock", "prepare", root="u", parent="shop", calls=1)
        self.assertEqual((vote["vote"], vote["reason"]), ("no", "unknown"))
        outcome = self.fleet.about("stock", "outcome", root="u", child="shop")
        self.assertEqual(outcome["state"], "aborted")
        # Where it decides, so that whoever asks knows what that is worth.
        self.assertEqual(outcome["origin"]["generation"], self.fleet.status("stock")["generation"])
        self.assertRegex(outcome["origin"]["database"], "^[0-9a-f]{32}$")
        self.assertEqual(self.fleet.about("stock", "commit", root="u", parent="shop")["state"], "done")
        self.assertEqual(self.reason(self.take("u", "1.1")), (409, "ended"))
        # Of no calls nothing was executed, and nothing will be.
        self.assertEqual(self.fleet.about("stock", "prepare", root="n", parent="shop", calls=0)["vote"], "yes")
        # The marks outlive the process.
        self.fleet.kill("stock")
        self.fleet.start("stock")
        for root in ("early", "u", "n"):
            self.assertEqual(self.reason(self.take(root, "1.1")), (409, "ended"), root)
        self.assertEqual(self.count(), (200, 1000))

    def test_a_root_that_nobody_ends_is_undone_at_its_deadline(self) -> None:
        self.assertEqual(self.take("late", "late.1", Deadline_Ms="300")[0], 200)
        self.assertEqual(self.fleet.read("stock", "count", {"item": 5}), 1000)
        vote = self.fleet.about("stock", "prepare", root="late", parent="shop", calls=1)
        self.assertEqual((vote["vote"], vote["reason"]), ("no", "ended"))

    def test_in_doubt_is_in_doubt_through_a_kill_and_without_the_journal(self) -> None:
        self.assertEqual(self.take("d", "d.1")[0], 200)
        # The parent is away, so nobody can tell the outcome.
        self.fleet.kill("shop")
        vote = self.fleet.about("stock", "prepare", root="d", parent="shop", calls=1)
        self.assertEqual(vote["vote"], "yes")
        for data in ("journal", "another"):
            self.fleet.kill("stock")
            self.fleet.start("stock", data)
            shown = self.fleet.status("stock")
            self.assertEqual([root["state"] for root in shown["roots"]], ["in-doubt"], data)
            self.assertEqual(self.count()[0], 409)
        self.until("commit", "done", root="d", parent="shop", nonce=vote["nonce"])
        self.assertEqual(self.count(), (200, 999))

    def forsaken(self, by: str | None) -> None:
        until = time.monotonic() + 20
        while (root := self.fleet.status("stock")["roots"][0]).get("forsaken_by") != by:
            self.assertLess(time.monotonic(), until, root)
        self.assertEqual(root["state"], "in-doubt")

    def test_a_parent_that_was_restored_is_not_believed(self) -> None:
        self.fleet.kill("shop")
        self.assertEqual(self.take("a", "a.1", Deadline_Ms="500")[0], 200)
        asked = {"root": "a", "parent": "shop", "calls": 1, "origin": {"database": "d", "generation": 7}}
        self.assertEqual(self.fleet.about("stock", "prepare", **asked)["vote"], "yes")
        # An earlier copy of the parent's database knows nothing of what it has decided later.
        parent = Parent(("127.0.0.1", self.fleet.ports["shop"]), Parent.Handler)
        parent.origin = {"database": "d", "generation": 6}
        threading.Thread(target=parent.serve_forever, daemon=True).start()
        self.addCleanup(parent.server_close)
        self.addCleanup(parent.shutdown)
        self.forsaken("shop")
        # It is remembered through a restart, and another database is no better.
        parent.origin = {"database": "e", "generation": 8}
        self.fleet.kill("stock")
        self.fleet.start("stock")
        self.forsaken("shop")
        # The parent as it was, started again.
        parent.origin = {"database": "d", "generation": 8}
        self.assertEqual(self.fleet.read("stock", "count", {"item": 5}), 1000)

    def test_a_person_settles_what_no_parent_ends(self) -> None:
        self.fleet.kill("shop")
        self.assertEqual(self.take("s", "s.1")[0], 200)
        self.assertEqual(self.fleet.about("stock", "prepare", root="s", parent="shop", calls=1)["vote"], "yes")
        settle = {"root": "s", "outcome": "aborted"}
        self.assertEqual(self.fleet.post("stock", "/composite/settle", settle), (200, {"root": "s", "state": "done"}))
        self.assertEqual(self.fleet.read("stock", "count", {"item": 5}), 1000)
        self.assertEqual(self.reason(self.fleet.post("stock", "/composite/settle", settle)), (404, "root"))

    def test_an_undo_that_fails_is_parked_and_resumed(self) -> None:
        self.assertEqual(self.take("p", "p.1")[0], 200)
        execute("DROP TABLE item")
        self.fleet.about("stock", "abort", root="p", parent="shop")
        until = time.monotonic() + 30
        while not (parked := self.fleet.status("stock")["parked"]):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.1)
        self.assertEqual((parked[0]["root"], parked[0]["call"]), ("p", "p.1"))
        execute("CREATE TABLE item (id int PRIMARY KEY, stock int NOT NULL, price int NOT NULL)")
        execute("INSERT INTO item VALUES (5, 999, 10)")
        slot = {"slot": parked[0]["slot"]}
        self.assertEqual(self.fleet.post("stock", "/composite/resume", slot), (200, slot))
        self.until("abort", "done", root="p", parent="shop")
        self.assertEqual(self.count(), (200, 1000))
        self.assertEqual(self.reason(self.fleet.post("stock", "/composite/resume", slot)), (404, "slot"))

    def test_an_ancestor_that_holds_the_lock_is_told_at_once(self) -> None:
        self.assertEqual(self.take("c", "c.1")[0], 200)
        within = part_of("c", "c.1.1", Ancestors="c.1")
        status = self.reason(self.fleet.post("stock", "/services/count", {"item": 5}, within))
        self.assertEqual(status, (409, "ancestor"))
        # A sibling that has answered lets others of its root follow.
        sibling = part_of("c", "c.2")
        self.assertEqual(self.fleet.post("stock", "/services/count", {"item": 5}, sibling), (200, 999))

    def test_a_call_that_only_read_votes_no_after_a_restart(self) -> None:
        headers = part_of("r", "r.1")
        self.assertEqual(self.fleet.post("stock", "/services/count", {"item": 5}, headers), (200, 1000))
        generation = self.fleet.status("stock")["generation"]
        self.fleet.kill("stock")
        self.fleet.start("stock")
        vote = self.fleet.about("stock", "prepare", root="r", parent="shop", calls=1, generation=generation)
        self.assertEqual(vote["vote"], "no")

    def test_the_older_of_two_processes_is_fenced_and_ends(self) -> None:
        self.assertEqual(self.take("f", "f.1")[0], 200)
        older = self.fleet._processes["stock"]
        self.fleet.start("stock", "elsewhere", port=0)
        try:
            self.assertEqual(self.take("g", "g.1")[0], 503)
            self.assertNotEqual(older.wait(20), 0)
        finally:
            older.kill()
            older.wait()
            older.stdout.close()

    def test_of_two_processes_with_one_folder_the_older_one_ends(self) -> None:
        self.assertEqual(self.take("f", "f.1")[0], 200)
        self.assertEqual(self.fleet.about("stock", "prepare", root="f", parent="shop", calls=1)["vote"], "yes")
        older = self.fleet._processes["stock"]
        self.fleet.start("stock", port=0)
        self.assertNotEqual(older.wait(20), 0)
        older.stdout.close()
        self.assertIn("another process has taken this component over", self.fleet.log("stock"))


class Requests(Contract):
    def test_bad_requests_are_told_apart_and_leave_nothing(self) -> None:
        deep = part_of("deep", "d", Ancestors=",".join(["c"] * 40))
        post, request, take = self.fleet.post, self.fleet.request, {"item": 1}
        cases = [
            (post("stock", "/services/sell", take), 404, "service"),
            (post("stock", "/services/take", {"item": "one"}), 400, "arguments"),
            (post("stock", "/services/take", {"item": True}), 400, "arguments"),
            (post("stock", "/services/take", {}), 400, "arguments"),
            (post("stock", "/services/take", [1]), 400, "arguments"),
            (request("stock", "POST", "/services/take", b"{"), 400, "arguments"),
            (request("stock", "POST", "/services/take", b'{"item":NaN}'), 400, "arguments"),
            (request("stock", "POST", "/services/take", b'{"item":1,"x":1e400}'), 400, "arguments"),
            (request("stock", "POST", "/services/take", b"[" * 100_000), 400, "arguments"),
            (request("stock", "POST", "/services/take", b'{"item":1,"x":"\\ud800"}'), 400, "arguments"),
            (request("stock", "POST", "/services/take", b" " * (10 << 20)), 413, "size"),
            (post("stock", "/services/take", take, {"Cognate-Deadline-Ms": "0"}), 504, "deadline"),
            (post("stock", "/services/take", take, {"Cognate-Deadline-Ms": "0" * 20}), 504, "deadline"),
            (post("stock", "/services/take", take, {"Cognate-Deadline-Ms": "soon"}), 400, "arguments"),
            (post("stock", "/services/take", take, {"Cognate-Root": "r"}), 400, "arguments"),
            (post("stock", "/services/take", take, part_of("r", "a,b")), 400, "arguments"),
            (post("stock", "/services/take", take, {"Idempotency-Key": ""}), 400, "arguments"),
            (post("stock", "/services/take", take, {"Cognate-Origin": "m"}), 400, "arguments"),
            (post("stock", "/services/take", take, deep), 508, "depth"),
            (post("stock", "/services/take", {"item": 101}), 400, "failed"),
            (post("stock", "/services/take", {"item": 1 << 40}), 400, "failed"),
            (post("stock", "/composite/prepare", {"roots": 1}), 400, "arguments"),
            (post("stock", "/composite/prepare", {"roots": [{"root": "a b", "parent": "shop", "calls": 1}]}), 400, "arguments"),
            (request("stock", "GET", "/nowhere"), 404, "path"),
            (request("stock", "DELETE", "/status"), 404, "path"),
            # Whoever is still sending comes to read that there is nothing, too.
            (request("stock", "PUT", "/services/take", b" " * (10 << 20)), 404, "path"),
        ]
        for number, (answer, status, reason) in enumerate(cases):
            self.assertEqual(self.reason(answer), (status, reason), f"case {number}: {answer}")
        self.assertEqual(self.fleet.status("stock")["roots"], [])
        self.assertEqual(self.fleet.read("stock", "count", {"item": 1}), 1000)

    def test_lists_within_lists_are_no_argument_however_deep(self) -> None:
        # Somewhere there it is too deep to be read, or to be written into what is said of it.
        for depth in range(900, 1010):
            body = b"[" * depth + b"]" * depth
            for path in ("/services/take", "/composite/settle"):
                answer = self.fleet.request("stock", "POST", path, body)
                self.assertEqual(self.reason(answer), (400, "arguments"), f"{path}, {depth}")

    def test_a_body_that_does_not_come_in_time_is_given_up(self) -> None:
        with socket.create_connection(("127.0.0.1", self.fleet.ports["stock"]), timeout=20) as connection:
            head = "POST /services/take HTTP/1.1\r\nHost: stock\r\nCognate-Deadline-Ms: 200\r\nContent-Length: 30\r\n\r\n"
            connection.sendall(head.encode() + b'{"item":')
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
        self.assertTrue(answer.startswith(b"HTTP/1.1 504 ") and b'"deadline"' in answer, answer)
        self.assertEqual(self.fleet.status("stock")["roots"], [])

    def test_a_body_that_comes_byte_by_byte_has_no_more_time(self) -> None:
        with socket.create_connection(("127.0.0.1", self.fleet.ports["stock"]), timeout=20) as connection:
            head = "POST /services/take HTTP/1.1\r\nHost: stock\r\nCognate-Deadline-Ms: 300\r\nContent-Length: 600\r\n\r\n"
            connection.sendall(head.encode() + b'{"item":1')
            # A byte each time that there is no answer yet: all of them would take half a minute.
            connection.settimeout(0.05)
            for sent in range(580):
                try:
                    answer = connection.recv(4096)
                    break
                except TimeoutError:
                    # It may have been answered, and closed, just now: the answer is read all the same.
                    with contextlib.suppress(ConnectionError):
                        connection.sendall(b" ")
            else:
                self.fail("the body has as much time as it likes")
        self.assertTrue(answer.startswith(b"HTTP/1.1 504 ") and b'"deadline"' in answer, (sent, answer))
        self.assertEqual(self.fleet.status("stock")["roots"], [])

    def test_who_waits_to_be_asked_for_the_body_is_asked(self) -> None:
        with socket.create_connection(("127.0.0.1", self.fleet.ports["stock"]), timeout=20) as connection:
            head = "POST /services/take HTTP/1.1\r\nHost: stock\r\nExpect: 100-continue\r\nCognate-Deadline-Ms: 60000\r\n"
            connection.sendall(head.encode() + b"Content-Length: 10\r\n\r\n")
            self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 100 "))
            connection.sendall(b'{"item":9}')
            self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 200 "))

    def test_a_body_in_pieces_that_is_too_large_is_read_before_that_is_said(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.fleet.ports["stock"], timeout=20)
        self.addCleanup(connection.close)
        pieces, headers = iter([b" " * (1 << 20)] * 10), {"Transfer-Encoding": "chunked"}
        connection.request("POST", "/services/take", pieces, headers, encode_chunked=True)
        answer = connection.getresponse()
        self.assertEqual((answer.status, json.loads(answer.read())["reason"]), (413, "size"))
        for size in (b"0x1", b"-1", b"+1", b"", b"1_0"):
            with socket.create_connection(("127.0.0.1", self.fleet.ports["stock"]), timeout=20) as raw:
                head = b"POST /services/take HTTP/1.1\r\nHost: stock\r\nTransfer-Encoding: chunked\r\n\r\n"
                raw.sendall(head + size + b"\r\n1\r\n0\r\n\r\n")
                self.assertTrue(raw.recv(4096).startswith(b"HTTP/1.1 400 "), size)

    def test_a_body_in_pieces_is_a_body(self) -> None:
        pieces = iter([b'{"item"', b":3}"])
        connection = http.client.HTTPConnection("127.0.0.1", self.fleet.ports["stock"], timeout=20)
        for _ in range(2):
            connection.request("POST", "/services/take", pieces, {"Transfer-Encoding": "chunked"}, encode_chunked=True)
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (200, b"null"))
            pieces = iter([b'{"item":3}'])
        connection.close()
        self.assertEqual(self.fleet.read("stock", "count", {"item": 3}), 998)

    def raw(
        self, *lines: bytes, body: bytes = b'{"item":4}', first: bytes = b"POST /services/take HTTP/1.1"
    ) -> bytes:
        """Sends a head of these lines, and a body; answers all that comes until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.fleet.ports["stock"]), timeout=20) as connection:
            connection.sendall(b"\r\n".join((first, *lines)) + b"\r\n\r\n" + body)
            connection.shutdown(socket.SHUT_WR)
            pieces = []
            while piece := connection.recv(4096):
                pieces.append(piece)
            return b"".join(pieces)

    def test_a_head_that_cannot_be_read_is_no_request_without_what_is_behind_it(self) -> None:
        host, length = b"Host: stock", b"Content-Length: 10"
        for bad in (
            b"Idempotency-Key : k",
            b"Idempotency-Key",
            b"Idempotency-Key: k\r\n goes on",
            b"X: y\rIdempotency-Key: k",
            b"Idempotency-Key: a\x00b",
            b"Idempotency-Key: a\x01b",
            b"Content-Length: 3",
        ):
            for lines in ((host, length, bad), (host, bad, length)):
                answer = self.raw(*lines)
                self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), (lines, answer))
                self.assertEqual(answer.count(b"HTTP/1.1 "), 1, "the body is no request")
        self.assertEqual(self.fleet.read("stock", "count", {"item": 4}), 1000)
        self.assertEqual(self.raw(b"Host: stock", body=b"").count(b"400 "), 1)
        # Nobody is asked for the body of a head that is refused.
        answer = self.raw(host, b"Expect: 100-continue", b"X : y", length)
        self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
        for first in (
            b"POST /services/take",
            b"POST  /services/take HTTP/1.1",
            b"POST /services/take HTTP/0.9",
            b"POST /services/take HTTP/2.0",
            b"POST /services/take\tHTTP/1.1",
            b"POST http://[/services/take HTTP/1.1",
            b" ",
        ):
            answer = self.raw(host, length, first=first)
            self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), (first, answer))
        for codings in ((b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip"), (b"Transfer-Encoding: gzip, chunked",)):
            answer = self.raw(host, *codings, body=b'A\r\n{"item":4}\r\n0\r\n\r\n')
            self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), (codings, answer))
        answer = self.raw(host, b"Transfer-Encoding: chunked", body=b'A\r\n{"item":4}more\r\n0\r\n\r\n')
        self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
        self.assertEqual(self.fleet.read("stock", "count", {"item": 4}), 1000)
        # Whose length is given in two ways is not listened to any further.
        both = b"Transfer-Encoding: chunked"
        self.assertEqual(self.raw(host, length, both, body=b'A\r\n{"item":4}\r\n0\r\n\r\n').count(b"200 OK"), 1)
        self.assertEqual(self.fleet.read("stock", "count", {"item": 4}), 999)

    def test_a_head_may_be_written_in_all_ways_that_http_has(self) -> None:
        port = self.fleet.ports["stock"]
        for first, lines in (
            (b"POST /services/take HTTP/1.1", (b"host: stock", b"content-length:10")),
            (b"POST /services/take HTTP/1.0", (b"CONTENT-LENGTH: 10 ",)),
            (b"POST http://127.0.0.1:%d/services/take HTTP/1.1" % port, (b"Host: stock", b"Content-Length:\t10")),
            (b"\r\nPOST /services/take?a=b HTTP/1.1", (b"Host: stock", b"X-Empty:", b"Content-Length: 10")),
            (b"POST /services/take HTTP/1.1", (b"X-Name: \xc3\xa9\x85", b"X-Long: " + b"x" * 4000, b"Content-Length: 10")),
            (b"POST /services/take HTTP/1.1", (b"Content-Length: 10", b"Content-Length: 10")),
        ):
            answer = self.raw(*lines, first=first)
            self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), (first, lines, answer))
        self.assertEqual(self.fleet.read("stock", "count", {"item": 4}), 994)

    def test_a_body_is_utf_8_and_counts_are_not_below_0(self) -> None:
        for body in ('{"item":4}'.encode("utf-16"), b'\xef\xbb\xbf{"item":4}'):
            answer = self.raw(b"Content-Length: %d" % len(body), body=body)
            self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
        for bad in ({"calls": -1}, {"generation": -1}, {"origin": {"database": "d", "generation": -1}}):
            about = {"roots": [{"root": "r", "parent": "shop", "calls": 1} | bad]}
            self.assertEqual(self.reason(self.fleet.post("stock", "/composite/prepare", about)), (400, "arguments"), bad)

    def test_a_key_gives_the_stored_answer_and_no_other(self) -> None:
        key = {"Idempotency-Key": "k"}
        for _ in range(2):
            self.assertEqual(self.fleet.post("stock", "/services/take", {"item": 1}, key), (200, None))
        self.assertEqual(self.reason(self.fleet.post("stock", "/services/take", {"item": 2}, key)), (422, "key"))
        self.assertEqual(self.reason(self.fleet.post("stock", "/services/count", {"item": 1}, key)), (422, "key"))
        self.assertEqual(self.fleet.read("stock", "count", {"item": 1}), 999)
        counted = self.fleet.post("stock", "/services/count", {"item": 1}, {"Idempotency-Key": "reads"})
        self.assertEqual(counted, (200, 999))
        self.fleet.kill("stock")
        self.fleet.start("stock")
        self.assertEqual(self.fleet.post("stock", "/services/take", {"item": 1}, key), (200, None))
        self.assertEqual(self.fleet.read("stock", "count", {"item": 1}), 999)

    def test_the_database_that_goes_away_is_found_again(self) -> None:
        self.assertEqual(self.count(), (200, 1000))
        ended = 0
        with psycopg.connect(database_url(), autocommit=True) as connection:
            sessions = "SELECT pid, application_name FROM pg_stat_activity WHERE application_name IS NOT NULL"
            for pid, name in connection.execute(sessions).fetchall():
                if name.startswith("cognate-composite:stock:"):
                    try:
                        connection.execute("SELECT pg_terminate_backend(%s::int)", (pid,))
                        ended += 1
                    except psycopg.errors.FeatureNotSupported:
                        self.skipTest("this database does not end sessions")
        self.assertGreater(ended, 0)
        self.assertEqual(self.count(), (200, 1000))

    def test_a_start_ends_what_an_earlier_process_has_left_behind(self) -> None:
        self.fleet.kill("stock")
        with psycopg.connect(database_url(), autocommit=True) as connection:
            if not is_postgresql(connection):
                self.skipTest("this database need not end sessions before a start goes on")
            # A local transaction that holds a row which the statements for the tables look at.
            connection.execute("SET application_name = 'cognate-composite:stock:1'")
            connection.execute("BEGIN")
            connection.execute("UPDATE item SET stock = stock WHERE id = 5")
            self.fleet.start("stock")
            with self.assertRaises(psycopg.OperationalError):
                connection.execute("COMMIT")
        self.assertEqual(self.count(), (200, 1000))

    def test_a_start_ends_nobody_if_somebody_else_is_in_its_way(self) -> None:
        with psycopg.connect(database_url(), autocommit=True) as connection:
            if not is_postgresql(connection):
                self.skipTest("what is not inserted waits for nobody on this database")
            connection.execute("BEGIN")
            connection.execute("UPDATE item SET stock = stock WHERE id = 5")
            # The older process goes on.
            with self.assertRaisesRegex(AssertionError, "others have locked for too long"):
                self.fleet.start("stock", "another journal", port=0)
            connection.execute("COMMIT")
        self.assertEqual(self.fleet.status("stock")["generation"], 1)
        self.assertEqual(self.count(), (200, 1000))

    def test_a_start_that_does_not_get_its_address_ends_nobody(self) -> None:
        with self.assertRaisesRegex(AssertionError, "ddress already in use"):
            self.fleet.start("stock", "another journal")
        self.assertEqual(self.fleet.status("stock")["generation"], 1)
        self.assertEqual(self.count(), (200, 1000))

    def test_the_document_names_the_services(self) -> None:
        status, document = self.fleet.request("stock", "GET", "/openapi.json")
        self.assertEqual(status, 200)
        self.assertEqual(set(document["paths"]), {"/services/take", "/services/count"})
        body = document["paths"]["/services/take"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        self.assertEqual(body, {"type": "object", "properties": {"item": {"type": "integer"}}, "required": ["item"]})


class Tokens(Contract):
    tokens = "of-peers\nof-clients\n"

    def test_tokens_tell_components_from_clients(self) -> None:
        order = {"item": 1, "customer": 1}

        def bearer(token: str) -> dict[str, str]:
            return {"Authorization": f"Bearer {token}"}

        take = {"item": 1}
        for headers, expected in [({}, 401), (bearer("wrong"), 401), (bearer("of-clients"), 200), (bearer("of-peers"), 200)]:
            self.assertEqual(self.fleet.post("stock", "/services/take", take, headers)[0], expected, headers)
            self.assertEqual(self.fleet.request("stock", "GET", "/status", b"", headers)[0], expected, headers)
        self.assertEqual(self.fleet.post("stock", "/services/take", take, {"Authorization": "bearer of-clients"})[0], 200)
        # Only components may speak of roots.
        for header in ("Root", "Parent", "Call", "Ancestors"):
            headers = {f"Cognate-{header}": "r"} | bearer("of-clients")
            self.assertEqual(self.fleet.post("stock", "/services/take", take, headers)[0], 401, header)
        headers = part_of("r", "r.1") | bearer("of-clients")
        self.assertEqual(self.fleet.post("stock", "/services/take", take, headers)[0], 401)
        about = {"roots": [{"root": "r", "parent": "shop"}]}
        self.assertEqual(self.fleet.post("stock", "/composite/abort", about, bearer("of-clients"))[0], 401)
        self.assertEqual(self.fleet.post("stock", "/composite/abort", about, bearer("of-peers"))[0], 200)
        # The components show theirs to each other.
        self.assertEqual(self.fleet.post("shop", "/services/buy", order, bearer("of-clients"))[0], 200)


if __name__ == "__main__":
    unittest.main()
