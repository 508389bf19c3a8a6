"""A component's HTTP side; docs/composite-wire.md has the contract."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from . import shape
from .locks import Arrival
from .matrix import Matrix
from .names import identifier, name
from .node import DEADLINE_MAX, Node
from .openapi import document
from .problem import Problem
from .root import Origin
from .run import Request, Runner
from .slots import Fenced

log = logging.getLogger("cognate_composite")

# Most connections that wait to be accepted.
_WAITING = 128
# Most bytes of a request, and how many more are read so that whoever sends them hears the answer.
_BODY_BYTES = 4 << 20
_DRAIN_BYTES = 16 << 20
# How long a request may take if it does not say, in seconds.
_DEADLINE = 10.0
# Most calls that a call may be part of.
_DEPTH = 32
# Where a caller decides: the mark of its database, and its generation.
_ORIGIN = re.compile(r".*:([0-9]+)\Z", re.DOTALL)
# The headers that say where a call belongs; only components know that.
_OF_ROOTS = ("Root", "Parent", "Call", "Ancestors")
# Most bytes of a client's key.
_KEY_BYTES = 255
# How long a piece of a body says that it is, and most bytes of a line that does.
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}\Z")
_LINE_BYTES = 1024
# Most bytes of a line of a head, if who reads it does not say.
_HEAD_LINE_BYTES = 1 << 16
# The first line of a head.
_REQUEST = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [\x21-\x7e\x80-\xff]+ HTTP/1\.[01]\r?\n\Z")
# A line of a head behind the first one: the name of a field, without a space, and its text, without control characters
# (of which a line's end is one, so none goes on in the next line).
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r?\n\Z")
# A `traceparent` of any version.
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-|\Z)")
# How long an answer to a question for a vote is waited for: longer than any parent does.
_VOTE = 70.0


@dataclass(frozen=True)
class Tokens:
    """What has to be shown to do anything: by other components, and by clients; a component's is good for both."""

    peer: str | None = field(default=None, repr=False)
    client: str | None = field(default=None, repr=False)


@dataclass
class _Prepare:
    root: str
    parent: str
    calls: int
    generation: int | None = None
    origin: Origin | None = None


@dataclass
class _Outcome:
    root: str
    parent: str | None = None
    child: str | None = None
    nonce: int | None = None
    callers: list[str] = field(default_factory=list)
    origin: Origin | None = None


@dataclass
class _Settle:
    root: str
    outcome: str


@dataclass
class _Resume:
    slot: int


def bind(host: str, port: int) -> socket.socket:
    """Listens at an address. Whoever comes before there is a server for it waits."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Any address of IPv6 is any of IPv4, too, as for most programs.
    is_both = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=_WAITING, dualstack_ipv6=is_both)


class Server(ThreadingHTTPServer):
    """Serves one component."""

    daemon_threads = True

    def __init__(
        self, listening: socket.socket, node: Node, runner: Runner, matrix: Matrix, tokens: Tokens
    ) -> None:
        self.node, self.runner, self.matrix, self.tokens = node, runner, matrix, tokens
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        # In the place of the one that the library has made.
        self.socket.close()
        self.socket = listening

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever goes away in the middle is nobody's problem."""
        log.debug("a connection of %s ended", client_address, exc_info=True)


class _Head:
    """What the head of a request is read from: its lines are kept. What comes later than its time has not come, however
    little is missing each time."""

    def __init__(self, source: Any, connection: socket.socket, patience: float) -> None:
        self.source, self._connection, self._until = source, connection, time.monotonic() + patience
        self.lines: list[bytes] = []

    def readline(self, limit: int = _HEAD_LINE_BYTES) -> bytes:
        line = b""
        while len(line) < limit and not line.endswith(b"\n") and (ahead := self._ahead()):
            length = ahead.find(b"\n") + 1 or len(ahead)
            line += self.source.read(min(length, limit - len(line)))
        self.lines.append(line)
        return line

    def _ahead(self) -> bytes:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self.source.peek(1)

    def is_sound(self) -> bool:
        """Whether it is fields, and an end."""
        return bool(self.lines[-1]) and all(_FIELD.match(line) for line in self.lines[:-1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Whose first line makes no sense is answered as anybody else.
    default_request_version = "HTTP/1.0"
    # An answer is one packet, sent at once.
    wbufsize = -1
    disable_nagle_algorithm = True
    # A connection is closed on which no whole head of a request has come for so long, in seconds.
    timeout = 75
    server: Server

    def do_GET(self) -> None:
        self._serve({"/status": self._status, "/faults": self._faults, "/openapi.json": self._openapi})

    def do_POST(self) -> None:
        self._serve(
            {
                "/composite/prepare": self._prepare,
                "/composite/commit": lambda body: self._settled("commit_told", body),
                "/composite/abort": lambda body: self._settled("abort_told", body),
                "/composite/outcome": self._outcome,
                "/composite/settle": self._settle,
                "/composite/resume": self._resume,
            }
        )

    def handle_one_request(self) -> None:
        """Reads a request, and answers it."""
        source, self._head = self.rfile, _Head(self.rfile, self.connection, self.timeout)
        self.rfile = self._head
        try:
            super().handle_one_request()
        finally:
            self.rfile = source

    def parse_request(self) -> bool:
        """Reads the head of a request. The library leaves out what it cannot read, and all fields behind that: a key, for
        example, or how long the body is."""
        self.close_connection = True
        while self.raw_requestline in (b"\r\n", b"\n"):
            # An empty line before a request is none of it, and gives it no more time.
            self._head.lines.clear()
            self.raw_requestline = self._head.readline()
        if not self.raw_requestline or self.raw_requestline.startswith(b"PRI * HTTP/2"):
            return False
        if not _REQUEST.match(self.raw_requestline):
            self.request_version = self.default_request_version
            self._refuse_head()
            return False
        head = self._head
        # The first line is no field.
        head.lines.clear()
        is_read = super().parse_request()
        self.rfile = head.source
        self.connection.settimeout(self.timeout)
        if not is_read:
            return False
        if not head.lines[-1]:
            # It was cut, and nobody waits for an answer.
            self.close_connection = True
            return False
        if not head.is_sound():
            self._refuse_head()
            return False
        return True

    def _refuse_head(self) -> None:
        self.send_error(400, "the head is none of HTTP/1.1's")

    def handle_expect_100(self) -> bool:
        """Whoever waits to be asked for the body is asked now, and not together with the answer; not for that of a head
        that is refused."""
        if isinstance(self.rfile, _Head) and not self.rfile.is_sound():
            return True
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def _serve(self, routes: dict[str, Callable[[Any], Any]]) -> None:
        # The time of a request begins with its head.
        self._arrived = time.monotonic()
        self._read_body()
        try:
            path = self._path()
            if self.server.node.is_fenced.is_set():
                raise Fenced()
            if self.command == "POST" and path.startswith("/services/"):
                text = self._service(unquote(path.removeprefix("/services/"))).encode()
                return self._send(200, text, "application/json", str(self.server.node.generation))
            if path not in routes:
                raise Problem(404, "path", "there is nothing here")
            if self._caller() == "client" and path.startswith("/composite/"):
                raise Problem(401, "token", "this needs the token of a component")
            body = self._json() if self.command == "POST" else None
            self._send(200, json.dumps(routes[path](body)).encode(), "application/json")
        except Problem as problem:
            self._send(problem.status, problem.body(), "application/problem+json")
        except Exception:
            log.exception("%s %s", self.command, self.path)
            problem = Problem(503, "defect", "the component has failed", began=True)
            self._send(503, problem.body(), "application/problem+json")

    # A request.

    def _path(self) -> str:
        try:
            return urlsplit(self.path).path
        except ValueError as error:
            raise Problem(400, "arguments", f"this is no path: {error}") from error

    def _read_body(self) -> None:
        """Reads the body before anything is answered, so that the connection can be used again. One that does not come
        as a whole in the time of its request is not waited for."""
        self._body, self._refused = b"", None
        try:
            self._until = self._deadline()
        except Problem:
            # It is refused afterwards.
            self._until = self._arrived + _DEADLINE
        try:
            self._read_whole()
        except TimeoutError:
            self._refuse(Problem(504, "deadline", "the request did not come as a whole in its time"))
        finally:
            self.connection.settimeout(self.timeout)

    def _read_whole(self) -> None:
        # Several codings may be in several fields, as in one.
        codings = self.headers.get_all("Transfer-Encoding", [])
        lengths = {one.strip(" \t") for one in self.headers.get_all("Content-Length", [])}
        length = next(iter(lengths), None)
        if codings:
            # Something in between may have taken the length for the body's, and what follows for another request.
            self.close_connection = self.close_connection or bool(lengths)
            self._read_chunks(",".join(codings))
        elif len(lengths) > 1:
            self._refuse(Problem(400, "arguments", "Content-Length is given twice"))
        elif length is not None and not (length.isascii() and length.isdecimal() and len(length) < 19):
            self._refuse(Problem(400, "arguments", "Content-Length is no number"))
        elif length is not None and int(length) > _BODY_BYTES:
            self._drain(min(int(length), _DRAIN_BYTES))
            self._refuse_size()
        elif length is not None:
            self._body = self._take(int(length))
            if len(self._body) < int(length):
                self._refuse(Problem(400, "arguments", "the body was cut"))

    def _read_chunks(self, coding: str) -> None:
        pieces, count = [], 0
        while coding.strip().lower() == "chunked":
            size = self._line().split(b";")[0].strip()
            if not _SIZE.match(size):
                break
            length = int(size, 16)
            count += length
            if length == 0:
                # Fields that follow the body are of no interest.
                while self._line().strip():
                    pass
                self._body = b"".join(pieces)
                return self._refuse_size() if count > _BODY_BYTES else None
            if count > _BODY_BYTES + _DRAIN_BYTES:
                return self._refuse_size()
            if count > _BODY_BYTES:
                pieces.clear()
                self._drain(length)
            else:
                pieces.append(self._take(length))
            if self._line() not in (b"\r\n", b"\n"):
                # It is longer than it says.
                break
        return self._refuse(Problem(400, "arguments", "the body's coding is not understood"))

    def _ahead(self) -> bytes:
        """What has come of the body and is still to be read; nothing at its end. What comes later than the time of the
        request has not come, however little is missing each time."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.connection.settimeout(left)
        return self.rfile.peek(1)

    def _some(self, most: int) -> bytes:
        """So many bytes of that at most."""
        return self.rfile.read(min(most, len(self._ahead())))

    def _take(self, length: int) -> bytes:
        pieces = []
        while length > 0 and (piece := self._some(min(length, 1 << 16))):
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)

    def _line(self) -> bytes:
        """A line between pieces of a body. One that is too long makes no sense."""
        line = b""
        while len(line) < _LINE_BYTES and not line.endswith(b"\n") and (ahead := self._ahead()):
            length = ahead.find(b"\n") + 1 or len(ahead)
            line += self.rfile.read(min(length, _LINE_BYTES - len(line)))
        return line

    def _drain(self, length: int) -> None:
        while length > 0 and (piece := self._some(min(length, 1 << 16))):
            length -= len(piece)

    def _refuse_size(self) -> None:
        self._refuse(Problem(413, "size", f"the request has more than {_BODY_BYTES} bytes"))

    def _refuse(self, problem: Problem) -> None:
        self._refused, self.close_connection = problem, True

    def _json(self) -> Any:
        if self._refused:
            raise self._refused
        try:
            return shape.loads(self._body.decode())
        except ValueError as error:
            raise Problem(400, "arguments", f"not JSON: {error}") from error

    def _typed(self, of: Any, body: Any) -> Any:
        try:
            value = shape.read(of, body, "the body")
            for field in ("root", "parent", "child"):
                check = identifier if field == "root" else name
                if getattr(value, field, None) is not None:
                    check(getattr(value, field))
            for caller in getattr(value, "callers", ()):
                identifier(caller)
            for one in (value, getattr(value, "origin", None)):
                for field in ("calls", "generation", "nonce", "slot"):
                    if (getattr(one, field, None) or 0) < 0:
                        raise ValueError(f"the body: {field} is below 0")
            return value
        except RecursionError as error:
            raise Problem(400, "arguments", "nested too deeply") from error
        except ValueError as error:
            raise Problem(400, "arguments", str(error)) from error

    def _roots(self, of: Any, body: Any) -> list[Any]:
        if not isinstance(body, dict) or not isinstance(body.get("roots"), list):
            raise Problem(400, "arguments", "the body is no list of roots")
        return [self._typed(of, entry) for entry in body["roots"]]

    def _text(self, header: str) -> str | None:
        """The text of a header, which may be there once."""
        values = self.headers.get_all(header, [])
        if len(values) > 1:
            raise Problem(400, "arguments", f"the header {header} is given twice")
        try:
            return values[0].encode("latin-1").decode().strip(" \t") if values else None
        except ValueError as error:
            raise Problem(400, "arguments", f"the header {header} is not UTF-8") from error

    def _caller(self) -> str:
        """Who a request comes from: a `peer` or a `client`."""
        tokens = self.server.tokens
        if tokens == Tokens():
            return "peer"
        try:
            scheme, _, shown = (self._text("Authorization") or "").partition(" ")
        except Problem:
            # What is given twice, or cannot be read, shows nothing.
            scheme = shown = ""
        for caller, token in (("peer", tokens.peer), ("client", tokens.client)):
            if token is not None and scheme.lower() == "bearer" and hmac.compare_digest(token.encode(), shown.strip().encode()):
                return caller
        raise Problem(401, "token", "a token is needed, as Authorization: Bearer")

    def _deadline(self) -> float:
        text = self._text("Cognate-Deadline-Ms")
        if text is None:
            left = _DEADLINE
        elif text.isascii() and text.isdecimal():
            # So many digits are more than the most, but for zeros in front of them.
            left = min(int(text.lstrip("0")[:12] or "0") / 1000, DEADLINE_MAX)
        else:
            raise Problem(400, "arguments", f"Cognate-Deadline-Ms: not a number of milliseconds: {text}")
        if left == 0:
            raise Problem(504, "deadline", "the time of the request is over")
        return self._arrived + left

    def _trace(self) -> dict[str, str]:
        """The headers of a W3C trace that are passed on as they came. One that makes no sense is left out, and so are
        two."""
        parents = self.headers.get_all("traceparent", [])
        if len(parents) != 1 or not _TRACE_PARENT.match(parents[0]):
            return {}
        # What is in several headers may be in one, with commas.
        states = self.headers.get_all("tracestate", [])
        return {"traceparent": parents[0]} | ({"tracestate": ",".join(states)} if states else {})

    def _place(self) -> tuple[str, str, str, tuple[str, ...]] | None:
        """Where a call belongs: root, caller, call and its ancestors. None if it begins a root."""
        root, parent, call, ancestors = (self._text(f"Cognate-{header}") for header in _OF_ROOTS)
        if root is None and parent is None and call is None and ancestors is None:
            return None
        if root is None or parent is None or call is None:
            raise Problem(400, "arguments", "the headers Cognate-Root, Cognate-Parent, Cognate-Call belong together")
        try:
            within = tuple(identifier(one.strip()) for one in (ancestors or "").split(",") if one.strip())
            place = identifier(root), name(parent), identifier(call), within
        except ValueError as error:
            raise Problem(400, "arguments", str(error)) from error
        if len(within) > _DEPTH:
            raise Problem(508, "depth", f"more than {_DEPTH} calls within each other")
        return place

    def _check_unused(self) -> None:
        """What a caller may say and nothing here needs: nobody is answered ahead of a commit, and the question for a vote
        says where the caller decides."""
        self._text("Cognate-Ahead")
        origin = self._text("Cognate-Origin")
        if origin is None:
            return
        found = _ORIGIN.match(origin)
        generation = (found[1].lstrip("0") or "0") if found else ""
        if not 1 <= len(generation) <= 20 or int(generation) >= 2**64:
            raise Problem(400, "arguments", f"Cognate-Origin: not an origin: {origin}")

    # Routes.

    def _service(self, service_name: str) -> str:
        speaks_of_root = any(self.headers.get(f"Cognate-{header}") is not None for header in _OF_ROOTS)
        if self._caller() != "peer" and speaks_of_root:
            raise Problem(401, "token", "only components take part in roots that have begun")
        place = self._place()
        node, runner = self.server.node, self.server.runner
        service = node.services.get(service_name)
        if service is None:
            raise Problem(404, "service", f"no service {service_name!r} here")
        deadline = self._deadline()
        self._check_unused()
        body = self._json()
        key = self._text("Idempotency-Key")
        if key is not None and not 1 <= len(key.encode()) <= _KEY_BYTES:
            raise Problem(400, "arguments", f"a key has 1 to {_KEY_BYTES} bytes")
        try:
            arguments, item = service.prepare(body)
            compared = shape.canonical(body)
            # The same body for another service is another request.
            asked = shape.canonical([service.name, body])
            digest = int.from_bytes(hashlib.sha256(compared.encode()).digest()[:8]) >> 1
        except RecursionError as error:
            raise Problem(400, "arguments", "nested too deeply") from error
        except ValueError as error:
            raise Problem(400, "arguments", str(error)) from error
        if place is None:
            arrival = Arrival("new", "1", None, (), service.name, item, digest)
            request = Request(arrival, service, arguments, deadline, (key, asked) if key else None, self._trace())
            return runner.begin(request)
        if not service.reads and service.undoing is None:
            raise Problem(409, "closed", f"{service.name} has no undo: it can only begin a root")
        root, parent, call, ancestors = place
        arrival = Arrival(root, call, parent, ancestors, service.name, item, digest)
        return runner.execute(Request(arrival, service, arguments, deadline, trace=self._trace()))

    def _prepare(self, body: Any) -> Any:
        entries = self._roots(_Prepare, body)
        # Roots that are committed may go along with questions about others.
        told = {"roots": body["commits"]} if "commits" in body else None
        commits = {"commits": self._settled("commit_told", told)["roots"]} if told else {}
        ask = self.server.node.vote
        asked = [ask(one.root, one.parent, one.calls, one.generation, one.origin) for one in entries]
        until, votes = time.monotonic() + _VOTE, []
        for entry, waiting in zip(entries, asked):
            vote = waiting.result(max(0.0, until - time.monotonic()))
            said = {"vote": "no", "reason": vote.no} if vote.no else {"vote": "yes", "nonce": vote.nonce}
            votes.append({"root": entry.root} | said)
        return {"roots": votes} | commits

    def _settled(self, event: str, body: Any) -> Any:
        node, states = self.server.node, []
        for entry in self._roots(_Outcome, body):
            parent = entry.parent or node.only_parent(entry.root)
            if event == "abort_told" and not node.may_say(entry.root, parent, entry.origin):
                states.append({"root": entry.root, "state": "pending"})
                continue
            details = (parent,) + ((entry.nonce,) if event == "commit_told" else ())
            states.append({"root": entry.root, "state": node.settled(event, entry.root, *details)})
        return {"roots": states}

    def _outcome(self, body: Any) -> Any:
        node = self.server.node
        entries = self._roots(_Outcome, body)
        states = [node.outcome(one.root, one.child or node.name, one.nonce, one.callers) for one in entries]
        origin = {"origin": asdict(node.peers.origin)} if node.peers.origin else {}
        return {"roots": [{"root": entry.root, "state": state} | origin for entry, state in zip(entries, states)]}

    def _settle(self, body: Any) -> Any:
        settle = self._typed(_Settle, body)
        if settle.outcome not in ("committed", "aborted"):
            raise Problem(400, "arguments", f"{settle.outcome!r} is neither committed nor aborted")
        state = self.server.node.settle(settle.root, settle.outcome, self._deadline())
        if state is None:
            raise Problem(404, "root", "this root is not in doubt here")
        return {"root": settle.root, "state": state}

    def _resume(self, body: Any) -> Any:
        slot = self._typed(_Resume, body).slot
        if not self.server.node.resume(slot):
            raise Problem(404, "slot", f"slot {slot} is not parked")
        return {"slot": slot}

    def _status(self, _: Any) -> Any:
        return self.server.node.status() | {"matrix": self.server.matrix.shown()}

    def _faults(self, _: Any) -> Any:
        return []

    def _openapi(self, _: Any) -> Any:
        node = self.server.node
        return document(node.name, list(node.services.values()), self.server.tokens != Tokens())

    # An answer.

    def _send(self, status: int, body: bytes, kind: str, generation: str | None = None) -> None:
        try:
            self.send_response_only(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if generation is not None:
                self.send_header("Cognate-Generation", generation)
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
        except OSError:
            # Whoever has asked is gone; the answer comes back if he asks again.
            self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A request that is none of HTTP's, or of a kind that nothing here takes."""
        if code == 501:
            # Whoever is still sending comes to read that there is nothing, too.
            self._arrived = time.monotonic()
            self._read_body()
        self.close_connection = True
        problem = Problem(404, "path", "there is nothing here") if code == 501 else Problem(400, "arguments", str(message))
        self._send(problem.status, problem.body(), "application/problem+json")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged."""
