"""PostgreSQL's own programs. What is dumped and restored is dumped again, and must be the same."""

import subprocess
import tempfile

# Views and functions that come before what they read, if sorted by name.
SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN email AS text CHECK (VALUE ~ '@');
CREATE TABLE person (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name varchar(40) NOT NULL UNIQUE,
    mail email,
    mood mood DEFAULT 'happy' NOT NULL
);
CREATE TABLE thing (
    id serial PRIMARY KEY,
    person int NOT NULL REFERENCES person ON DELETE CASCADE,
    price numeric(10,2) CHECK (price >= 0),
    twice numeric GENERATED ALWAYS AS (price * 2) STORED,
    tags text[] DEFAULT '{}',
    facts jsonb,
    made timestamptz DEFAULT now()
);
CREATE INDEX thing_price ON thing (price DESC, id) WHERE price > 1;
CREATE INDEX person_lower ON person (lower(name));
CREATE VIEW b_count AS SELECT p.name, count(*) AS things FROM person p JOIN thing t ON t.person = p.id GROUP BY p.name;
CREATE VIEW a_rich AS SELECT name FROM b_count WHERE things > 1;
CREATE FUNCTION a_total(which int) RETURNS numeric LANGUAGE sql STABLE SECURITY DEFINER
    AS 'SELECT sum(price) FROM thing WHERE person = which';
CREATE FUNCTION a_things() RETURNS SETOF thing LANGUAGE sql STABLE AS 'SELECT * FROM thing';
COMMENT ON TABLE thing IS 'what somebody has';
INSERT INTO person (name, mail) SELECT 'n' || i, 'm@' || i FROM generate_series(1, 100) i;
INSERT INTO thing (person, price, tags, facts)
    SELECT 1 + i % 100, i / 10.0, ARRAY['a,b', NULL, '"'], jsonb_build_object('i', i) FROM generate_series(1, 1000) i;
"""


def run(*command, text=None):
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
    return done.stdout


def psql(text, database="postgres"):
    return run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database, text=text)


def dump(database):
    """A dump without what differs from one run to the next."""
    lines = run("pg_dump", "-d", database).splitlines()
    return [line for line in lines if not line.startswith(("\\restrict", "\\unrestrict"))]


psql(SCHEMA)
for question in ("d", "d thing", "d+ a_rich", "df", "sf a_total", "dT", "dD", "dv", "di+", "ds", "dn+", "du", "dx", "l", "dp"):
    run("psql", "-X", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c", f"\\{question}")
assert psql("SELECT count(*), sum(twice) FROM thing") == "1000|100100.00\n", psql("SELECT count(*), sum(twice) FROM thing")

with tempfile.TemporaryDirectory() as folder:
    run("pg_dump", "-Fc", "-d", "postgres", "-f", f"{folder}/dump")
    psql("CREATE DATABASE restored")
    run("pg_restore", "--exit-on-error", "-d", "restored", f"{folder}/dump")
before = dump("postgres")
assert dump("restored") == before, "a dump that was restored is dumped otherwise"
psql("CREATE DATABASE plain")
psql("\n".join(before) + "\n", "plain")
assert dump("plain") == before, "a script that was read is dumped otherwise"
assert psql("SELECT count(*), a_total(1) FROM a_things()", "plain") == psql("SELECT count(*), a_total(1) FROM a_things()")
only = run("pg_dump", "-d", "postgres", "-t", "thing")
assert "CREATE TABLE public.thing" in only and "CREATE TABLE public.person" not in only

run("vacuumdb", "-q", "--analyze", "-d", "postgres")
run("vacuumdb", "-q", "-t", "thing", "-d", "postgres")

run("pgbench", "-i", "-q", "restored")
for protocol in ("simple", "extended", "prepared"):
    run("pgbench", "-n", "-c", "4", "-t", "50", "-M", protocol, "--max-tries=1000", "restored")
sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)"
assert psql(sums, "restored") == "t\n"
assert psql("SELECT count(*) FROM pgbench_history", "restored") == "600\n"
