"""A component: a name, services, how these stand to each other, and its start."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from .database import Pool
from .hold import Hold
from .journal import BadJournal, Journal
from .matrix import Line, Matrix
from .names import name as checked
from .node import Node
from .participant import Participant
from .peers import Peers
from .root import Origin, SlotFacts, VoteFacts
from .run import Runner
from .server import Server, Tokens, bind
from .service import Service
from .sessions import application_name, is_earlier_at_work, terms
from .slots import Slots

log = logging.getLogger("cognate_composite")

# How often a start waits for locks that a statement for its tables needs, two seconds each time.
_SET_UP_ATTEMPTS = 5


class StartError(Exception):
    """Why a component does not start, in words for a person."""


class Component:
    """A component that is being put together."""

    def __init__(self, name: str, setup: Iterable[str] = ()) -> None:
        """`setup`: statements that make its tables, executed at each start, one after the other."""
        self.name = checked(name)
        self._setup = list(setup)
        self._services: dict[str, Service] = {}
        self._lines: list[Line] = []

    def service(
        self,
        *,
        name: str | None = None,
        item: Callable[[Any], Any] | None = None,
        reads: bool = False,
        isolation: str = "serializable",
    ) -> Callable[[Callable], Service]:
        """Offers a function as a service. Its argument, by its annotation, is what comes as JSON.

        `item`: what a call is about; calls about different items need not conflict. `reads`: it changes nothing.
        `isolation`: `serializable` or `read committed`; the latter is right where each statement finds and changes
        what it needs in one step, and each pair of services that may be exchanged has been tried at the same time.
        """
        if isolation not in ("serializable", "read committed"):
            raise ValueError(f"no isolation of services: {isolation!r}")

        def declare(run: Callable) -> Service:
            service = Service(run, name or run.__name__, item, reads, isolation)
            if service.name in self._services:
                raise ValueError(f"two services are named {service.name!r}")
            self._services[service.name] = service
            return service

        return declare

    def conflicts(self, *lines: Line) -> None:
        """Says how services stand to each other; what nothing is said about conflicts."""
        self._lines.extend(lines)

    def start(
        self,
        *,
        database: str,
        data: str | Path,
        peers: Mapping[str, str] = {},
        tokens: Tokens = Tokens(),
        lock_wait: float = 0.2,
        connections: int = 24,
        answers_kept: float = 24 * 3600,
    ) -> Running:
        """Takes the component over from whoever had it, takes up what was left, and is ready to listen.

        `database`: `postgresql://…`. `data`: the folder of its journal. `peers`: the other components, by their
        names: `http://host:port`. `lock_wait` and `answers_kept` are seconds.
        """
        try:
            if tokens.peer is not None and tokens.peer == tokens.client:
                raise ValueError("components and clients have one token: every client would be a component")
            matrix = Matrix([service.declared for service in self._services.values()], self._lines)
            others = Peers(self.name, tokens.peer)
            for peer, address in peers.items():
                others.set(checked(peer), address)
            return self._start(matrix, others, database, Path(data), tokens, lock_wait, connections, answers_kept)
        except (ValueError, OSError, BadJournal, psycopg.Error) as error:
            raise StartError(f"component {self.name}: {error}") from error

    def _start(
        self,
        matrix: Matrix,
        peers: Peers,
        database: str,
        data: Path,
        tokens: Tokens,
        lock_wait: float,
        connections: int,
        answers_kept: float,
    ) -> Running:
        if not database.startswith(("postgresql://", "postgres://")):
            # It is not repeated: there may be a password in it.
            raise ValueError("not the address of a database (postgresql://…)")
        _check_address(database)
        with psycopg.connect(database, autocommit=True, application_name=application_name(self.name, 0)) as connection:
            durable = connection.execute("SHOW synchronous_commit").fetchone()
            if durable and durable[0] == "off":
                raise ValueError("synchronous_commit is off in its database")
            left = _set_up_first(connection, self.name, self._setup)
            # As late as may be: a start that fails before has ended nobody.
            hold = Hold(self.name, data)
            journal = Journal(data)
            slots = Slots(self.name, connection)
            _set_up_rest(connection, left)
            for row in slots.rows:
                if row.facts.service not in self._services:
                    raise ValueError(f"slot {row.slot} is of service {row.facts.service}, which is not there any more")
            participant = Participant(matrix, slots.generation)
            is_whole = slots.journal == journal.id if slots.journal else not slots.rows
            if not is_whole:
                log.warning(
                    "component %s: the journal is not the one of this database; nothing is undone before parents were asked",
                    self.name,
                )
            remembered = [row.facts.of(row.root, row.slot, row.is_noted) for row in slots.rows]
            effects = participant.recover(remembered, list(journal.votes.values()), journal.marks, is_whole)
            effects = _agree(connection, slots, journal, participant, effects)
        fence = terms(self.name, slots.generation, slots.is_postgresql)
        pool = Pool(database, application_name(self.name, slots.generation), connections, fence)
        peers.begin(Origin(slots.database, slots.generation))
        node = Node(self.name, self._services, pool, slots, journal, hold, peers, participant, lock_wait)
        node.origins = {vote.root: dict(vote.origins) for vote in journal.votes.values() if vote.origins}
        node.begin(slots.rows, effects)
        log.info("component %s of generation %d:\n%s", self.name, slots.generation, matrix)
        return Running(node, Runner(node, answers_kept), matrix, tokens)

    def main(self, arguments: list[str] | None = None) -> None:
        """The program of a component: `--listen`, `--database`, `--data`, `--peers`, `--token-file`."""
        parser = argparse.ArgumentParser(description=f"The component {self.name}.")
        parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:0")
        parser.add_argument("--database", metavar="URL", required=True, help="postgresql://…")
        parser.add_argument("--data", metavar="DIR", required=True, help="the folder of the journal")
        parser.add_argument("--peers", metavar="NAME=URL,…", default="", help="the other components")
        parser.add_argument(
            "--token-file", metavar="FILE", help="the token of components, and on a second line that of clients"
        )
        given = parser.parse_args(arguments)
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
        try:
            tokens = read_tokens(given.token_file) if given.token_file else Tokens()
            host, port = _address(given.listen)
            if tokens == Tokens() and not _is_loopback(host):
                raise StartError(f"listening on {given.listen} without --token-file lets anybody in")
            peers = _peers(given.peers)
            peers.pop(self.name, None)
            # A start that does not get its address has ended nobody.
            listening = _bind(host, port)
            running = self.start(database=given.database, data=given.data, peers=peers, tokens=tokens)
            address, port = running.serve(listening)
        except (StartError, ValueError, OSError) as error:
            sys.exit(f"{self.name}: {error}")
        address = f"[{address}]" if ":" in address else address
        print(f"{self.name} listens on http://{address}:{port}\n{running.matrix}", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            running.wait_fenced()
            # Whoever is waiting for an answer hears why there is none.
            time.sleep(1)
            sys.exit(f"{self.name}: another process has taken this component over")
        except KeyboardInterrupt:
            running.stop()


def _set_up_first(connection: psycopg.Connection, component: str, statements: list[str]) -> list[str]:
    """Runs the statements that are given for the tables, or those of them before the first one that waits for a lock which
    a local transaction of an earlier process may have. That one ends when the component is taken over: answers what is
    left to be run then. Whatever else is in the way would still be there, and the earlier process at work no more; so it is
    waited for here, within a bound, and a start that fails by it has ended nobody."""
    left = statements
    for _ in range(_SET_UP_ATTEMPTS):
        left = _set_up(connection, left)
        if not left or is_earlier_at_work(connection, component):
            return left
    return _none(left)


def _set_up_rest(connection: psycopg.Connection, left: list[str]) -> None:
    """Runs what is left of them once the component is taken over. Whoever else is in the way is waited for, within a
    bound."""
    for _ in range(_SET_UP_ATTEMPTS):
        left = _set_up(connection, left)
        if not left:
            return
    _none(left)


def _set_up(connection: psycopg.Connection, statements: list[str]) -> list[str]:
    """Runs statements. Answers those from the first one on that others keep waiting for too long."""
    connection.execute("SET lock_timeout = '2s'")
    for place, statement in enumerate(statements):
        try:
            connection.execute(statement)
        except psycopg.errors.LockNotAvailable:
            # It may have begun a transaction by itself, in which nothing else can be said.
            connection.execute("ROLLBACK")
            connection.execute("RESET lock_timeout")
            return statements[place:]
    connection.execute("RESET lock_timeout")
    return []


def _none(left: list[str]) -> list[str]:
    """Says which statement it is that others keep waiting."""
    if left:
        raise ValueError(f"others have locked for too long what this needs: {left[0]}")
    return left


def _agree(
    connection: psycopg.Connection, slots: Slots, journal: Journal, participant: Participant, effects: list[tuple]
) -> list[tuple]:
    """Makes journal and database know each other: first the journal says what it has to, then the database names it."""
    for what, root, *_ in effects:
        if what == "write_vote":
            known = participant.roots[root]
            children = [(name, child.nonce) for name, child in known.children.items() if child.nonce is not None]
            journal.vote(VoteFacts(root, None, list(known.parents), children))
    if slots.journal is None or slots.journal != journal.id:
        slots.name_journal(connection, journal.name())
    return [effect for effect in effects if effect[0] != "write_vote"]


def _check_address(database: str) -> None:
    """Refuses what libpq cannot read as the address of a database, without what libpq says to that: it repeats the
    address, or parts of it, with the password."""
    try:
        conninfo_to_dict(database)
    except psycopg.Error:
        why = "the address of the database cannot be read: it is not postgresql://USER:PASSWORD@HOST:PORT/NAME"
        raise ValueError(why) from None


def read_tokens(file: str | Path) -> Tokens:
    """The tokens of a file: the first line is that of components, the second one, if there is one, that of clients."""
    lines = [line.strip() for line in Path(file).read_text().splitlines() if line.strip()]
    if not lines:
        raise StartError(f"{file}: holds no token")
    return Tokens(*lines[:2])


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise ValueError(f"--listen {text}: not HOST:PORT")
    return host.strip("[]"), int(port)


def _bind(host: str, port: int) -> socket.socket:
    try:
        return bind(host, port)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise StartError(f"cannot listen on {host or 'any address'}, port {port}: {why}") from error


def _peers(text: str) -> dict[str, str]:
    peers = {}
    for peer in filter(None, text.split(",")):
        name, equals, address = peer.partition("=")
        if not equals:
            # It is not repeated: there may be a password in it.
            raise ValueError("--peers: not NAME=URL, with commas between them")
        peers[name] = address
    return peers


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Running:
    """A component that runs."""

    def __init__(self, node: Node, runner: Runner, matrix: Matrix, tokens: Tokens) -> None:
        self.matrix = matrix
        self._node, self._runner, self._tokens = node, runner, tokens
        self._server: Server | None = None

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Answers calls from now on, at this address."""
        return self.serve(bind(host, port))

    def serve(self, listening: socket.socket) -> tuple[str, int]:
        """Answers calls from now on that come to a socket which listens already. Answers its address."""
        self._server = Server(listening, self._node, self._runner, self.matrix, self._tokens)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        address = self._server.server_address
        return str(address[0]), int(address[1])

    def set_peer(self, name: str, address: str) -> None:
        """Another component is, or has moved, here."""
        self._node.peers.set(checked(name), address)

    def remove_peer(self, name: str) -> None:
        """Another component is not there any more."""
        self._node.peers.remove(name)

    def wait_fenced(self) -> None:
        """Returns once another process has taken the component over: this one is to end."""
        self._node.is_fenced.wait()

    def stop(self) -> None:
        """Answers no more calls. What was under way is taken up by the next start."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
        self._node.stop()
