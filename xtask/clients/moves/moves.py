"""A server with roles and a database is made, moved from one server to the next by PostgreSQL's own programs, and has
to be the same at each of them. The first and the last one are PostgreSQL 15, where that is installed."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile

FOLDERS = [folder for folder in ("/usr/lib/postgresql/15/bin", os.path.dirname(shutil.which("initdb") or "")) if folder]

# Privileges, memberships, passwords and settings, which are the whole server's.
ROLES = """
CREATE ROLE app LOGIN PASSWORD 'secret' CONNECTION LIMIT 20 VALID UNTIL '2040-01-01 00:00:00+00';
CREATE ROLE readers;
CREATE ROLE "a ""quoted"" one";
GRANT readers TO app WITH ADMIN OPTION;
ALTER ROLE app SET search_path = sales, public;
CREATE DATABASE shop OWNER app;
COMMENT ON DATABASE shop IS 'what is sold';
ALTER DATABASE shop SET work_mem = '12MB';
ALTER ROLE app IN DATABASE shop SET statement_timeout = '90s';
GRANT CONNECT ON DATABASE shop TO readers;
"""

# What comes first by name needs what comes later.
SCHEMA = """
CREATE SCHEMA sales AUTHORIZATION app;
SET ROLE app;
SET search_path = sales;
ALTER DEFAULT PRIVILEGES IN SCHEMA sales GRANT SELECT ON TABLES TO readers;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s fine');
CREATE DOMAIN email AS text CONSTRAINT has_at CHECK (VALUE ~ '@');
CREATE TABLE person (
    id int GENERATED ALWAYS AS IDENTITY (START WITH 5 INCREMENT BY 5) PRIMARY KEY,
    name varchar(40) NOT NULL UNIQUE,
    mail email,
    mood mood DEFAULT 'ok' NOT NULL,
    moods mood[]
);
CREATE TABLE "Thing"" 1" (
    id serial PRIMARY KEY,
    person int NOT NULL REFERENCES person ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    price numeric(10,2) CHECK (price >= 0),
    twice numeric GENERATED ALWAYS AS (price * 2) STORED,
    code int,
    tags text[] DEFAULT '{}' NOT NULL,
    facts jsonb,
    raw bytea,
    key uuid,
    address inet,
    span interval,
    day date,
    made timestamptz DEFAULT '2024-02-29 12:00:00+00',
    ratio float8,
    UNIQUE NULLS NOT DISTINCT (code)
);
CREATE INDEX thing_price ON "Thing"" 1" (price DESC NULLS LAST, id) INCLUDE (code) WHERE price > 1;
CREATE INDEX person_lower ON person (lower(name));
CREATE VIEW a_count AS SELECT p.name, count(*) AS things FROM person p JOIN "Thing"" 1" t ON t.person = p.id GROUP BY p.name;
CREATE SEQUENCE ticket_seq START 7;
CREATE DOMAIN a_number AS bigint DEFAULT nextval('ticket_seq');
CREATE TABLE a_ticket (id bigint DEFAULT nextval('ticket_seq'), number a_number, note text);
CREATE VIEW a_last AS SELECT last_value FROM ticket_seq;
CREATE VIEW a_tally AS SELECT p.id, p.name, count(*) AS things FROM person p JOIN "Thing"" 1" t ON t.person = p.id GROUP BY p.id;
CREATE FUNCTION a_total(which int) RETURNS numeric LANGUAGE sql STABLE
    AS 'SELECT sum(price) FROM sales."Thing"" 1" WHERE person = which';
COMMENT ON TABLE person IS 'who buys; it''s a comment';
COMMENT ON COLUMN person.mail IS 'with @';
INSERT INTO person (name, mail, moods) SELECT 'n' || i, 'm@' || i, '{sad,"it''s fine",NULL}'::mood[] FROM generate_series(1, 100) i;
INSERT INTO "Thing"" 1" (person, price, code, tags, facts, raw, key, address, span, day, ratio)
    SELECT 5 + 5 * (i % 100), i / 100.0, i, ARRAY[md5(i::text), NULL, E'tab\\t, back \\\\ and "quote"\\n', ''],
        jsonb_build_object('i', i, 'e', NULL), decode(md5(i::text), 'hex'), md5(i::text)::uuid, '10.0.0.0/8'::inet,
        i * interval '1 month' + interval '0.5 seconds', date '0044-03-15 BC' + i, i / 3.0::float8
    FROM generate_series(1, 5000) i;
INSERT INTO "Thing"" 1" (person, price, code, made, day, ratio) VALUES (5, 'NaN', NULL, 'infinity', '-infinity', '-0');
ALTER TABLE "Thing"" 1" ADD CONSTRAINT small CHECK (code < 10) NOT VALID;
ALTER TABLE person ALTER name SET STATISTICS 500;
ALTER TABLE person ALTER mail SET STORAGE EXTERNAL;
ALTER TABLE person CLUSTER ON person_pkey;
ALTER TABLE person REPLICA IDENTITY USING INDEX person_name_key;
ALTER TABLE "Thing"" 1" REPLICA IDENTITY FULL;
GRANT INSERT (name), UPDATE ON person TO readers;
GRANT USAGE ON SCHEMA sales TO readers;
GRANT EXECUTE ON FUNCTION a_total(int) TO readers;
REVOKE EXECUTE ON FUNCTION a_total(int) FROM PUBLIC;
"""

OF_ROLES = [
    """SELECT rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolconnlimit, rolpassword, rolvaliduntil
        FROM pg_authid WHERE rolname !~ '^pg_' ORDER BY 1""",
    """SELECT r.rolname, m.rolname, a.admin_option FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid
        JOIN pg_roles m ON m.oid = a.member WHERE r.rolname = 'readers' ORDER BY 1, 2""",
    """SELECT d.datname, r.rolname, s.setconfig FROM pg_db_role_setting s LEFT JOIN pg_database d ON d.oid = s.setdatabase
        LEFT JOIN pg_roles r ON r.oid = s.setrole ORDER BY 1, 2""",
    """SELECT datname, pg_get_userbyid(datdba), shobj_description(oid, 'pg_database'), datacl, pg_encoding_to_char(encoding)
        FROM pg_database WHERE datname = 'shop'""",
]
OF_DATABASE = [
    """SELECT table_name, column_name, data_type, is_nullable, is_identity, identity_start, identity_increment, is_generated
        FROM information_schema.columns WHERE table_schema = 'sales' ORDER BY table_name, ordinal_position""",
    """SELECT conrelid::regclass, conname, contype, convalidated, condeferrable, condeferred
        FROM pg_constraint WHERE connamespace = 'sales'::regnamespace AND contype IN ('p', 'u', 'f', 'c') ORDER BY conname""",
    "SELECT tablename, indexname, tableowner FROM pg_indexes JOIN pg_tables USING (schemaname, tablename) WHERE schemaname = 'sales' ORDER BY 2",
    "SELECT relname, relkind, pg_get_userbyid(relowner), relacl FROM pg_class WHERE relnamespace = 'sales'::regnamespace AND relkind IN ('r', 'v', 'S') ORDER BY 1",
    "SELECT attname, attacl, col_description(attrelid, attnum) FROM pg_attribute WHERE attrelid = 'sales.person'::regclass AND attnum > 0 ORDER BY attnum",
    """SELECT attname, attstattarget, attstorage FROM pg_attribute
        WHERE attrelid = 'sales.person'::regclass AND attname IN ('id', 'mail', 'name') ORDER BY 1""",
    "SELECT relname, relreplident FROM pg_class WHERE relnamespace = 'sales'::regnamespace AND relkind = 'r' ORDER BY 1",
    "SELECT indexrelid::regclass::text, indisclustered, indisreplident FROM pg_index WHERE indrelid = 'sales.person'::regclass ORDER BY 1",
    "SELECT pg_get_userbyid(defaclrole), defaclobjtype, defaclacl FROM pg_default_acl ORDER BY 2",
    "SELECT proname, proacl, pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'sales'::regnamespace",
    "SELECT nspacl, obj_description('sales.person'::regclass, 'pg_class') FROM pg_namespace WHERE nspname = 'sales'",
    "SELECT enumlabel FROM pg_enum ORDER BY enumsortorder",
    "COPY (SELECT * FROM sales.person ORDER BY id) TO STDOUT",
    'COPY (SELECT * FROM sales."Thing"" 1" ORDER BY id) TO STDOUT',
    'SELECT last_value, is_called FROM sales."Thing"" 1_id_seq" UNION ALL SELECT last_value, is_called FROM sales.person_id_seq',
    "SELECT * FROM sales.a_count ORDER BY name",
    "SELECT * FROM sales.a_tally ORDER BY id",
    "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'sales.a_ticket'::regclass",
    "SELECT sales.a_total(10)",
]
# What the defaults, the identity and the generated column of a new row are; nothing of it stays but the sequences.
NEW_ROW = """BEGIN;
INSERT INTO sales.person (name) VALUES ('new') RETURNING id, mood;
INSERT INTO sales."Thing"" 1" (person, price) VALUES (5, 1.5) ON CONFLICT DO NOTHING;
INSERT INTO sales."Thing"" 1" (person, price, code) VALUES (5, 1.5, -1) ON CONFLICT DO NOTHING RETURNING id;
ROLLBACK"""


class Server:
    """A server, as the programs of PostgreSQL find it."""

    def __init__(self, port: int) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        place = {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "postgres", "PGTZ": "UTC", "PGSSLMODE": "disable"}
        self.environment = {**environment, **place}

    def run(self, *command: str, text: str | None = None, fails: bool = False) -> tuple[str, str]:
        """What a program prints, and what it complains of; it has to fail if that is said, and to succeed otherwise."""
        done = subprocess.run(command, input=text, text=True, capture_output=True, env=self.environment)
        if (done.returncode != 0) != fails:
            raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-5000:]}")
        return done.stdout, done.stderr

    def psql(self, text: str, database: str = "postgres") -> str:
        return self.run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database, text=text)[0]

    def dump_all(self) -> str:
        """All of the server, without what differs from one run to the next."""
        lines = self.run("pg_dumpall")[0].splitlines()
        return "\n".join(line for line in lines if not line.startswith(("\\restrict", "\\unrestrict", "--"))) + "\n"

    def take_all(self, dump: str) -> None:
        """Runs what was dumped. The role that runs it is there already, as PostgreSQL's manual says."""
        _, complaints = self.run("psql", "-X", "-q", "-d", "postgres", text=dump)
        errors = [line for line in complaints.splitlines() if "ERROR" in line or "FATAL" in line]
        unexpected = [line for line in errors if 'role "postgres" already exists' not in line]
        assert not unexpected, "\n".join(unexpected[:20])

    def roles(self) -> list[str]:
        return [self.psql(query) for query in OF_ROLES]

    def contents(self, database: str = "shop") -> list[str]:
        return [self.psql(query, database) for query in OF_DATABASE]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def cognate(folder: str):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COGNATE_")}
    command = [os.environ["COGNATE"], "serve", "--data", folder, "--listen", "127.0.0.1:0", "--http", "off"]
    command += ["--superuser", "postgres", "--memory", "256MB", "--log", "error"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("ready"), line
        yield Server(int(line.split(" -p ")[1].split()[0]))
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def postgres(programs: str, folder: str):
    # It does not run as root.
    owner = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    os.mkdir(folder)
    if owner:
        shutil.chown(folder, "postgres", "postgres")

    def run(program: str, *arguments: str) -> None:
        environment = {**os.environ, "LC_ALL": "C"}
        command = [f"{programs}/{program}", *arguments]
        # Whom pg_ctl starts keeps what it prints to, so that is no pipe.
        subprocess.run(command, check=True, env=environment, cwd="/", stdout=subprocess.DEVNULL, **owner)

    port = free_port()
    run("initdb", "-D", folder, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    run("pg_ctl", "start", "-w", "-D", folder, "-l", f"{folder}/log", "-o", options)
    try:
        yield Server(port)
    finally:
        run("pg_ctl", "stop", "-w", "-m", "fast", "-D", folder)


def programs_of_postgresql() -> str | None:
    """The folder of a PostgreSQL 15 that can serve, if it is here."""
    for folder in FOLDERS:
        if os.access(f"{folder}/initdb", os.X_OK) and os.access(f"{folder}/pg_ctl", os.X_OK):
            version = subprocess.check_output([f"{folder}/initdb", "--version"], text=True)
            if " 15." in version:
                return folder
    return None


def same(found: list[str], wanted: list[str], where: str) -> None:
    for at, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one == other, f"{where}, question {at}:\n{one[:3000]}\nis not\n{other[:3000]}"


def parallel(source: Server, target: Server, folder: str) -> None:
    """One database, by two connections at each end."""
    source.run("pg_dump", "-Fd", "-j", "2", "-d", "shop", "-f", folder)
    target.psql("CREATE DATABASE beside OWNER app")
    target.run("pg_restore", "--exit-on-error", "-j", "2", "-d", "beside", folder)
    same(target.contents("beside"), source.contents(), "by two connections")


def cut_off(source: Server, target: Server, file: str) -> None:
    """A dump of which the last part is missing leaves nothing, and what is whole goes in afterwards."""
    source.run("pg_dump", "-Fc", "-d", "shop", "-f", file)
    with open(file, "rb") as whole:
        data = whole.read()
    with open(f"{file}.part", "wb") as part:
        part.write(data[: len(data) * 3 // 4])
    target.psql("CREATE DATABASE half OWNER app")
    restore = ("pg_restore", "--single-transaction", "--exit-on-error", "-d", "half")
    target.run(*restore, f"{file}.part", fails=True)
    assert target.psql("SELECT count(*) FROM pg_namespace WHERE nspname = 'sales'", "half") == "0\n", "something stayed"
    target.run(*restore, file)
    same(target.contents("half"), source.contents(), "after a dump that was cut off")


def main() -> None:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cognate-moves-"))
        os.chmod(folder, 0o755)
        one = stack.enter_context(cognate(f"{folder}/one"))
        two = stack.enter_context(cognate(f"{folder}/two"))
        programs = programs_of_postgresql()
        stock = stack.enter_context(postgres(programs, f"{folder}/postgresql")) if programs else None
        if stock is None:
            print("PostgreSQL 15 is not on this machine: only from one server of ours to another")
        first = stock or one
        first.psql(ROLES)
        first.psql(SCHEMA, "shop")
        roles, contents = first.roles(), first.contents()

        if stock:
            one.take_all(stock.dump_all())
            same(one.roles(), roles, "from PostgreSQL")
            same(one.contents(), contents, "from PostgreSQL")
        dump = one.dump_all()
        two.take_all(dump)
        same(two.roles(), roles, "from one to the other")
        same(two.contents(), contents, "from one to the other")
        assert two.dump_all() == dump, "what was restored is dumped otherwise"
        if stock:
            stock.psql('DROP DATABASE shop; DROP ROLE app, readers, "a ""quoted"" one"')
            stock.take_all(dump)
            same(stock.roles(), roles, "back to PostgreSQL")
            same(stock.contents(), contents, "back to PostgreSQL")
            parallel(stock, one, f"{folder}/directory")
            parallel(two, stock, f"{folder}/back")
        else:
            parallel(one, two, f"{folder}/directory")
        cut_off(two, one, f"{folder}/dump")
        rows = [server.psql(NEW_ROW, "shop") for server in (two, *([stock] if stock else []))]
        assert all(row == rows[0] for row in rows), rows


main()
