"""Errors with their fields, transactions that are tried again, cancelling, streams, named cursors
with parameters, and notifications."""

import threading

import psycopg
from psycopg import errors

with psycopg.connect(autocommit=True) as connection:
    connection.execute("CREATE TABLE client (id int PRIMARY KEY)")
    connection.execute(
        """CREATE TABLE account (id int PRIMARY KEY, client int CONSTRAINT of_client REFERENCES client,
            name text NOT NULL CONSTRAINT one_name UNIQUE, balance int CONSTRAINT not_less CHECK (balance >= 0))"""
    )
    connection.execute("INSERT INTO client VALUES (1)")
    connection.execute("INSERT INTO account VALUES (1, 1, 'a', 0)")
    for row, kind, field, value in (
        ((2, 1, "a", 0), errors.UniqueViolation, "constraint_name", "one_name"),
        ((2, 9, "b", 0), errors.ForeignKeyViolation, "constraint_name", "of_client"),
        ((2, 1, "b", -1), errors.CheckViolation, "constraint_name", "not_less"),
        ((2, 1, None, 0), errors.NotNullViolation, "column_name", "name"),
    ):
        try:
            connection.execute("INSERT INTO account VALUES (%s, %s, %s, %s)", row)
        except kind as error:
            told = (error.diag.schema_name, error.diag.table_name, getattr(error.diag, field))
            assert told == ("public", "account", value), told
        else:
            raise AssertionError(f"{row} was accepted")


def deposit() -> None:
    with psycopg.connect() as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        for _ in range(10):
            while True:
                try:
                    with connection.transaction():
                        (balance,) = connection.execute("SELECT balance FROM account WHERE id = 1").fetchone()
                        connection.execute("UPDATE account SET balance = %s WHERE id = 1", (balance + 1,))
                    break
                except (errors.SerializationFailure, errors.DeadlockDetected):
                    pass


threads = [threading.Thread(target=deposit) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

with psycopg.connect(autocommit=True) as connection, psycopg.connect(autocommit=True) as other:
    assert connection.execute("SELECT balance FROM account WHERE id = 1").fetchone() == (40,)

    sleeps = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND query LIKE '%%pg_sleep%%'"

    def cancel() -> None:
        while not other.execute(sleeps, (connection.info.backend_pid,)).fetchone():
            pass
        connection.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        connection.execute("SELECT pg_sleep(60)")
    except errors.QueryCanceled:
        pass
    else:
        raise AssertionError("it has slept for a minute")
    thread.join()

    with connection.transaction(), connection.cursor("few") as cursor:
        cursor.execute("SELECT n FROM generate_series(%s::int, %s::int) n", (1, 1000))
        assert sum(n for (n,) in cursor) == 500500
    rows = connection.cursor().stream("SELECT n FROM generate_series(1, %s::int) n", (1000,))
    assert sum(n for (n,) in rows) == 500500

    connection.execute("LISTEN news")
    with other.transaction():
        other.execute("SELECT pg_notify('news', 'taken back')")
        raise psycopg.Rollback()
    other.execute("SELECT pg_notify('news', %s)", ("hello",))
    heard = next(connection.notifies())
    assert (heard.channel, heard.payload, heard.pid) == ("news", "hello", other.info.backend_pid), heard
