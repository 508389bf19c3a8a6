"""COPY in binary format, with set_types and without, and what domains are to a driver."""

import datetime
import decimal
import uuid

import psycopg

TYPES = ["int8", "text", "numeric", "timestamptz", "uuid", "bytea", "float8", "bool", "date", "int4[]"]
NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
ROWS = [
    (1, "one", decimal.Decimal("1.50"), NOON, uuid.UUID(int=7), b"\0\xff", 1.5, True, NOON.date(), [1, None, 3]),
    (2, None, decimal.Decimal("-1e-7"), None, None, b"", float("inf"), False, None, []),
]

with psycopg.connect(autocommit=True) as connection:
    columns = ", ".join(f"c{place} {ty}" for place, ty in enumerate(TYPES))
    connection.execute(f"CREATE TABLE thing ({columns})")
    cursor = connection.cursor()
    with cursor.copy("COPY thing FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(TYPES)
        for row in ROWS * 500:
            copy.write_row(row)
    assert cursor.rowcount == 1000
    with cursor.copy("COPY (SELECT * FROM thing ORDER BY c0 LIMIT 1) TO STDOUT (FORMAT BINARY)") as copy:
        copy.set_types(TYPES)
        assert list(copy.rows()) == [ROWS[0]]
    with cursor.copy("COPY thing TO STDOUT (FORMAT BINARY)") as copy:
        data = b"".join(copy)
    connection.execute("TRUNCATE thing")
    with cursor.copy("COPY thing FROM STDIN (FORMAT BINARY)") as copy:
        for at in range(0, len(data), 997):
            copy.write(data[at : at + 997])
    assert connection.execute("SELECT count(*), sum(c0) FROM thing").fetchone() == (1000, 1500)

    # A value of another size than its column's is refused, and nothing stays.
    try:
        with cursor.copy("COPY thing (c0) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int4"])
            copy.write_row((3,))
    except psycopg.errors.ProtocolViolation as error:
        assert error.diag.context == "COPY thing, line 1, column c0", error.diag.context
    else:
        raise AssertionError("four bytes are no int8")
    assert connection.execute("SELECT count(*) FROM thing WHERE c0 = 3").fetchone() == (0,)

    # A domain's values are read as those of the type under it.
    connection.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    connection.execute("CREATE TABLE held (n positive, d date)")
    cursor.execute("INSERT INTO held VALUES (%s, %s) RETURNING n", (5, NOON.date()))
    assert cursor.description[0].type_code == 23 and cursor.fetchone() == (5,)
    for send in (
        lambda: connection.execute("INSERT INTO held VALUES (%s, NULL)", (-5,)),
        lambda: connection.execute("INSERT INTO held VALUES (%b, NULL)", (-5,)),
        lambda: connection.execute("SELECT %s::positive", (-5,)),
    ):
        try:
            send()
        except psycopg.errors.CheckViolation as error:
            assert (error.diag.datatype_name, error.diag.constraint_name) == ("positive", "positive_check")
        else:
            raise AssertionError("-5 is positive")
