"""Values of all types there and back, NULL of each: as parameters and as answers, both in text and in binary."""

import datetime
import decimal
import ipaddress
import uuid

import psycopg
from psycopg.types.json import Json, Jsonb

NOON = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)
# Each type's value as a parameter; where it comes back as another one, that, too.
VALUES = [
    ("bool", True),
    ("int2", -7),
    ("int4", -(2**31)),
    ("int8", 2**63 - 1),
    ("float4", 1.5),
    ("float8", -0.1),
    ("numeric", decimal.Decimal("-12345.6700")),
    ("text", "it's \"quoted\" \\ ü"),
    ("varchar(20)", ""),
    ("char(4)", "ab  "),
    ("bytea", bytes(range(256))),
    ("date", NOON.date()),
    ("time", NOON.time()),
    ("timestamp", NOON),
    ("timestamptz", NOON.replace(tzinfo=datetime.timezone.utc)),
    ("interval", datetime.timedelta(days=3, seconds=4, microseconds=5006)),
    ("uuid", uuid.UUID(int=0x00112233445566778899AABBCCDDEEFF)),
    ("inet", ipaddress.ip_address("10.0.0.1")),
    ("json", Json({"a": [1, None]}), {"a": [1, None]}),
    ("jsonb", Jsonb({"a": [1, None]}), {"a": [1, None]}),
    ("int4[]", [100000, None, -3]),
    ("text[]", ["a,b", None, '"', "NULL"]),
    ("temper", "ok"),
]

# Nothing is prepared: the same texts find a table with another type each time.
with psycopg.connect(autocommit=True, prepare_threshold=None) as connection:
    connection.execute("CREATE TYPE temper AS ENUM ('sad', 'ok')")
    for name, value, *back in VALUES:
        wanted = back[0] if back else value
        connection.execute("DROP TABLE IF EXISTS kind")
        connection.execute(f"CREATE TABLE kind (number int GENERATED ALWAYS AS IDENTITY, value {name})")
        for format in ("%s", "%t", "%b"):
            connection.execute(f"INSERT INTO kind (value) VALUES (CAST({format} AS {name}))", (value,))
        connection.execute("INSERT INTO kind (value) VALUES (%s)", (None,))
        for binary in (False, True):
            with connection.cursor(binary=binary) as cursor:
                rows = cursor.execute("SELECT value FROM kind ORDER BY number").fetchall()
            # A type that psycopg was not told of comes as it is sent.
            told = wanted.encode() if binary and name == "temper" else wanted
            assert rows == [(told,)] * 3 + [(None,)], (name, binary, rows)
