"""The other components, found by their names, and what is said to them."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import asdict
from typing import Any
from urllib.parse import quote, urlsplit

from . import shape
from .participant import Vote
from .problem import Problem, received
from .root import Origin

# How long a connection may take to be made, and how long a control message waits for its answer, in seconds.
_CONNECT = 2
_PATIENCE = 10
# Most bytes of an answer.
_ANSWER_BYTES = 8 << 20


def _unsent(to: str, why: object) -> Problem:
    problem = Problem(503, "away", f"{to}: {why}")
    problem.is_unsent = True
    return problem


def _is_cut(answer: http.client.HTTPResponse) -> bool:
    """Whether an answer that was read is, or may be, a part of one. The library says so by itself only of one in pieces. One
    that says nothing of its length ends with its connection, as one that is cut does."""
    lengths = {one.strip() for one in answer.headers.get_all("Content-Length", [])}
    return not answer.chunked and (len(lengths) > 1 or answer.length != 0)


class Peers:
    """Whom this component can call. A request has a connection of its own, so it is known whether it was sent."""

    def __init__(self, own: str, token: str | None) -> None:
        self._own, self._token = own, token
        self._addresses: dict[str, tuple[str, int]] = {}
        # Where this component decides, once it has been started.
        self.origin: Origin | None = None

    def begin(self, origin: Origin) -> None:
        """The component decides here; whoever is asked for a vote is told."""
        self.origin = origin

    def set(self, name: str, address: str) -> None:
        """A component is, or has moved, here: `http://host:port`."""
        if "@" in address:
            # It is not repeated: there may be a password in it.
            raise ValueError("an address is http://host:port, and names no user")
        try:
            parts = urlsplit(address)
            port = 80 if parts.port is None else parts.port
        except ValueError:
            # A port is out of range, say.
            raise ValueError(f"not an address: {address!r} (http://host:port)") from None
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/") or port == 0:
            raise ValueError(f"not an address: {address!r} (http://host:port)")
        self._addresses[name] = (parts.hostname, port)

    def remove(self, name: str) -> None:
        """A component is not there any more."""
        self._addresses.pop(name, None)

    def _post(
        self, to: str, path: str, headers: dict[str, str], body: str, patience: float
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Sends a request. A failure says by `began` whether it may have arrived."""
        if to not in self._addresses:
            raise _unsent(to, "no such component among the peers")
        connection = http.client.HTTPConnection(*self._addresses[to], timeout=min(_CONNECT, patience))
        try:
            connection.connect()
        except OSError as error:
            raise _unsent(to, error) from error
        try:
            connection.sock.settimeout(patience)
            headers = {"Content-Type": "application/json", "Connection": "close"} | headers
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token}"
            connection.request("POST", path, body.encode(), headers)
            answer = connection.getresponse()
            text = answer.read(_ANSWER_BYTES + 1)
            if len(text) > _ANSWER_BYTES:
                raise http.client.HTTPException("the answer is too long")
            if _is_cut(answer):
                raise http.client.HTTPException("the answer was cut")
            return answer.status, answer.headers, text
        except TimeoutError as error:
            raise Problem(504, "deadline", f"{to} did not answer in time", began=True) from error
        except (OSError, http.client.HTTPException) as error:
            raise Problem(503, "away", f"{to}: {error}", began=True) from error
        finally:
            connection.close()

    def call(
        self,
        child: str,
        service: str,
        root: str,
        call: str,
        chain: list[str],
        deadline: float,
        body: str,
        trace: dict[str, str],
    ) -> tuple[Any, int]:
        """Calls a service. Answers its answer and the component's generation."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise Problem(504, "deadline", "the time of the request is over")
        headers = trace | {
            "Cognate-Root": root,
            "Cognate-Parent": self._own,
            "Cognate-Call": call,
            "Cognate-Ancestors": ",".join(chain),
            "Cognate-Deadline-Ms": str(int(left * 1000)),
        }
        status, answered, text = self._post(child, f"/services/{quote(service, safe='')}", headers, body, left)
        if not 200 <= status < 300:
            raise received(child, status, text)
        try:
            return json.loads(text), int(answered.get("Cognate-Generation", "0"))
        except ValueError as error:
            # It was executed, and what it did cannot be counted.
            raise Problem(503, "away", f"{child}: not the answer of a component: {error}", began=True) from error

    def prepare(self, child: str, root: str, calls: int, generation: int | None) -> tuple[Vote, Problem | None]:
        """Asks for a vote. No answer is a no; why it is one is said beside it."""
        origin = asdict(self.origin) if self.origin else None
        entry = {"root": root, "parent": self._own, "calls": calls, "generation": generation, "origin": origin}
        answer = self._tell(child, "prepare", entry)
        nonce, is_yes = answer.get("nonce"), answer.get("vote") == "yes"
        if is_yes and type(nonce) is int and nonce >= 0:
            return Vote(nonce=nonce), None
        if is_yes or not answer:
            return Vote(no="failed"), Problem(503, "away", f"{child} does not answer the question for its vote")
        reason = answer.get("reason") or "without a reason"
        return Vote(no="child"), Problem(409, "conflict", f"{child} voted no: {reason}")

    def commit(self, child: str, root: str, nonce: int | None) -> str | None:
        """Says that a root is committed; nothing if there was no answer."""
        return self._tell(child, "commit", {"root": root, "parent": self._own, "nonce": nonce}).get("state")

    def abort(self, child: str, root: str) -> str | None:
        """Says that a root is aborted. Who has said yes to a later process of this component does not believe it."""
        origin = asdict(self.origin) if self.origin else None
        return self._tell(child, "abort", {"root": root, "parent": self._own, "origin": origin}).get("state")

    def outcome(
        self, parent: str, root: str, nonce: int | None, callers: list[str]
    ) -> tuple[str | None, Origin | None]:
        """Asks for the outcome of a root for which these calls of the parent have called here. Answers from which database it
        is known, too, if the parent says so."""
        entry = {"root": root, "child": self._own, "nonce": nonce, "callers": callers or None}
        answer = self._tell(parent, "outcome", entry)
        origin = answer.get("origin")
        if origin is None:
            return answer.get("state"), None
        try:
            return answer.get("state"), shape.read(Origin, origin, "the origin")
        except ValueError:
            # What makes no sense is no answer.
            return None, None

    def _tell(self, to: str, what: str, entry: dict[str, Any]) -> dict[str, Any]:
        """Sends a control message about one root; answers what was said of it, or nothing. Who says two things says
        nothing."""
        entry = {name: value for name, value in entry.items() if value is not None}
        try:
            status, _, text = self._post(to, f"/composite/{what}", {}, json.dumps({"roots": [entry]}), _PATIENCE)
            answers = json.loads(text)["roots"] if status == 200 else []
            said = [dict(answer) for answer in answers if answer["root"] == entry["root"]]
            return said[0] if said and all(one == said[0] for one in said) else {}
        except (Problem, ValueError, KeyError, TypeError):
            return {}
