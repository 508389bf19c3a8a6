"""A schema with what models declare, its reflection, all types there and back, errors with their
fields, streams, a retry after 40001, and migrations that compare models with the database."""

import asyncio
import datetime
import decimal
import enum
import os
import tempfile
import uuid

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

PLACE = "{PGUSER}@{PGHOST}:{PGPORT}/{PGDATABASE}".format(**os.environ)


class Mood(enum.Enum):
    sad = "sad"
    ok = "ok"
    happy = "happy"


class Base(DeclarativeBase):
    pass


class Owner(Base):
    __tablename__ = "owner"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(sa.String(120), unique=True)
    is_active: Mapped[bool] = mapped_column(server_default=sa.true())
    created: Mapped[datetime.datetime] = mapped_column(
        sa.DateTime(timezone=True), server_default=sa.func.now()
    )
    accounts: Mapped[list["Account"]] = relationship(back_populates="owner", cascade="all, delete-orphan")


class Account(Base):
    __tablename__ = "account"
    __table_args__ = (
        sa.CheckConstraint("balance >= 0", name="account_balance_not_negative"),
        sa.UniqueConstraint("owner_id", "name", name="account_owner_name"),
        sa.Index("account_balance", "balance"),
    )
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    owner_id: Mapped[int] = mapped_column(sa.ForeignKey("owner.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(sa.Text, comment="as the owner calls it")
    balance: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(14, 2), server_default="0")
    mood: Mapped[Mood] = mapped_column(sa.Enum(Mood, name="mood"), server_default="ok")
    owner: Mapped[Owner] = relationship(back_populates="accounts")


class Everything(Base):
    __tablename__ = "everything"
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    small = mapped_column(sa.SmallInteger)
    real = mapped_column(sa.REAL)
    double = mapped_column(sa.Double)
    number = mapped_column(sa.Numeric)
    text = mapped_column(sa.Text)
    code = mapped_column(sa.CHAR(4))
    raw = mapped_column(sa.LargeBinary)
    day = mapped_column(sa.Date)
    clock = mapped_column(sa.Time)
    at = mapped_column(sa.DateTime)
    at_zone = mapped_column(sa.DateTime(timezone=True))
    span = mapped_column(sa.Interval)
    key = mapped_column(sa.Uuid)
    plain = mapped_column(sa.JSON)
    document = mapped_column(pg.JSONB)
    numbers = mapped_column(pg.ARRAY(sa.Integer))
    texts = mapped_column(pg.ARRAY(sa.Text))
    moods = mapped_column(pg.ARRAY(sa.Enum(Mood, name="mood")))


VALUES = dict(
    small=-7,
    real=1.5,
    double=0.1,
    number=decimal.Decimal("123456789012345678901234567890.123456789"),
    text="ä'\\ \n\"",
    code="ab",
    raw=bytes(range(256)),
    day=datetime.date(2024, 2, 29),
    clock=datetime.time(23, 59, 59, 999999),
    at=datetime.datetime(1999, 12, 31, 23, 59, 59, 1),
    at_zone=datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc),
    span=datetime.timedelta(days=3, seconds=7, microseconds=9),
    key=uuid.UUID("12345678-1234-5678-1234-567812345678"),
    plain={"b": 1, "a": [None, True]},
    document={"a": {"b": [1, 2.5, "x"]}},
    numbers=[1, None, 3],
    texts=["a,b", "", "NULL", '"'],
    moods=[Mood.sad, Mood.happy],
)


def same(found: Everything) -> None:
    for name, value in VALUES.items():
        expected = "ab  " if name == "code" else value
        assert getattr(found, name) == expected, (name, getattr(found, name), expected)


def refused(session: Session, state: str, work) -> object:
    """Runs what must be refused; answers the driver's error."""
    try:
        work()
        session.flush()
    except sa.exc.DBAPIError as error:
        session.rollback()
        original = error.orig
        found = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
        assert found == state, (found, state, error)
        return original
    raise AssertionError(f"{state} was expected")


def models(driver: str) -> None:
    engine = sa.create_engine(f"postgresql+{driver}://{PLACE}")
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        first = Owner(email="a@x", accounts=[Account(name="one", balance=10), Account(name="two")])
        session.add(first)
        session.add_all(Owner(email=f"{i}@x") for i in range(2500))
        session.commit()
        assert first.is_active is True and first.created.tzinfo is not None
        account = first.accounts[0]
        assert account.mood is Mood.ok and account.balance == 10
        session.add(Everything(**VALUES))
        session.commit()
        session.expire_all()
        same(session.scalars(sa.select(Everything)).one())

        error = refused(session, "23505", lambda: session.add(Owner(email="a@x")))
        assert error.diag.constraint_name == "owner_email_key" and error.diag.table_name == "owner"
        error = refused(session, "23514", lambda: setattr(session.get(Account, account.id), "balance", -1))
        assert error.diag.constraint_name == "account_balance_not_negative"
        error = refused(session, "23503", lambda: session.add(Account(owner_id=-1, name="x")))
        assert error.diag.constraint_name == "account_owner_id_fkey"
        error = refused(session, "23502", lambda: session.add(Owner(email=None)))
        assert error.diag.column_name == "email"

        # Reads in many shapes.
        joined = sa.select(Owner).join(Owner.accounts).where(Account.name.ilike("ON%"))
        assert session.scalars(joined).one().email == "a@x"
        per_owner = (
            sa.select(Account.owner_id, sa.func.sum(Account.balance), sa.func.row_number().over(order_by=Account.owner_id))
            .group_by(Account.owner_id)
            .having(sa.func.count() > 1)
        )
        assert session.execute(per_owner).one()[1] == 10
        assert session.scalar(sa.select(Everything.document["a"]["b"][1].as_float())) == 2.5
        assert session.scalar(sa.select(sa.func.count()).where(Everything.numbers.contains([3]))) == 1
        assert session.scalar(sa.select(sa.func.count()).where(Everything.id == sa.any_(sa.literal([1, 2], pg.ARRAY(sa.BigInteger))))) is not None

        # What is not fetched at once.
        stream = session.execute(sa.select(Owner.id).order_by(Owner.id), execution_options={"stream_results": True, "yield_per": 100})
        assert sum(1 for _ in stream) == 2501

        upsert = pg.insert(Owner).values(email="a@x", is_active=False)
        upsert = upsert.on_conflict_do_update(index_elements=[Owner.email], set_={"is_active": upsert.excluded.is_active})
        assert session.execute(upsert.returning(Owner.is_active)).scalar_one() is False
        session.execute(sa.update(Owner).where(Owner.email == "a@x").values(is_active=sa.not_(Owner.is_active)))
        with session.begin_nested() as savepoint:
            session.execute(sa.delete(Owner))
            savepoint.rollback()
        locked = sa.select(Account).order_by(Account.name).limit(1).with_for_update(skip_locked=True)
        assert session.scalars(locked).one().name == "one"
        session.delete(session.scalars(sa.select(Owner).where(Owner.email == "a@x")).one())
        session.commit()
        assert session.scalar(sa.select(sa.func.count(Account.id))) == 0

    # A transaction that met another one is run again.
    attempts = 0
    with Session(engine) as session:
        session.add(Owner(id=9999, email="counter"))
        session.commit()
    engine_serializable = engine.execution_options(isolation_level="SERIALIZABLE")
    while True:
        attempts += 1
        try:
            with Session(engine_serializable) as session, Session(engine_serializable) as other:
                email = session.get(Owner, 9999).email
                if attempts == 1:
                    other.get(Owner, 9999).email = email + "!"
                    other.commit()
                session.get(Owner, 9999).email = email + "?"
                session.commit()
            break
        except sa.exc.OperationalError as error:
            assert (getattr(error.orig, "sqlstate", None) or error.orig.pgcode) == "40001", error
            assert attempts < 5
    assert attempts == 2
    with Session(engine) as session:
        assert session.get(Owner, 9999).email == "counter!?"
    reflect(engine)
    engine.dispose()


def reflect(engine: sa.Engine) -> None:
    inspector = sa.inspect(engine)
    assert set(inspector.get_table_names()) >= {"owner", "account", "everything"}
    columns = {column["name"]: column for column in inspector.get_columns("account")}
    assert isinstance(columns["balance"]["type"], sa.NUMERIC) and columns["balance"]["type"].scale == 2
    assert isinstance(columns["mood"]["type"], pg.ENUM) and columns["mood"]["type"].enums == ["sad", "ok", "happy"]
    assert columns["name"]["comment"] == "as the owner calls it"
    assert inspector.get_pk_constraint("account")["constrained_columns"] == ["id"]
    key = inspector.get_foreign_keys("account")[0]
    assert key["referred_table"] == "owner" and key["options"] == {"ondelete": "CASCADE"}, key
    assert [check["name"] for check in inspector.get_check_constraints("account")] == ["account_balance_not_negative"]
    assert [unique["name"] for unique in inspector.get_unique_constraints("account")] == ["account_owner_name"]
    assert {"account_balance", "account_owner_name"} == {index["name"] for index in inspector.get_indexes("account")}
    assert [found["name"] for found in inspector.get_enums()] == ["mood"]
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        difference = compare_metadata(context, Base.metadata)
        assert difference == [], difference
    everything = sa.MetaData()
    everything.reflect(engine)
    assert set(everything.tables) >= {"owner", "account", "everything"}


def migrations() -> None:
    """Revisions that are written from the models, run forth and back."""
    engine = sa.create_engine(f"postgresql+psycopg://{PLACE}")
    Base.metadata.drop_all(engine)
    sa.Enum(name="mood").drop(engine, checkfirst=True)
    with tempfile.TemporaryDirectory() as folder:
        config = Config(folder + "/alembic.ini")
        config.set_main_option("script_location", folder + "/alembic")
        config.set_main_option("sqlalchemy.url", f"postgresql+psycopg://{PLACE}")
        command.init(config, folder + "/alembic")
        with open(folder + "/alembic/env.py") as file:
            env = file.read()
        env = env.replace("target_metadata = None", "import __main__\ntarget_metadata = __main__.Base.metadata")
        env = env.replace("if config.config_file_name is not None:", "if False:")
        with open(folder + "/alembic/env.py", "w") as file:
            file.write(env)
        command.revision(config, "first", autogenerate=True)
        command.upgrade(config, "head")
        command.check(config)
        command.downgrade(config, "base")
        with engine.connect() as connection:
            assert not sa.inspect(connection).has_table("account")
            connection.execute(sa.text("DROP TYPE IF EXISTS mood"))
            connection.commit()
        command.upgrade(config, "head")
    with engine.begin() as connection:
        from alembic.operations import Operations

        change = Operations(MigrationContext.configure(connection))
        change.add_column("owner", sa.Column("phone", sa.String(20), server_default="", nullable=False))
        change.alter_column("owner", "phone", new_column_name="telephone", type_=sa.Text(), existing_type=sa.String(20))
        change.create_index("owner_telephone", "owner", ["telephone"])
        change.create_check_constraint("owner_email_at", "owner", "email LIKE '%@%' OR email = 'counter'")
        change.rename_table("everything", "anything")
        change.bulk_insert(sa.table("owner", sa.column("email")), [{"email": f"{i}@y"} for i in range(10)])
        change.drop_constraint("owner_email_at", "owner")
        change.drop_column("owner", "telephone")
        change.rename_table("anything", "everything")
    engine.dispose()


async def asynchronous() -> None:
    engine = create_async_engine(f"postgresql+asyncpg://{PLACE}")
    async with AsyncSession(engine) as session:
        session.add(Everything(**VALUES))
        session.add(Owner(email="async@x", accounts=[Account(name="a", balance=decimal.Decimal("1.50"))]))
        await session.commit()
        session.expire_all()
        same((await session.scalars(sa.select(Everything).limit(1))).one())
        try:
            session.add(Owner(email="async@x"))
            await session.flush()
        except sa.exc.IntegrityError as error:
            assert error.orig.sqlstate == "23505", error
            await session.rollback()
        stream = await session.stream(sa.select(Owner.email))
        assert [row[0] async for row in stream].count("async@x") == 1
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: sa.inspect(sync).get_table_names())
        assert "owner" in names
    await engine.dispose()


for driver in ["psycopg", "psycopg2"]:
    models(driver)
migrations()
asyncio.run(asynchronous())
