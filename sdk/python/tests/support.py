"""Components as they run: processes of the Rust example and of the Python one, spoken to over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

PYTHON = Path(__file__).resolve().parent.parent
NAMES = ("shop", "stock", "payment")
# How long everything may take to end once nobody buys any more: a safety net, far above what it takes.
END = 60


def rust_example() -> Path:
    """The program of the Rust example, which `cargo test` builds together with its tests."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or PYTHON.parent.parent / "target")
    given = Path(os.environ.get("PURCHASE") or target / "debug" / "examples" / "purchase")
    if not given.exists():
        raise AssertionError(f"{given} is missing: cargo build -p cognate-composite --example purchase")
    return given


def database_url() -> str:
    """The database of Python components: where libpq's clients find it."""
    missing = [name for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE") if name not in os.environ]
    if missing:
        raise AssertionError(f"no database: {', '.join(missing)}")
    return "postgresql://{PGUSER}@{PGHOST}:{PGPORT}/{PGDATABASE}?sslmode=disable".format(**os.environ)


def execute(statement: str) -> None:
    """A statement in the database of Python components."""
    with psycopg.connect(database_url(), autocommit=True) as connection:
        connection.execute(statement)


def _empty_database() -> None:
    with psycopg.connect(database_url(), autocommit=True) as connection:
        ours = [f"cognate_composite.{table}" for table in ("component", "slot", "answer")]
        for table in ["item", "account", "purchase", *ours]:
            try:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            except psycopg.errors.InvalidSchemaName:
                pass


def _port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


class Fleet:
    """The three components, of which some are Python programs."""

    def __init__(self, python: tuple[str, ...], tokens: str | None = None) -> None:
        self._python, self._processes = python, {}
        self.folder = Path(tempfile.mkdtemp(prefix="cognate-composite-"))
        self.ports = {name: _port() for name in NAMES}
        self._token_file = self.folder / "tokens" if tokens else None
        if tokens:
            self._token_file.write_text(tokens)
        _empty_database()
        try:
            for name in NAMES:
                self.start(name)
        except BaseException:
            self.stop()
            raise

    def start(self, name: str, data: str = "journal", port: int | None = None) -> subprocess.Popen:
        """Starts a component, on the port that the others know if no other one is given, and returns once it answers."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        if name in self._python:
            program = [sys.executable, str(PYTHON / "examples" / "purchase.py"), name]
            database = database_url()
        else:
            program = [str(rust_example()), name]
            database = f"embedded:{folder / 'database'}"
        peers = ",".join(f"{peer}=http://127.0.0.1:{port}" for peer, port in self.ports.items())
        program += ["--listen", f"127.0.0.1:{self.ports[name] if port is None else port}", "--database", database]
        program += ["--data", str(folder / data), "--peers", peers]
        program += ["--token-file", str(self._token_file)] if self._token_file else []
        environment = os.environ | {"PYTHONPATH": str(PYTHON)}
        with open(self.folder / f"{name}.log", "a") as log:
            process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        line = process.stdout.readline()
        if "listens on" not in line:
            process.kill()
            process.wait()
            process.stdout.close()
            raise AssertionError(f"{name} did not start: {line}{self.log(name)}")
        self._processes[name] = process
        return process

    def log(self, name: str) -> str:
        """What a component has said."""
        return (self.folder / f"{name}.log").read_text()[-4000:]

    def kill(self, name: str) -> None:
        """`kill -9`."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        process.stdout.close()

    def stop(self) -> None:
        """Ends all of them."""
        for name in list(self._processes):
            self.kill(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def request(
        self, to: str, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Sends a request; answers the status and the JSON of its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[to], timeout=90)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} | (headers or {}))
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def post(self, to: str, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Posts JSON."""
        return self.request(to, "POST", path, json.dumps(body).encode(), headers)

    def about(self, to: str, what: str, **entry: Any) -> dict[str, Any]:
        """A control message about one root; answers what is said of it."""
        status, answer = self.post(to, f"/composite/{what}", {"roots": [entry]})
        assert status == 200, answer
        return answer["roots"][0]

    def read(self, to: str, service: str, arguments: Any) -> Any:
        """The answer of a service that reads, as soon as nothing is in its way."""
        until = time.monotonic() + END
        while True:
            status, answer = self.post(to, f"/services/{service}", arguments)
            if status == 200:
                return answer
            assert status == 409 and time.monotonic() < until, answer
            time.sleep(0.05)

    def status(self, of: str) -> dict[str, Any]:
        """What a component shows."""
        return self.request(of, "GET", "/status")[1]

    def settled(self) -> None:
        """Waits until no component has an open root."""
        until = time.monotonic() + END
        for name in NAMES:
            while (status := self.status(name))["roots"]:
                assert time.monotonic() < until, f"{name} does not end: {status}\n{self.log(name)}"
                time.sleep(0.05)
            assert status["in_doubt"] == 0 and status["parked"] == [], status


def part_of(root: str, call: str, **more: str) -> dict[str, str]:
    """Headers of a call that is part of a root of somebody else's."""
    headers = {"Cognate-Root": root, "Cognate-Parent": "shop", "Cognate-Call": call}
    return headers | {f"Cognate-{name.replace('_', '-')}": value for name, value in more.items()}
