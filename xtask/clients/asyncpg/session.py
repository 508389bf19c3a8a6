"""Types in binary and in text, errors with their fields, transactions that are tried again,
cancelling, cursors, prepared statements, batches and notifications."""

import asyncio
import datetime
import decimal
import ipaddress
import uuid

import asyncpg

DAY = datetime.date(2024, 2, 29)
HOUR = datetime.time(23, 59, 59, 123456)
# Each type's value as Python has it, and as the server writes it.
VALUES = [
    ("bool", True, "true"),
    ("int2", -7, "-7"),
    ("int4", -(2**31), "-2147483648"),
    ("int8", 2**63 - 1, "9223372036854775807"),
    ("float4", 1.5, "1.5"),
    ("float8", -0.1, "-0.1"),
    ("numeric", decimal.Decimal("-12345.6700"), "-12345.6700"),
    ("text", "it's \"quoted\" ü", "it's \"quoted\" ü"),
    ("varchar(20)", "", ""),
    ("char(4)", "ab  ", "ab"),
    ("bytea", b"\0\1\xfe\xff", "\\x0001feff"),
    ("date", DAY, "2024-02-29"),
    ("time", HOUR, "23:59:59.123456"),
    ("timestamp", datetime.datetime.combine(DAY, HOUR), "2024-02-29 23:59:59.123456"),
    ("timestamptz", datetime.datetime.combine(DAY, HOUR, datetime.timezone.utc), "2024-02-29 23:59:59.123456+00"),
    ("interval", datetime.timedelta(days=3, seconds=4, microseconds=5006), "3 days 00:00:04.005006"),
    ("uuid", uuid.UUID(int=0x00112233445566778899AABBCCDDEEFF), "00112233-4455-6677-8899-aabbccddeeff"),
    ("json", '{"a":[1,null]}', '{"a":[1,null]}'),
    ("jsonb", '{"a": [1, null]}', '{"a": [1, null]}'),
    ("inet", ipaddress.ip_address("10.0.0.1"), "10.0.0.1/32"),
    ("int4[]", [[1, None], [3, 4]], "{{1,NULL},{3,4}}"),
    ("text[]", ["a,b", None, '"'], '{"a,b",NULL,"\\""}'),
    ("temper", "ok", "ok"),
    ("temper[]", ["sad", "ok"], "{sad,ok}"),
]


async def types(connection: asyncpg.Connection) -> None:
    """All types as parameters, in a table and in answers; NULL of each; in text where a codec says so."""
    await connection.execute("CREATE TYPE temper AS ENUM ('sad', 'ok')")
    columns = [f"c{place} {name}" for place, (name, _, _) in enumerate(VALUES)]
    await connection.execute(f"CREATE TABLE kinds (id int PRIMARY KEY, {', '.join(columns)})")
    places = ", ".join(f"${place + 2}" for place in range(len(VALUES)))
    insert = f"INSERT INTO kinds VALUES ($1, {places})"
    values = [value for _, value, _ in VALUES]
    await connection.execute(insert, 1, *values)
    await connection.execute(insert, 2, *[None] * len(values))
    first, second = await connection.fetch("SELECT * FROM kinds ORDER BY id")
    assert list(first)[1:] == values, first
    assert list(second)[1:] == [None] * len(values), second
    texts = ", ".join(f"c{place}::text" for place in range(len(VALUES)))
    written = await connection.fetchrow(f"SELECT {texts} FROM kinds WHERE id = 1")
    assert list(written) == [text for _, _, text in VALUES], written
    assert tuple(await connection.fetchval("SELECT (1, 'x'::text, NULL::int)")) == (1, "x", None)

    # One column after the other in the text format, both ways.
    for place, (name, _, text) in enumerate(VALUES):
        if name in ("float8", "numeric", "bytea", "date", "time", "timestamp", "timestamptz", "interval", "uuid", "jsonb"):
            await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=str, format="text")
            assert await connection.fetchval(f"SELECT c{place} FROM kinds WHERE id = 1") == text, name
            assert await connection.fetchval(f"SELECT id FROM kinds WHERE c{place} = $1", text) == 1, name
            await connection.reset_type_codec(name, schema="pg_catalog")


async def errors(connection: asyncpg.Connection) -> None:
    """Each constraint's error with its fields."""
    await connection.execute(
        """CREATE TABLE client (id int PRIMARY KEY);
        CREATE TABLE account (id int PRIMARY KEY, client int CONSTRAINT of_client REFERENCES client,
            name text NOT NULL CONSTRAINT one_name UNIQUE, balance int CONSTRAINT not_less CHECK (balance >= 0));
        INSERT INTO client VALUES (1);
        INSERT INTO account VALUES (1, 1, 'a', 0)"""
    )
    for row, kind, constraint, column, detail in (
        ((2, 1, "a", 0), asyncpg.UniqueViolationError, "one_name", None, "Key (name)=(a) already exists."),
        ((2, 9, "b", 0), asyncpg.ForeignKeyViolationError, "of_client", None, 'Key (client)=(9) is not present in table "client".'),
        ((2, 1, "b", -1), asyncpg.CheckViolationError, "not_less", None, "Failing row contains (2, 1, b, -1)."),
        ((2, 1, None, 0), asyncpg.NotNullViolationError, None, "name", "Failing row contains (2, 1, null, 0)."),
    ):
        try:
            await connection.execute("INSERT INTO account VALUES ($1, $2, $3, $4)", *row)
        except kind as error:
            told = (error.schema_name, error.table_name, error.constraint_name, error.column_name, error.detail)
            assert told == ("public", "account", constraint, column, detail), told
        else:
            raise AssertionError(f"{row} was accepted")
    try:
        await connection.fetch("SELECT nothing FROM account")
    except asyncpg.UndefinedColumnError as error:
        assert (error.severity, error.position) == ("ERROR", "8"), error
    else:
        raise AssertionError("there is a column called nothing")


async def transactions(connection: asyncpg.Connection) -> None:
    """A savepoint that goes back, a transaction that does, and what follows an error in one."""
    async with connection.transaction():
        await connection.execute("UPDATE account SET balance = 7")
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO account VALUES (1, 1, 'again', 0)")
        except asyncpg.UniqueViolationError:
            pass
        assert await connection.fetchval("SELECT balance FROM account") == 7
    transaction = connection.transaction(isolation="repeatable_read", readonly=True)
    await transaction.start()
    try:
        await connection.execute("UPDATE account SET balance = 8")
    except asyncpg.ReadOnlySQLTransactionError:
        pass
    else:
        raise AssertionError("a read-only transaction has written")
    try:
        await connection.execute("SELECT 1")
    except asyncpg.InFailedSQLTransactionError:
        pass
    else:
        raise AssertionError("a failed transaction goes on")
    await transaction.rollback()
    assert await connection.fetchval("SELECT balance FROM account") == 7
    await connection.execute("UPDATE account SET balance = 0")


async def deposit() -> None:
    connection = await asyncpg.connect()
    for _ in range(10):
        while True:
            try:
                async with connection.transaction(isolation="serializable"):
                    balance = await connection.fetchval("SELECT balance FROM account WHERE id = 1")
                    await connection.execute("UPDATE account SET balance = $1 WHERE id = 1", balance + 1)
                break
            except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
                pass
    await connection.close()


async def retries(connection: asyncpg.Connection) -> None:
    """Transactions that meet each other run again until all of them have counted."""
    await asyncio.gather(*(deposit() for _ in range(4)))
    assert await connection.fetchval("SELECT balance FROM account WHERE id = 1") == 40


async def cancels(connection: asyncpg.Connection) -> None:
    """A time limit and a task that is cancelled send cancel requests; and one comes from another session."""
    try:
        await connection.execute("SELECT pg_sleep(60)", timeout=0.5)
    except asyncio.TimeoutError:
        pass
    else:
        raise AssertionError("it has slept for a minute")
    assert await connection.fetchval("SELECT 1") == 1

    other = await asyncpg.connect()
    process = connection.get_server_pid()
    sleeps = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND query LIKE '%pg_sleep%'"

    async def sleep() -> asyncio.Task:
        task = asyncio.create_task(connection.execute("SELECT pg_sleep(60)"))
        while not await other.fetchval(sleeps, process):
            pass
        return task

    task = await sleep()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    else:
        raise AssertionError("it has slept for a minute")
    assert await connection.fetchval("SELECT 2") == 2

    task = await sleep()
    assert await other.fetchval("SELECT pg_cancel_backend($1)", process) is True
    try:
        await task
    except asyncpg.QueryCanceledError as error:
        assert error.sqlstate == "57014"
    else:
        raise AssertionError("it has slept for a minute")
    assert await connection.fetchval("SELECT 3") == 3
    await other.close()


async def streams(connection: asyncpg.Connection) -> None:
    """Rows by a cursor, a few at a time: as an iterator, and as somebody asks for them."""
    series = "SELECT n FROM generate_series(1, $1::int) n"
    async with connection.transaction():
        total = 0
        async for row in connection.cursor(series, 10_000, prefetch=100):
            total += row["n"]
        assert total == 50_005_000
        cursor = await connection.cursor(series, 10)
        assert [row["n"] for row in await cursor.fetch(3)] == [1, 2, 3]
        assert (await cursor.fetchrow())["n"] == 4
        assert [row["n"] for row in await cursor.fetch(100)] == [5, 6, 7, 8, 9, 10]
        assert await cursor.fetch(1) == []
        cursor = await connection.cursor(series, 10)
        assert await cursor.forward(4) == 4
        assert [row["n"] for row in await cursor.fetch(2)] == [5, 6]


async def prepared(connection: asyncpg.Connection) -> None:
    """What a prepared statement tells of itself, and what it answers again and again."""
    statement = await connection.prepare("SELECT id, name FROM account WHERE balance >= $1 AND name <> $2")
    assert [parameter.name for parameter in statement.get_parameters()] == ["int4", "text"]
    assert [(column.name, column.type.name) for column in statement.get_attributes()] == [("id", "int4"), ("name", "text")]
    for _ in range(10):
        assert [tuple(row) for row in await statement.fetch(0, "b")] == [(1, "a")]
    assert statement.get_statusmsg() == "SELECT 1"
    assert await statement.fetchval(1_000_000, "b") is None


async def changed(connection: asyncpg.Connection) -> None:
    """A statement whose columns another session has changed is prepared anew by the client itself."""
    await connection.execute("CREATE TABLE changing (id int PRIMARY KEY, n int); INSERT INTO changing VALUES (1, 10)")
    query = "SELECT * FROM changing WHERE id = $1"
    assert [tuple(row) for row in await connection.fetch(query, 1)] == [(1, 10)]
    other = await asyncpg.connect()
    await other.execute("ALTER TABLE changing ADD COLUMN more text DEFAULT 'm'")
    assert [tuple(row) for row in await connection.fetch(query, 1)] == [(1, 10, "m")]
    await other.close()


async def batches(connection: asyncpg.Connection) -> None:
    """Many executions of a statement go out before the first answer comes, and count all or none."""
    await connection.execute("CREATE TABLE item (id int PRIMARY KEY, n int NOT NULL)")
    insert = "INSERT INTO item VALUES ($1, $2)"
    await connection.executemany(insert, [(number, 0) for number in range(1000)])
    try:
        await connection.executemany(insert, [(number, 0) for number in range(1500, 500, -1)])
    except asyncpg.UniqueViolationError as error:
        assert error.constraint_name == "item_pkey"
    else:
        raise AssertionError("a key is there twice")
    assert await connection.fetchval("SELECT count(*) FROM item") == 1000
    rows = await connection.fetchmany("UPDATE item SET n = n + $1 WHERE id = $2 RETURNING id, n", [(5, 3), (1, 3), (2, 7)])
    assert [tuple(row) for row in rows] == [(3, 5), (3, 6), (7, 2)], rows


async def notifications(connection: asyncpg.Connection) -> None:
    """What another session tells when it commits, and nothing of what it takes back."""
    heard = asyncio.Queue()
    await connection.add_listener("news", lambda *told: heard.put_nowait(told[1:]))
    other = await asyncpg.connect()
    transaction = other.transaction()
    await transaction.start()
    await other.execute("SELECT pg_notify('news', 'taken back')")
    await transaction.rollback()
    await other.execute("SELECT pg_notify('news', $1)", "hello")
    assert await asyncio.wait_for(heard.get(), 60) == (other.get_server_pid(), "news", "hello")
    assert heard.empty()
    await other.close()


async def main() -> None:
    connection = await asyncpg.connect(server_settings={"timezone": "UTC"})
    for check in (types, errors, transactions, retries, cancels, streams, prepared, changed, batches, notifications):
        await check(connection)
    await connection.close()


asyncio.run(main())
