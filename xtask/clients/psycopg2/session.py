"""Types there and back, errors with their fields, transactions that are tried again, cancelling,
named cursors, COPY, many rows by one statement, and notifications."""

import datetime
import decimal
import io
import select
import threading

import psycopg2
import psycopg2.extras
from psycopg2 import errors, extensions

NOON = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)
# Each type's value as a parameter, and as it comes back.
VALUES = [
    ("bool", True),
    ("int2", -7),
    ("int4", -(2**31)),
    ("int8", 2**63 - 1),
    ("float4", 1.5),
    ("float8", -0.1),
    ("numeric", decimal.Decimal("-12345.6700")),
    ("text", "it's \"quoted\" \\ ü"),
    ("char(4)", "ab  "),
    ("date", NOON.date()),
    ("time", NOON.time()),
    ("timestamp", NOON),
    ("timestamptz", NOON.replace(tzinfo=datetime.timezone.utc)),
    ("interval", datetime.timedelta(days=3, seconds=4, microseconds=5006)),
    ("uuid", "00112233-4455-6677-8899-aabbccddeeff"),
    ("inet", "10.0.0.1"),
    ("int4[]", [3, None, -1]),
    ("text[]", ["a,b", None, '"']),
    ("temper", "ok"),
]


def connect(autocommit: bool = True) -> extensions.connection:
    connection = psycopg2.connect("", options="-c timezone=UTC")
    connection.autocommit = autocommit
    return connection


def types(cursor: extensions.cursor) -> None:
    """All types as parameters and as answers, NULL of each; binary strings; JSON."""
    cursor.execute("CREATE TYPE temper AS ENUM ('sad', 'ok')")
    for name, value in VALUES:
        cursor.execute("DROP TABLE IF EXISTS kind")
        cursor.execute(f"CREATE TABLE kind (value {name}, number int)")
        cursor.execute(f"INSERT INTO kind VALUES (CAST(%s AS {name}), 1), (%s, 2)", (value, None))
        cursor.execute("SELECT value FROM kind ORDER BY number")
        assert cursor.fetchall() == [(value,), (None,)], name
    cursor.execute("SELECT %s::bytea", (psycopg2.Binary(b"\0\1\xfe\xff"),))
    assert bytes(cursor.fetchone()[0]) == b"\0\1\xfe\xff"
    cursor.execute("SELECT %s::jsonb, %s::json", (psycopg2.extras.Json({"a": [1, None]}), psycopg2.extras.Json(["two"])))
    assert cursor.fetchone() == ({"a": [1, None]}, ["two"])
    cursor.execute("SELECT 1::int8 AS a, 'x'::varchar(5) AS b")
    assert [(column.name, column.type_code) for column in cursor.description] == [("a", 20), ("b", 1043)]


def constraints(cursor: extensions.cursor) -> None:
    """Each constraint's error with its fields."""
    cursor.execute("CREATE TABLE client (id int PRIMARY KEY)")
    cursor.execute(
        """CREATE TABLE account (id int PRIMARY KEY, client int CONSTRAINT of_client REFERENCES client,
            name text NOT NULL CONSTRAINT one_name UNIQUE, balance int CONSTRAINT not_less CHECK (balance >= 0))"""
    )
    cursor.execute("INSERT INTO client VALUES (1)")
    cursor.execute("INSERT INTO account VALUES (1, 1, 'a', 0)")
    for row, kind, constraint, column, detail in (
        ((2, 1, "a", 0), errors.UniqueViolation, "one_name", None, "Key (name)=(a) already exists."),
        ((2, 9, "b", 0), errors.ForeignKeyViolation, "of_client", None, 'Key (client)=(9) is not present in table "client".'),
        ((2, 1, "b", -1), errors.CheckViolation, "not_less", None, "Failing row contains (2, 1, b, -1)."),
        ((2, 1, None, 0), errors.NotNullViolation, None, "name", "Failing row contains (2, 1, null, 0)."),
    ):
        try:
            cursor.execute("INSERT INTO account VALUES (%s, %s, %s, %s)", row)
        except kind as error:
            diag = error.diag
            told = (diag.schema_name, diag.table_name, diag.constraint_name, diag.column_name, diag.message_detail)
            assert told == ("public", "account", constraint, column, detail), told
            assert (diag.severity, diag.sqlstate) == ("ERROR", error.pgcode)
        else:
            raise AssertionError(f"{row} was accepted")
    try:
        cursor.execute("SELECT nothing FROM account")
    except errors.UndefinedColumn as error:
        assert error.diag.statement_position == "8"
    else:
        raise AssertionError("there is a column called nothing")


def deposit() -> None:
    connection = connect(autocommit=False)
    connection.isolation_level = extensions.ISOLATION_LEVEL_SERIALIZABLE
    cursor = connection.cursor()
    for _ in range(10):
        while True:
            try:
                cursor.execute("SELECT balance FROM account WHERE id = 1")
                (balance,) = cursor.fetchone()
                cursor.execute("UPDATE account SET balance = %s WHERE id = 1", (balance + 1,))
                connection.commit()
                break
            except extensions.TransactionRollbackError as error:
                assert error.pgcode in ("40001", "40P01"), error
                connection.rollback()
    connection.close()


def retries(cursor: extensions.cursor) -> None:
    """Transactions that meet each other run again until all of them have counted."""
    threads = [threading.Thread(target=deposit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cursor.execute("SELECT balance FROM account WHERE id = 1")
    assert cursor.fetchone() == (40,)


def cancels(cursor: extensions.cursor) -> None:
    """A cancel request on a connection of its own, once the statement is there; a time limit."""
    connection, other = cursor.connection, connect()
    sleeps = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND query LIKE '%%pg_sleep%%'"

    def cancel() -> None:
        watching = other.cursor()
        while True:
            watching.execute(sleeps, (connection.info.backend_pid,))
            if watching.fetchone():
                break
        connection.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    for limit in (None, "200ms"):
        if limit:
            cursor.execute("SET statement_timeout = %s", (limit,))
        try:
            cursor.execute("SELECT pg_sleep(60)")
        except extensions.QueryCanceledError as error:
            assert error.pgcode == "57014"
        else:
            raise AssertionError("it has slept for a minute")
        thread.join()
    cursor.execute("RESET statement_timeout")
    other.close()


def cursors() -> None:
    """Rows of a named cursor some at a time; one that goes backwards, and one that outlives its transaction."""
    connection = connect(autocommit=False)
    with connection.cursor("few") as cursor:
        cursor.itersize = 100
        cursor.execute("SELECT n FROM generate_series(%s::int, %s::int) n", (1, 1000))
        assert sum(n for (n,) in cursor) == 500500
    with connection.cursor("scrolled", scrollable=True) as cursor:
        cursor.execute("SELECT n FROM generate_series(1, 10) n")
        assert cursor.fetchmany(3) == [(1,), (2,), (3,)]
        cursor.scroll(-2)
        assert cursor.fetchone() == (2,)
        cursor.scroll(9, mode="absolute")
        assert cursor.fetchall() == [(10,)]
    with connection.cursor("held", withhold=True) as cursor:
        cursor.execute("SELECT n FROM generate_series(1, 10) n")
        assert cursor.fetchone() == (1,)
        connection.commit()
        assert len(cursor.fetchall()) == 9
    connection.close()


def copies(cursor: extensions.cursor) -> None:
    """COPY in three formats there and back, one that is refused, and rows by execute_values."""
    cursor.execute("CREATE TABLE item (id int PRIMARY KEY, name text)")
    rows = "".join(f"{number}\tname {number}\n" for number in range(1000))
    cursor.copy_expert("COPY item FROM STDIN", io.StringIO(rows))
    assert cursor.rowcount == 1000
    out = io.StringIO()
    cursor.copy_expert("COPY (SELECT * FROM item ORDER BY id) TO STDOUT", out)
    assert out.getvalue() == rows
    for format in ("text", "csv", "binary"):
        data = io.BytesIO()
        cursor.copy_expert(f"COPY item TO STDOUT (FORMAT {format})", data)
        cursor.execute("CREATE TABLE other (LIKE item)")
        data.seek(0)
        cursor.copy_expert(f"COPY other FROM STDIN (FORMAT {format})", data)
        cursor.execute("SELECT count(*) FROM item JOIN other USING (id, name)")
        assert cursor.fetchone() == (1000,), format
        cursor.execute("DROP TABLE other")
    try:
        cursor.copy_expert("COPY item FROM STDIN", io.StringIO("2000\tnew\n1\tthere already\n"))
    except errors.UniqueViolation as error:
        assert error.diag.constraint_name == "item_pkey"
    else:
        raise AssertionError("a key is there twice")
    insert = "INSERT INTO item VALUES %s RETURNING id"
    returned = psycopg2.extras.execute_values(cursor, insert, [(number, None) for number in range(3000, 3250)], fetch=True)
    assert [number for (number,) in returned] == list(range(3000, 3250))
    cursor.execute("SELECT count(*) FROM item")
    assert cursor.fetchone() == (1250,)


def notifications(cursor: extensions.cursor) -> None:
    """What another session tells when it commits, and nothing of what it takes back."""
    connection, other = cursor.connection, connect(autocommit=False)
    cursor.execute("LISTEN news")
    telling = other.cursor()
    telling.execute("SELECT pg_notify('news', 'taken back')")
    other.rollback()
    telling.execute("SELECT pg_notify('news', %s)", ("hello",))
    other.commit()
    while not connection.notifies:
        assert select.select([connection], [], [], 60)[0], "nothing was heard"
        connection.poll()
    heard = [(notify.channel, notify.payload, notify.pid) for notify in connection.notifies]
    assert heard == [("news", "hello", other.info.backend_pid)], heard
    other.close()


def main() -> None:
    connection = connect()
    cursor = connection.cursor()
    for check in (types, constraints, retries, cancels, copies, notifications):
        check(cursor)
    cursors()
    connection.close()


main()
