"""Records to a table and back, always in binary format; domains as columns, parameters and casts."""

import asyncio
import datetime
import decimal
import io
import uuid

import asyncpg

NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
RECORDS = [
    (1, "one", decimal.Decimal("1.50"), NOON, uuid.UUID(int=7), b"\0\xff", '{"a": 1}', [1, None, 3], "ok"),
    (2, None, None, None, None, None, None, None, None),
]


async def main() -> None:
    connection = await asyncpg.connect()
    await connection.execute(
        """CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE TABLE thing (id int8 PRIMARY KEY, t text, n numeric, w timestamptz, u uuid, b bytea, j jsonb,
            a int4[], m mood)"""
    )
    records = [(place, *record[1:]) for place, record in enumerate(RECORDS * 500)]
    assert await connection.copy_records_to_table("thing", records=records) == "COPY 1000"
    rows = await connection.fetch("SELECT * FROM thing ORDER BY id")
    assert [tuple(row) for row in rows] == records

    # What it reads of one table goes into another, in binary and as text.
    for format in ("binary", "text"):
        data = io.BytesIO()
        assert await connection.copy_from_table("thing", output=data, format=format) == "COPY 1000"
        await connection.execute("CREATE TABLE other (LIKE thing)")
        data.seek(0)
        assert await connection.copy_to_table("other", source=data, format=format) == "COPY 1000"
        assert await connection.fetchval("SELECT count(*) FROM (TABLE thing EXCEPT TABLE other) x") == 0
        await connection.execute("DROP TABLE other")
    data = io.BytesIO()
    await connection.copy_from_query("SELECT id FROM thing WHERE id < $1", 3, output=data, format="binary")
    assert len(data.getvalue()) == 19 + 3 * (2 + 4 + 8) + 2

    try:
        await connection.copy_records_to_table("thing", records=[(5000, *RECORDS[1][1:]), records[0]])
    except asyncpg.UniqueViolationError as error:
        assert error.constraint_name == "thing_pkey"
    else:
        raise AssertionError("a key is there twice")
    assert await connection.fetchval("SELECT max(id) FROM thing") == 999

    await connection.execute(
        """CREATE DOMAIN positive AS int CHECK (VALUE > 0);
        CREATE DOMAIN even AS positive CONSTRAINT even CHECK (VALUE % 2 = 0);
        CREATE TABLE held (n even, ns positive[])"""
    )
    await connection.execute("INSERT INTO held VALUES ($1, $2)", 4, [1, 2])
    row = await connection.fetchrow("SELECT n, ns, n + 1 AS m FROM held")
    assert tuple(row) == (4, [1, 2], 5)
    assert await connection.copy_records_to_table("held", records=[(6, [3]), (None, None)]) == "COPY 2"
    statement = await connection.prepare("INSERT INTO held (n) VALUES ($1)")
    oid = await connection.fetchval("SELECT 'even'::regtype::oid")
    assert statement.get_parameters()[0].oid == oid
    for send in (
        statement.fetch(3),
        connection.fetchval("SELECT $1::even", 3),
        connection.copy_records_to_table("held", records=[(3, None)]),
    ):
        try:
            await send
        except asyncpg.CheckViolationError as error:
            assert (error.data_type_name, error.constraint_name) == ("even", "even")
        else:
            raise AssertionError("3 is even")
    await connection.close()


asyncio.run(main())
