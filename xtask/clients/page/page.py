"""The live page as a browser shows it: of a server that wants a token, that ends and comes back; and of a cluster's
node that starts, serves, loses another node and then the majority. Pictures of it, wide and narrow, light and dark, are
left beside this program."""

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path

from browser import Browser

PROGRAM = os.environ["COGNATE"]
HERE = Path(__file__).resolve().parent
TOKEN = "geheim ß"
# A name that would be markup.
NAME = "<img src=x onerror=document.title=1>"


def ports(count: int) -> list[str]:
    """Addresses that are free; held until all are chosen, so that no two are the same."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    chosen = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    for one in held:
        one.close()
    return chosen


class Server:
    """`cognate serve`, which is killed."""

    def __init__(self, data: Path, http: str, *words: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COGNATE_")}
        arguments = ["serve", "--data", str(data), "--listen", "127.0.0.1:0", "--http", http]
        arguments += ["--memory", "64MB", "--log", "error", *words]
        self.process = subprocess.Popen(
            [PROGRAM, *arguments], env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )

    def port(self) -> int:
        """Its port, once it is ready."""
        line = self.process.stdout.readline()
        assert line.startswith("ready"), line
        return int(line.split(" -p ")[1].split()[0])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Session:
    """A connection of PostgreSQL's protocol, as simple as it can be."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.input = self.socket.makefile("rb")
        parameters = b"user\0cognate\0database\0cognate\0\0"
        self.socket.sendall(struct.pack("!ii", 8 + len(parameters), 3 << 16) + parameters)
        self._answer()

    def _answer(self) -> str:
        """The SQLSTATE of the error, if there is one."""
        state = ""
        while True:
            kind, length = struct.unpack("!ci", self.input.read(5))
            body = self.input.read(length - 4)
            if kind == b"E":
                fields = [field.decode() for field in body.split(b"\0") if field]
                state = next(field[1:] for field in fields if field[0] == "C")
            if kind == b"Z":
                return state

    def run(self, text: str) -> str:
        body = text.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", 4 + len(body)) + body)
        return self._answer()

    def must(self, *texts: str) -> None:
        for text in texts:
            state = self.run(text)
            assert not state, f"{text}: {state}"


@contextlib.contextmanager
def load(port: int, id: int):
    """A client that reads and writes a row, over and over."""
    ends = threading.Event()

    def go() -> None:
        with contextlib.suppress(OSError, struct.error):
            session = Session(port)
            while not ends.is_set():
                session.run(f"UPDATE item SET n = n + 1 WHERE id = {id}")
                session.run("SELECT sum(n) FROM item")

    client = threading.Thread(target=go)
    client.start()
    try:
        yield
    finally:
        ends.set()
        client.join()


def write_skew(one: Session, two: Session) -> None:
    """Two transactions each of which reads what the other one writes."""
    one.must("CREATE TABLE account (id int PRIMARY KEY, n int)", "INSERT INTO account VALUES (1, 50), (2, 50)")
    for session, id in ((one, 1), (two, 2)):
        session.must("BEGIN", "SELECT sum(n) FROM account", f"UPDATE account SET n = n - 60 WHERE id = {id}")
    one.must("COMMIT")
    assert two.run("COMMIT") == "40001"


def text_of(id: str) -> str:
    return f"at('{id}').textContent"


def rate_of(name: str) -> str:
    """The figure of a tile, in the page."""
    return (
        f"Number([...document.querySelectorAll('.tile')].find(tile => tile.querySelector('.name').textContent === '{name}')"
        ".querySelector('.value').textContent.replaceAll(',', '').split('/')[0])"
    )


def is_drawn(browser: Browser) -> None:
    """Figures move, and so do curves."""
    browser.wait(f"{rate_of('Commits')} > 0")
    browser.wait(f"{rate_of('Statements')} > 0")
    browser.wait("RATES[0].tile.points.length > 4")
    assert "L" in browser.value("document.querySelector('#rates .curve').getAttribute('d')")


def pictures(browser: Browser, name: str) -> None:
    for width, shape in ((1280, "wide"), (390, "phone")):
        for scheme in ("light", "dark"):
            browser.picture(HERE / f"{name}-{shape}-{scheme}.png", width, scheme)


def one_server(folder: Path) -> None:
    (folder / "token").write_text(TOKEN + "\n")
    [http] = ports(1)
    words = (folder / "single", http, "--http-token-file", str(folder / "token"))
    with contextlib.ExitStack() as stack:
        server = Server(*words)
        stack.callback(lambda: server.kill())
        port = server.port()
        browser = Browser(f"http://{http}/")
        stack.callback(browser.close)

        browser.wait("at('ask').hidden", False)
        browser.picture(HERE / "token.png", 390, "light")
        for token, refused in (("wrong", "This token is not the one."), (TOKEN, "")):
            browser.value(f"at('token').value = '{token}'; at('ask').requestSubmit()")
            browser.wait(text_of("refused") if refused else "at('shown').hidden", refused or False)
        assert browser.value("at('ask').hidden")
        assert browser.value(text_of("name")) == "Cognate"
        assert browser.value("at('of-nodes').hidden && at('of-replication').hidden")
        assert browser.value(text_of("failures")) == "None since the start."
        # The token is nowhere but in the page's memory.
        assert browser.value("localStorage.length + sessionStorage.length + document.cookie.length") == 0

        one, two = Session(port), Session(port)
        one.must("CREATE TABLE item (id int PRIMARY KEY, n int NOT NULL)", "INSERT INTO item VALUES (1, 0), (2, 0)")
        write_skew(one, two)
        one.must("BEGIN", "INSERT INTO account VALUES (3, 0)", f"PREPARE TRANSACTION '{NAME}'")
        one.must("BEGIN MIP <order-7, 1>", "INSERT INTO account VALUES (4, 0)", "PREPARE MIP <order-7, 1> 'buy' 'sold'")
        with load(port, 1), load(port, 2):
            is_drawn(browser)
            browser.wait(f"{text_of('failures')}.includes('Cycle: ')")
            browser.wait(f"{text_of('in-doubt')}.includes('order-7')")
            names = "[...at('in-doubt').querySelectorAll('td')].map(cell => cell.textContent)"
            assert NAME in browser.value(names)
            assert browser.value("document.images.length") == 0
            cycles = "[...at('aborts').querySelectorAll('tr')].find(row => row.cells[0].textContent === 'cycle').cells[2].textContent"
            assert int(browser.value(cycles)) >= 1
            assert browser.value(text_of("state")) == "serving"
            pictures(browser, "single")
        assert browser.complaints == [], browser.complaints

        server.kill()
        browser.wait(text_of("state"), "no answer")
        assert browser.value(text_of("alarm")).startswith("The server does not answer. What is below was so ")
        pictures(browser, "lost")
        # It goes on by itself, and counts from nothing.
        server = Server(*words)
        server.port()
        browser.wait(text_of("state"), "serving")
        assert browser.value("at('alarm').hidden && at('shown').className === ''")


def cluster(folder: Path) -> None:
    (folder / "secret").write_text("a secret of tests\n")
    addresses = ports(6)
    peers = ",".join(f"{number}={address}" for number, address in zip((1, 2, 3), addresses))

    def start(number: int) -> Server:
        words = ("--node", str(number), "--peers", peers, "--cluster-secret-file", str(folder / "secret"))
        return Server(folder / f"node{number}", addresses[2 + number], *words)

    with contextlib.ExitStack() as stack:
        first = start(1)
        stack.callback(first.kill)
        browser = Browser(f"http://{addresses[3]}/")
        stack.callback(browser.close)
        browser.wait(text_of("alarm"), "The server says: this node is starting.")
        servers = [first, start(2), start(3)]
        for server in servers[1:]:
            stack.callback(server.kill)
        sessions = [Session(server.port()) for server in servers]
        browser.wait(text_of("state"), "serving")

        one, two, _ = sessions
        one.must("CREATE TABLE item (id int PRIMARY KEY, n int NOT NULL)", "INSERT INTO item VALUES (1, 0), (2, 0)")
        # Until it is there, too.
        while two.run("SELECT 1 FROM item") == "42P01":
            pass
        while two.run("SELECT 1 / (SELECT count(*) FROM item)") == "22012":
            pass
        one.must("BEGIN", "UPDATE item SET n = 1 WHERE id = 1")
        # It is tried again, should it be later than somebody itself.
        two.must("UPDATE item SET n = 2 WHERE id = 1")
        assert one.run("COMMIT") == "40001"
        port = one.socket.getpeername()[1]
        states = "[...at('nodes').querySelectorAll('tbody tr')].map(row => row.cells[2].textContent)"
        with load(port, 1), load(port, 2):
            is_drawn(browser)
            browser.wait(states, ["serving"] * 3)
            browser.wait(f"{text_of('failures')}.includes('of node 2 was faster')")
            assert browser.value(text_of("name")).startswith("Node 1, ")
            assert not browser.value("at('of-replication').hidden")
            assert browser.value("[...at('nodes').querySelectorAll('tbody tr')].every(row => /^[0-9a-f]{8} at /.test(row.cells[6].textContent))")
            pictures(browser, "cluster")
        servers[2].kill()
        browser.wait(states, ["serving", "serving", "no answer"])
        servers[1].kill()
        browser.wait(text_of("state"), "minority, no writes")
        assert browser.value("!at('alarm').hidden && at('alarm').textContent.length > 0")
        pictures(browser, "minority")
        assert browser.complaints == [], browser.complaints


folder = Path(tempfile.mkdtemp(prefix="cognate-page-"))
try:
    one_server(folder)
    cluster(folder)
finally:
    shutil.rmtree(folder)
