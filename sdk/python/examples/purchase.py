"""The purchase over three components, in Python: `purchase.py shop|stock|payment --database … --data … --peers …`.

Each takes part with the other two, whether they are these or those of the Rust example of the same name.
"""

import sys
from dataclasses import dataclass

from cognate_composite import Component, Refused, never, same_item

PRICE = 10


@dataclass
class Order:
    item: int
    customer: int


@dataclass
class Take:
    item: int


@dataclass
class Charge:
    customer: int
    price: int


shop = Component(
    "shop",
    setup=[
        """CREATE TABLE IF NOT EXISTS purchase (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
           item int NOT NULL, customer int NOT NULL, price int NOT NULL)"""
    ],
)


@shop.service(item=lambda order: order.item, isolation="read committed")
def buy(call, order: Order):
    charge = Charge(order.customer, PRICE)
    call.all(("stock", "take", Take(order.item)), ("payment", "charge", charge))
    enter = "INSERT INTO purchase (item, customer, price) VALUES (%s, %s, %s) RETURNING id"
    (number,) = call.execute(enter, [order.item, order.customer, PRICE]).fetchone()
    # Needed where the purchase is part of somebody else's root; stock and payment undo their own.
    call.undo(number)
    return {"id": number, "item": order.item, "customer": order.customer, "price": PRICE}


@buy.undo
def strike_out(undo, number: int):
    undo.execute("DELETE FROM purchase WHERE id = %s", [number])


@shop.service(item=lambda take: take.item, reads=True)
def sold(call, take: Take) -> int:
    return call.execute("SELECT count(*) FROM purchase WHERE item = %s", [take.item]).fetchone()[0]


# What is entered is new each time, so two purchases never meet here.
shop.conflicts(never("buy", "buy"), same_item("buy", "sold"))

stock = Component(
    "stock",
    setup=[
        "CREATE TABLE IF NOT EXISTS item (id int PRIMARY KEY, stock int NOT NULL, price int NOT NULL)",
        f"INSERT INTO item SELECT i, 1000, {PRICE} FROM generate_series(1, 100) i ON CONFLICT DO NOTHING",
    ],
)


@stock.service(item=lambda take: take.item, isolation="read committed")
def take(call, take: Take):
    if call.execute("UPDATE item SET stock = stock - 1 WHERE id = %s AND stock > 0", [take.item]).rowcount == 0:
        raise Refused(f"item {take.item} is sold out, or there is none")
    call.undo(take)


@take.undo
def put_back(undo, take: Take):
    undo.execute("UPDATE item SET stock = stock + 1 WHERE id = %s", [take.item])


@stock.service(item=lambda take: take.item, reads=True)
def count(call, take: Take) -> int:
    row = call.execute("SELECT stock FROM item WHERE id = %s", [take.item]).fetchone()
    if row is None:
        raise Refused(f"there is no item {take.item}")
    return row[0]


# Taking one commutes with taking one and with putting one back; who counts sees either.
stock.conflicts(never("take", "take"), same_item("take", "count"))

payment = Component(
    "payment",
    setup=[
        "CREATE TABLE IF NOT EXISTS account (id int PRIMARY KEY, balance int NOT NULL)",
        "INSERT INTO account SELECT i, 10000 FROM generate_series(1, 100) i ON CONFLICT DO NOTHING",
    ],
)


@payment.service(item=lambda charge: charge.customer, isolation="read committed")
def charge(call, charge: Charge):
    lower = "UPDATE account SET balance = balance - %s WHERE id = %s AND balance >= %s"
    if call.execute(lower, [charge.price, charge.customer, charge.price]).rowcount == 0:
        raise Refused(f"customer {charge.customer} cannot pay, or there is none")
    call.undo(charge)


@charge.undo
def refund(undo, charge: Charge):
    undo.execute("UPDATE account SET balance = balance + %s WHERE id = %s", [charge.price, charge.customer])


@payment.service(item=lambda customer: customer, reads=True)
def balance(call, customer: int) -> int:
    row = call.execute("SELECT balance FROM account WHERE id = %s", [customer]).fetchone()
    if row is None:
        raise Refused(f"there is no customer {customer}")
    return row[0]


payment.conflicts(never("charge", "charge"), same_item("charge", "balance"))

if __name__ == "__main__":
    components = {"shop": shop, "stock": stock, "payment": payment}
    if len(sys.argv) < 2 or sys.argv[1] not in components:
        sys.exit(f"usage: {sys.argv[0]} shop|stock|payment --database URL --data DIR [--listen H:P] [--peers NAME=URL,…]")
    components[sys.argv[1]].main(sys.argv[2:])
