"""Hundreds of transactions in one pipeline, rows that others hold, and an error in the middle."""

import threading

import psycopg

with psycopg.connect(autocommit=True) as connection:
    connection.execute("CREATE TABLE item (id int PRIMARY KEY, n int NOT NULL)")

    # Each statement is a transaction of its own.
    with connection.pipeline() as pipeline:
        for id in range(500):
            connection.execute("INSERT INTO item VALUES (%s, 0)", (id,))
            pipeline.sync()
    assert connection.execute("SELECT count(*) FROM item").fetchone() == (500,)

    # Blocks, each with several statements, none of which waits for the answer of the one before.
    with connection.pipeline():
        for id in range(500, 800):
            with connection.transaction():
                connection.execute("INSERT INTO item VALUES (%s, 0)", (id,))
                connection.execute("UPDATE item SET n = n + 1 WHERE id = %s", (id,))
    assert connection.execute("SELECT count(*), sum(n) FROM item").fetchone() == (800, 300)

    with connection.pipeline():
        cursor = connection.cursor()
        cursor.executemany("UPDATE item SET n = n + 1 WHERE id = %s", [(id,) for id in range(800)])
    assert connection.execute("SELECT sum(n) FROM item").fetchone() == (1100,)

    # What follows an error up to the next sync is refused; what follows that is not.
    try:
        with connection.pipeline() as pipeline:
            connection.execute("SELECT 1/0")
            refused = connection.execute("INSERT INTO item VALUES (1000, 0)")
            pipeline.sync()
    except psycopg.errors.DivisionByZero:
        pass
    else:
        raise AssertionError("1/0 has a result")
    assert connection.execute("SELECT count(*) FROM item").fetchone() == (800,)


def count_up() -> None:
    with psycopg.connect(autocommit=True) as connection:
        for _ in range(50):
            with connection.pipeline(), connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                connection.execute("UPDATE item SET n = n + 1 WHERE id = 0")
                connection.execute("SELECT n FROM item WHERE id = 0")


# Statements arrive while one before them waits for its row.
threads = [threading.Thread(target=count_up) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with psycopg.connect() as connection:
    assert connection.execute("SELECT n FROM item WHERE id = 0").fetchone() == (201,)
