"""Clients that share a few connections, as PgBouncer gives them these."""

import contextlib
import os
import re
import socket
import subprocess
import tempfile
import threading

import psycopg

VERSION = tuple(int(part) for part in re.search(r"(\d+)\.(\d+)", subprocess.check_output(["pgbouncer", "--version"], text=True)).groups())
# Older ones cannot follow named statements from one connection to another.
FOLLOWS_STATEMENTS = VERSION >= (1, 21)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def bouncer(server, users, **settings):
    """PgBouncer in front of a server; the answer is how to connect to it."""
    port = free_port()
    folder = tempfile.mkdtemp(prefix="cognate-pgbouncer-")
    os.chmod(folder, 0o755)
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_file": f"{folder}/users",
        "admin_users": "admin",
        "default_pool_size": 4,
        "server_reset_query": "DISCARD ALL",
        "server_check_query": "SELECT 1",
        # Each connection is checked each time that it is given to somebody.
        "server_check_delay": 0,
        "ignore_startup_parameters": "extra_float_digits",
        **settings,
    }
    if FOLLOWS_STATEMENTS:
        settings.setdefault("max_prepared_statements", 100)
    with open(f"{folder}/pgbouncer.ini", "w") as file:
        file.write(f"[databases]\n* = {server}\n[pgbouncer]\n")
        file.writelines(f"{name} = {value}\n" for name, value in settings.items())
    with open(f"{folder}/users", "w") as file:
        file.writelines(f'"{name}" "{password}"\n' for name, password in users.items())
    # It does not run as root.
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    process = subprocess.Popen(["pgbouncer", "-q", *user, f"{folder}/pgbouncer.ini"])
    try:
        password = f" password={users['cognate']}" if users["cognate"] else ""
        conninfo = f"host=127.0.0.1 port={port} user=cognate dbname=cognate sslmode=disable{password}"
        while True:
            try:
                psycopg.connect(conninfo).close()
                break
            except psycopg.OperationalError as error:
                # It has said who is wrong, or it does not listen yet.
                assert process.poll() is None and "refused" in str(error), error
        yield conninfo
    finally:
        process.terminate()
        process.wait()


def console(conninfo, command):
    """What PgBouncer says of itself."""
    with psycopg.connect(conninfo.replace("dbname=cognate", "dbname=pgbouncer").replace("user=cognate", "user=admin"), autocommit=True) as admin:
        # It knows the simple protocol only, and no parameters.
        cursor = psycopg.ClientCursor(admin)
        cursor.execute(command)
        return cursor.fetchall() if cursor.description else None


def check_types(connection):
    row = (7, "text", 1.5, None, [1, 2], b"\x00\xff")
    for binary in [False, True]:
        cursor = connection.cursor(binary=binary)
        cursor.execute("SELECT %b::int, %s::text, %b::float8, %s::int, %s::int[], %b::bytea", row)
        assert cursor.fetchone() == row


def check_cancel(connection):
    """A cancel request goes to PgBouncer, and from there to the right session."""
    ended = threading.Event()

    def cancel():
        # Whether the statement has begun is not known.
        while not ended.wait(0.05):
            connection.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        connection.execute("SELECT pg_sleep(100)")
        raise AssertionError("it was not cancelled")
    except psycopg.errors.QueryCanceled:
        pass
    finally:
        ended.set()
        canceller.join()
    connection.rollback()


def check_sessions(server):
    """A session is one client's as long as that is there, and forgets it afterwards."""
    with bouncer(server, {"cognate": "", "admin": ""}, auth_type="trust", pool_mode="session", default_pool_size=1) as conninfo:
        with psycopg.connect(conninfo, autocommit=True) as one:
            process = one.execute("SELECT pg_backend_pid()").fetchone()
            check_types(one)
            one.execute("SET search_path = nowhere")
            one.execute("CREATE TEMP TABLE mine (id int)")
            one.execute("PREPARE p AS SELECT 1")
            one.execute("SELECT pg_advisory_lock(7)")
            one.execute("LISTEN news")
            one.execute("DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 10)")
            for _ in range(10):
                # psycopg prepares what comes again and again.
                one.execute("SELECT count(*) FROM mine WHERE id = %s", (1,))
            one.execute("NOTIFY news, 'heard'")
            assert [(news.channel, news.payload) for news in one.notifies(timeout=60, stop_after=1)] == [("news", "heard")]
        with psycopg.connect(conninfo, autocommit=True) as two:
            assert two.execute("SELECT pg_backend_pid()").fetchone() == process, "it is the same session"
            left = two.execute(
                """SELECT current_setting('search_path'), to_regclass('pg_temp.mine'), (SELECT count(*) FROM pg_prepared_statements),
                    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), (SELECT count(*) FROM pg_listening_channels()),
                    (SELECT count(*) FROM pg_cursors)"""
            ).fetchone()
            assert left == ('"$user", public', None, 0, 0, 0, 0), left
            check_cancel(two)


def check_transactions(server):
    """Many clients over four sessions, each of which is a client's for one transaction."""
    with bouncer(server, {"cognate": "", "admin": ""}, auth_type="trust", pool_mode="transaction", max_client_conn=200) as conninfo:
        threshold = 5 if FOLLOWS_STATEMENTS else None
        many = [f"{conninfo} application_name=client{number}" for number in range(50)]
        connections = [psycopg.connect(one, autocommit=True, prepare_threshold=threshold) for one in many]
        connections[0].execute("CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL)")
        connections[1].execute("INSERT INTO counter SELECT id, 0 FROM generate_series(0, 49) id")

        def work(id, connection):
            for _ in range(20):
                with connection.transaction():
                    connection.execute("UPDATE counter SET n = n + 1 WHERE id = %s", (id,))
                    assert connection.execute("SELECT count(*) FROM counter WHERE id = %s", (id,)).fetchone() == (1,)

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = connections[0].execute("SELECT count(*), sum(n), min(n) FROM counter").fetchone()
        assert counts == (50, 1000, 20), counts
        sessions = connections[0].execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").fetchone()[0]
        assert sessions <= 4, sessions
        # What fails is the client's whose transaction it was.
        with connections[2].transaction(force_rollback=True):
            connections[2].execute("UPDATE counter SET n = 0")
        try:
            connections[3].execute("INSERT INTO counter VALUES (0, 0)")
            raise AssertionError("a key is there twice")
        except psycopg.errors.UniqueViolation as error:
            assert error.diag.constraint_name == "counter_pkey"
        check_types(connections[4])
        with connections[5].cursor() as cursor:
            with cursor.copy("COPY counter FROM STDIN") as copy:
                copy.write("100\t1\n101\t1\n")
        check_cancel(connections[6])
        # Settings that PgBouncer follows, since the server tells them.
        connections[7].execute("SET application_name = 'seven'")
        for connection, name in [(connections[8], "client8"), (connections[7], "seven")]:
            told = connection.execute("SHOW application_name").fetchone()
            assert told == (name,), (told, name)
        for connection in connections:
            connection.close()
        check_pgbench(conninfo)
        check_console(conninfo)


def check_pgbench(conninfo):
    modes = ["simple", "extended", *(["prepared"] if FOLLOWS_STATEMENTS else [])]
    subprocess.run(["pgbench", "--quiet", "-i", "-s", "1", conninfo], check=True, capture_output=True)
    for mode in modes:
        # Rows that all of them change: what is refused for that is tried again.
        command = ["pgbench", "-n", "-M", mode, "-c", "12", "-j", "2", "-t", "25", "--max-tries=0", "--latency-limit=60000", conninfo]
        told = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "number of transactions actually processed: 300/300" in told.stdout, told.stdout + told.stderr
    with psycopg.connect(conninfo, prepare_threshold=None) as connection:
        (history,) = connection.execute("SELECT count(*) FROM pgbench_history").fetchone()
        sums = connection.execute(
            "SELECT (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(delta) FROM pgbench_history)"
        ).fetchone()
    assert history == 300 * len(modes) and len(set(sums)) == 1, (history, sums)


def check_console(conninfo):
    """What it says of the server is what the server has told it."""
    assert any("cognate" in row for row in console(conninfo, "SHOW POOLS"))
    assert console(conninfo, "SHOW SERVERS")
    for command in ["PAUSE", "RESUME", "RECONNECT", "RELOAD"]:
        console(conninfo, command)
    with psycopg.connect(conninfo, prepare_threshold=None) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def check_passwords():
    """SCRAM between client and PgBouncer, and between PgBouncer and server."""
    with tempfile.TemporaryDirectory(prefix="cognate-pgbouncer-") as folder:
        with open(f"{folder}/password", "w") as file:
            file.write("secret\n")
        command = [os.environ["COGNATE"], "serve", "--data", f"{folder}/data", "--listen", "127.0.0.1:0", "--http", "off"]
        command += ["--log", "error", "--password-file", f"{folder}/password"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            port = re.search(r"-p (\d+)", server.stdout.readline()).group(1)
            users = {"cognate": "secret", "admin": ""}
            with bouncer(f"host=127.0.0.1 port={port}", users, auth_type="scram-sha-256", pool_mode="transaction") as conninfo:
                with psycopg.connect(conninfo, prepare_threshold=None) as connection:
                    check_types(connection)
                try:
                    psycopg.connect(re.sub(r"password=.*", "password=wrong", conninfo))
                    raise AssertionError("a wrong password is right")
                except psycopg.OperationalError as error:
                    assert "password" in str(error) or "SASL" in str(error), error
        finally:
            server.terminate()
            server.wait()


SERVER = f"host={os.environ['PGHOST']} port={os.environ['PGPORT']}"
check_sessions(SERVER)
check_transactions(SERVER)
check_passwords()
