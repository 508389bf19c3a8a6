"""A project in one file: its models are migrated together with Django's own apps, changed and
migrated again, and its tests run in a database that Django makes for them."""

import os
import shutil
import subprocess
import sys

import django
from django.conf import settings

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
DATABASE = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": os.environ["PGDATABASE"],
    "USER": os.environ["PGUSER"],
    "HOST": os.environ["PGHOST"],
    "PORT": os.environ["PGPORT"],
}
settings.configure(
    DATABASES={"default": DATABASE},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.flatpages",
        "django.contrib.messages",
        "django.contrib.postgres",
        "django.contrib.redirects",
        "django.contrib.sessions",
        "django.contrib.sites",
        "shop",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    SITE_ID=1,
    USE_TZ=True,
    SECRET_KEY="a test",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
)

MODELS = '''
import uuid
from django.contrib.auth.models import User
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q


class Item(models.Model):
    class Kind(models.TextChoices):
        BOOK = "B", "Book"
        TOY = "T", "Toy"

    code = models.CharField(max_length=20, unique=True)
    name = models.CharField(max_length=200, db_index=True)
    kind = models.CharField(max_length=1, choices=Kind, default=Kind.BOOK)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    stock = models.PositiveIntegerField(default=0)
    document = models.JSONField(default=dict)
    tags = ArrayField(models.CharField(max_length=20), default=list)
    added = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["code"]
        constraints = [models.CheckConstraint(condition=Q(price__gte=0), name="item_price_not_negative")]


class Order(models.Model):
    key = models.UUIDField(primary_key=True, default=uuid.uuid4)
    customer = models.ForeignKey(User, on_delete=models.CASCADE, related_name="orders")
    day = models.DateField(null=True)
    clock = models.TimeField(null=True)
    span = models.DurationField(null=True)
    seal = models.BinaryField(null=True)
    weight = models.FloatField(null=True)
    is_paid = models.BooleanField(default=False)
    items = models.ManyToManyField(Item, through="Line")


class Line(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    item = models.ForeignKey(Item, on_delete=models.PROTECT)
    count = models.IntegerField(default=1)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["order", "item"], name="line_once")]
'''

CHANGED = '''

class Note(models.Model):
    item = models.OneToOneField(Item, on_delete=models.SET_NULL, null=True)
    text = models.TextField(blank=True, default="")
    stars = models.SmallIntegerField(default=3, db_default=3)

    class Meta:
        indexes = [models.Index(fields=["-stars", "text"], name="note_stars")]
'''

TESTS = '''
import datetime, decimal, threading
import psycopg
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import Avg, Count, Exists, F, OuterRef, Q, Subquery, Sum, Value, Window
from django.db.models.functions import Coalesce, Lower, RowNumber, TruncMonth
from django.test import TestCase, TransactionTestCase
from shop.models import Item, Line, Note, Order


class Reads(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.user = User.objects.create_user("ada", "ada@x", "secret")
        Item.objects.bulk_create(
            Item(code=f"c{i:03}", name=f"Item {i}", price=decimal.Decimal(i) / 4, stock=i, document={"n": i, "deep": {"a": [i]}}, tags=[f"t{i % 3}"], kind="BT"[i % 2])
            for i in range(200)
        )
        cls.order = Order.objects.create(
            customer=cls.user, day=datetime.date(2024, 2, 29), clock=datetime.time(1, 2, 3, 4), span=datetime.timedelta(days=1, microseconds=5),
            seal=b"\\x00\\xff", weight=0.5,
        )
        for item in Item.objects.all()[:5]:
            Line.objects.create(order=cls.order, item=item, count=2)

    def test_values_come_back(self):
        order = Order.objects.get(pk=self.order.pk)
        self.assertEqual((order.day, order.clock, order.span), (self.order.day, self.order.clock, self.order.span))
        self.assertEqual((bytes(order.seal), order.weight), (b"\\x00\\xff", 0.5))

    def test_values_of_an_item_come_back(self):
        item = Item.objects.get(code="c007")
        self.assertEqual((item.price, item.document, item.tags), (decimal.Decimal("1.75"), {"n": 7, "deep": {"a": [7]}}, ["t1"]))
        self.assertEqual((item.kind, item.stock, item.added.utcoffset()), ("T", 7, datetime.timedelta(0)))

    def test_the_driver_beneath(self):
        # In binary, which Django itself does not ask for; and many statements in one journey.
        columns = "key, day, clock, span, seal, weight, is_paid"
        with connection.cursor(), psycopg.Cursor(connection.connection) as beneath:
            row = beneath.execute(f"SELECT {columns} FROM shop_order", binary=True).fetchone()
            order = self.order
            self.assertEqual(row, (order.pk, order.day, order.clock, order.span, order.seal, order.weight, False))
            row = beneath.execute("SELECT price, tags, stock FROM shop_item WHERE code = 'c007'", binary=True).fetchone()
            self.assertEqual(row, (decimal.Decimal("1.75"), ["t1"], 7))
            with connection.connection.pipeline():
                cursors = [psycopg.Cursor(connection.connection).execute("SELECT %s::int + 1", [n]) for n in range(50)]
            self.assertEqual([cursor.fetchone()[0] for cursor in cursors], list(range(1, 51)))

    def test_queries(self):
        self.assertEqual(Item.objects.filter(document__deep__a__0=7).get().code, "c007")
        self.assertEqual(Item.objects.filter(document__has_key="n", document__n__gte=198).count(), 2)
        self.assertEqual(Item.objects.filter(tags__contains=["t1"]).count(), 67)
        self.assertEqual(Item.objects.filter(tags__overlap=["t1", "t2"], tags__len=1).count(), 133)
        self.assertEqual(Item.objects.filter(name__icontains="ITEM 19").count(), 11)
        self.assertEqual(Item.objects.filter(code__regex=r"^c00[0-4]$").count(), 5)
        totals = Order.objects.annotate(total=Sum(F("lines__item__price") * F("lines__count"))).get()
        self.assertEqual(totals.total, decimal.Decimal("5.00"))
        self.assertEqual(Item.objects.values("kind").annotate(n=Count("id"), mean=Avg("stock")).order_by("kind")[0]["n"], 100)
        bought = Item.objects.filter(Exists(Line.objects.filter(item=OuterRef("pk"))))
        self.assertEqual(bought.count(), 5)
        numbered = Item.objects.annotate(row=Window(RowNumber(), partition_by="kind", order_by=F("price").desc())).filter(row=1)
        self.assertEqual(sorted(numbered.values_list("code", flat=True)), ["c198", "c199"])
        self.assertEqual(Order.objects.annotate(month=TruncMonth("day")).values("month").get()["month"], datetime.date(2024, 2, 1))
        newest = Subquery(Item.objects.order_by("-code").values("name")[:1])
        self.assertEqual(User.objects.annotate(newest=newest).get().newest, "Item 199")
        self.assertEqual(sum(1 for _ in Item.objects.iterator(chunk_size=50)), 200)
        union = Item.objects.filter(stock=1).union(Item.objects.filter(stock=2))
        self.assertEqual([item.stock for item in union], [1, 2])
        self.assertIn("Scan", Item.objects.filter(stock=1).explain())
        self.assertEqual(list(Order.objects.prefetch_related("lines__item").select_related("customer"))[0].lines.count(), 5)

    def test_changes(self):
        Item.objects.filter(stock__lt=10).update(stock=F("stock") + 1, document=Value({"n": -1}, Item._meta.get_field("document")))
        self.assertEqual(Item.objects.filter(document={"n": -1}).count(), 10)
        item, made = Item.objects.get_or_create(code="new", defaults={"name": "x", "price": 1})
        self.assertTrue(made)
        item, made = Item.objects.update_or_create(code="new", defaults={"price": 2})
        self.assertFalse(made)
        Item.objects.bulk_create([Item(code="new", name="y", price=3)], update_conflicts=True, unique_fields=["code"], update_fields=["name"])
        self.assertEqual(Item.objects.get(code="new").name, "y")
        Item.objects.bulk_create([Item(code="new", name="y", price=3)], ignore_conflicts=True)
        note = Note.objects.create(item=item)
        note.refresh_from_db()
        self.assertEqual(note.stars, 3)
        items = list(Item.objects.all()[:20])
        for each in items:
            each.name = "many"
        self.assertEqual(Item.objects.bulk_update(items, ["name"]), 20)
        item.delete()
        note.refresh_from_db()
        self.assertIsNone(note.item_id)

    def test_constraints(self):
        for name, work in [
            ("shop_item_code", lambda: Item.objects.create(code="c001", name="x", price=1)),
            ("item_price_not_negative", lambda: Item.objects.create(code="z", name="x", price=-1)),
            ("line_once", lambda: Line.objects.create(order=self.order, item=Item.objects.get(code="c000"))),
        ]:
            with self.subTest(name), self.assertRaisesMessage(IntegrityError, name), transaction.atomic():
                work()
        # Keys between tables are deferred; the test looks at them.
        with self.assertRaises(IntegrityError) as refused, transaction.atomic():
            Line.objects.create(order=self.order, item_id=99999)
            connection.check_constraints()
        sent = refused.exception.__cause__.diag
        self.assertEqual((sent.sqlstate, sent.schema_name, sent.table_name), ("23503", "public", "shop_line"))
        for state, column, work in [
            ("23502", "code", lambda: Item.objects.create(code=None, name="x", price=1)),
            ("23505", None, lambda: Item.objects.create(code="c001", name="x", price=1)),
            ("23514", None, lambda: Item.objects.create(code="z", name="x", stock=-1, price=1)),
        ]:
            with self.subTest(state), self.assertRaises(IntegrityError) as refused, transaction.atomic():
                work()
            sent = refused.exception.__cause__.diag
            self.assertEqual((sent.sqlstate, sent.table_name, sent.column_name), (state, "shop_item", column))

    def test_savepoints(self):
        with transaction.atomic():
            try:
                with transaction.atomic():
                    Group.objects.create(name="one")
                    raise ValueError
            except ValueError:
                pass
            Group.objects.create(name="two")
        self.assertEqual(list(Group.objects.values_list("name", flat=True)), ["two"])

    def test_admin(self):
        User.objects.create_superuser("root", "r@x", "root")
        self.assertTrue(self.client.login(username="root", password="root"))


class Locks(TransactionTestCase):
    def test_rows_are_locked(self):
        Item.objects.create(code="a", name="a", price=1)
        with transaction.atomic():
            self.assertEqual(Item.objects.select_for_update(skip_locked=True, of=("self",)).get().code, "a")
            self.assertEqual(Item.objects.select_for_update(no_key=True).get().code, "a")


class Cancels(TransactionTestCase):
    def test_a_statement_is_given_up(self):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pid = cursor.fetchone()[0]

            def cancel():
                # Django gives each thread a connection of its own.
                with connection.cursor() as asking:
                    active = 0
                    while not active:
                        asking.execute(
                            "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND query LIKE '%%sleep(60)'", [pid]
                        )
                        active = asking.fetchone()[0]
                cursor.connection.cancel()
                connection.close()

            waiting = threading.Thread(target=cancel)
            waiting.start()
            with self.assertRaises(OperationalError) as given_up:
                cursor.execute("SELECT pg_sleep(60)")
            waiting.join()
            self.assertEqual(given_up.exception.__cause__.sqlstate, "57014")
            cursor.execute("SELECT 1")
            self.assertEqual(cursor.fetchone(), (1,))


class Retries(TransactionTestCase):
    def test_what_conflicts_runs_again(self):
        # Two transactions have both read what the other one changes.
        for code in "ab":
            Item.objects.create(code=code, name=code, price=1, stock=1)
        other, attempts, done = connection.copy(), 0, False
        try:
            while not done:
                attempts += 1
                try:
                    with transaction.atomic():
                        total = Item.objects.aggregate(total=Sum("stock"))["total"]
                        if attempts == 1:
                            with other.cursor() as cursor:
                                cursor.execute("UPDATE shop_item SET stock = (SELECT sum(stock) + 1 FROM shop_item) WHERE code = 'b'")
                        Item.objects.filter(code="a").update(stock=total)
                    done = True
                except OperationalError as error:
                    self.assertEqual(error.__cause__.sqlstate, "40001")
                    self.assertLess(attempts, 5)
        finally:
            other.close()
        self.assertEqual(attempts, 2)
        self.assertEqual(list(Item.objects.values_list("code", "stock")), [("a", 4), ("b", 3)])
'''

def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def main() -> None:
    shutil.rmtree(f"{FOLDER}/shop", ignore_errors=True)
    for name in ["__init__", "migrations/__init__"]:
        write(f"{FOLDER}/shop/{name}.py", "")
    write(f"{FOLDER}/shop/models.py", MODELS)
    django.setup()
    from django.core.management import call_command

    call_command("makemigrations", "shop", verbosity=0)
    call_command("migrate", verbosity=0)
    call_command("makemigrations", "--check", verbosity=0)


def again() -> None:
    """In a process of its own, since models are loaded once."""
    write(f"{FOLDER}/shop/models.py", MODELS.replace("max_length=200", "max_length=300, null=True") + CHANGED)
    write(f"{FOLDER}/shop/tests.py", TESTS)
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("makemigrations", "shop", verbosity=0)
    call_command("migrate", verbosity=0)
    call_command("inspectdb", stdout=open(os.devnull, "w"))
    call_command("migrate", "shop", "0001", verbosity=0)
    call_command("migrate", verbosity=0)
    # In a database of their own, which it makes and drops.
    call_command("test", "shop")
    call_command("flush", "--noinput", verbosity=0)
    call_command("migrate", "shop", "zero", verbosity=0)
    assert "shop_item" not in connection.introspection.table_names()


if "again" in sys.argv:
    again()
else:
    main()
    subprocess.run([sys.executable, __file__, "again"], check=True)
