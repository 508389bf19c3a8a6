"""Purchases over three databases, each a workflow of DBOS; the clients are threads.

    purchase.py PROCESS CLIENTS ITEMS PRICE SHOP STOCK PAYMENT SYSTEM

PROCESS is the number of this process among several, the last four are URLs of databases, SYSTEM that of DBOS' own tables.
It says when it is ready, and then, for each line "WARMUP MEASURED SEED" (milliseconds) on its standard input, what its
clients did.

A workflow has a step for each database, which commits by itself; if a later one is refused, what was done is taken back by
further steps. So others see a purchase half made until it ends. A step that is executed again after a crash happens twice:
this is the faster one of DBOS' ways, and nobody crashes here.
"""

import json
import os
import queue
import random
import sys
import threading
import time
import uuid
from importlib.metadata import version

PROCESS, CLIENTS, ITEMS, PRICE = (int(argument) for argument in sys.argv[1:5])
SHOP, STOCK, PAYMENT, SYSTEM = sys.argv[5:9]
# Each process is an executor of its own.
EXECUTOR = f"purchase-{PROCESS}"
os.environ["DBOS__VMID"] = EXECUTOR

import psycopg  # noqa: E402
from dbos import DBOS, SetWorkflowID  # noqa: E402

DBOS(
    config={
        "name": "purchase",
        "system_database_url": SYSTEM,
        "log_level": "ERROR",
        "executor_id": EXECUTOR,
        "application_version": "1",
        "sys_db_pool_size": CLIENTS + 3,
    }
)
_own = threading.local()


def execute(url, sql, parameters):
    """A statement that commits by itself, on this thread's connection to a database."""
    connections = _own.__dict__
    if url not in connections:
        connections[url] = psycopg.connect(url, autocommit=True)
    return connections[url].execute(sql, parameters)


@DBOS.step(name="enter")
def enter(item, customer):
    sql = "INSERT INTO purchase (item, customer, price) VALUES (%s, %s, %s) RETURNING id"
    return execute(SHOP, sql, (item, customer, PRICE)).fetchone()[0]


@DBOS.step(name="take")
def take(item):
    return execute(STOCK, "UPDATE item SET stock = stock - 1 WHERE id = %s AND stock > 0", (item,)).rowcount == 1


@DBOS.step(name="charge")
def charge(customer):
    sql = "UPDATE account SET balance = balance - %s WHERE id = %s AND balance >= %s"
    return execute(PAYMENT, sql, (PRICE, customer, PRICE)).rowcount == 1


@DBOS.step(name="cancel")
def cancel(number):
    execute(SHOP, "DELETE FROM purchase WHERE id = %s", (number,))
    return True


@DBOS.step(name="put_back")
def put_back(item):
    execute(STOCK, "UPDATE item SET stock = stock + 1 WHERE id = %s", (item,))
    return True


@DBOS.workflow(name="purchase")
def purchase(item, customer):
    number = enter(item, customer)
    if not take(item):
        cancel(number)
        return False
    if not charge(customer):
        put_back(item)
        cancel(number)
        return False
    return True


def drawn(chance):
    """An item: four of five are of a fifth of them."""
    hot = ITEMS // 5
    return chance.randint(1, hot) if chance.random() < 0.8 else chance.randint(hot + 1, ITEMS)


def window(since, warmup, measured, chance):
    """One purchase after the other until the window is over; answers what became of them."""
    begin, end = since + warmup, since + warmup + measured
    told = {"acknowledged": 0, "aborted": 0, "failed": {}, "micros": []}
    while (before := time.monotonic()) < end:
        why = None
        try:
            with SetWorkflowID(str(uuid.uuid4())):
                if not purchase(drawn(chance), chance.randint(1, ITEMS)):
                    why = "declined"
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            why = "conflict"
        except Exception as error:
            why = type(error).__name__
            print(f"{why}: {error}", file=sys.stderr, flush=True)
        now = time.monotonic()
        is_measured = begin <= now <= end
        if why is None:
            told["acknowledged"] += 1
            if is_measured:
                told["micros"].append(int((now - before) * 1_000_000))
        elif why != "conflict":
            told["failed"][why] = told["failed"].get(why, 0) + 1
        elif is_measured:
            told["aborted"] += 1
    return told


def client(number, windows, answers):
    """A client: a window for each that is said, on connections that stay open."""
    while (said := windows.get()) is not None:
        since, warmup, measured, seed = said
        answers.put(window(since, warmup, measured, random.Random(f"{seed}-{PROCESS}-{number}")))


def main():
    DBOS.launch()
    answers = queue.Queue()
    windows = [queue.Queue() for _ in range(CLIENTS)]
    for number, own in enumerate(windows):
        threading.Thread(target=client, args=(number, own, answers), daemon=True).start()
    print(json.dumps({"ready": f"DBOS {version('dbos')}, Python {sys.version.split()[0]}"}), flush=True)
    for line in sys.stdin:
        warmup, measured, seed = (int(word) for word in line.split())
        since = time.monotonic()
        for own in windows:
            own.put((since, warmup / 1000, measured / 1000, seed))
        total = {"acknowledged": 0, "aborted": 0, "failed": {}, "micros": []}
        for _ in windows:
            told = answers.get()
            for name in ("acknowledged", "aborted", "micros"):
                total[name] += told[name]
            for why, times in told["failed"].items():
                total["failed"][why] = total["failed"].get(why, 0) + times
        print(json.dumps(total), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main()
