import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import javax.sql.XAConnection;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;
import org.postgresql.util.PGobject;
import org.postgresql.util.PSQLException;
import org.postgresql.xa.PGXADataSource;

/** pgjdbc by itself. */
class Jdbc {
    static void run() throws Exception {
        try (Connection connection = All.connect("currentSchema", "jdbc")) {
            try (Statement statement = connection.createStatement()) {
                statement.execute("CREATE SCHEMA jdbc");
                statement.execute("CREATE TYPE jdbc.mood AS ENUM ('sad', 'happy')");
                statement.execute("CREATE TABLE customer (id serial PRIMARY KEY, name varchar(20) NOT NULL UNIQUE)");
                statement.execute("CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                    + " customer_id int NOT NULL REFERENCES customer, price numeric(10,2) CHECK (price > 0))");
                statement.execute("CREATE INDEX item_by_price ON item (price DESC, customer_id)");
            }
            types(connection);
            metadata(connection);
            errors(connection);
            batches();
            pipelines(connection);
            cursors(connection);
            copy(connection);
            notifications(connection);
            savepoints(connection);
            retries();
            deposits(connection);
            cancels(connection);
        }
        xa();
    }

    static void types(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE kinds (a boolean, b smallint, c int, d bigint, e real, f float8, g numeric,"
                + " h text, i bytea, j date, k time, l timestamp, m timestamptz, n uuid, o int[], p text[], q jsonb, r mood)");
        }
        UUID uuid = UUID.fromString("00112233-4455-6677-8899-aabbccddeeff");
        LocalDateTime moment = LocalDateTime.of(2024, 2, 29, 12, 30, 15, 123456000);
        OffsetDateTime instant = OffsetDateTime.of(moment, ZoneOffset.ofHours(2));
        byte[] bytes = {0, 1, (byte) 0xff, '\\'};
        // More often than prepareThreshold, so that the later ones are sent and answered in binary.
        for (int turn = 0; turn < 8; turn++) {
            try (PreparedStatement insert = connection.prepareStatement(
                    "INSERT INTO kinds VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?::mood)")) {
                insert.setBoolean(1, true);
                insert.setShort(2, Short.MIN_VALUE);
                insert.setInt(3, Integer.MAX_VALUE);
                insert.setLong(4, Long.MIN_VALUE);
                insert.setFloat(5, 1.5f);
                insert.setDouble(6, -0.1);
                insert.setBigDecimal(7, new BigDecimal("12345678901234567890.123450"));
                insert.setString(8, "äöü 'quoted' \\ 漢字");
                insert.setBytes(9, bytes);
                insert.setObject(10, moment.toLocalDate());
                insert.setObject(11, moment.toLocalTime());
                insert.setObject(12, moment);
                insert.setObject(13, instant);
                insert.setObject(14, uuid);
                insert.setArray(15, connection.createArrayOf("int4", new Integer[] {1, null, 3}));
                insert.setArray(16, connection.createArrayOf("text", new String[] {"a,b", "\"", "NULL"}));
                PGobject json = new PGobject();
                json.setType("jsonb");
                json.setValue("{\"k\": [1, 2]}");
                insert.setObject(17, json);
                insert.setString(18, "happy");
                All.same(1, insert.executeUpdate(), "a row");
            }
            try (PreparedStatement select = connection.prepareStatement("SELECT * FROM kinds LIMIT ?")) {
                select.setInt(1, 1);
                try (ResultSet row = select.executeQuery()) {
                    All.check(row.next(), "a row");
                    All.check(row.getBoolean(1), "boolean");
                    All.same(Short.MIN_VALUE, row.getShort(2), "smallint");
                    All.same(Integer.MAX_VALUE, row.getInt(3), "int");
                    All.same(Long.MIN_VALUE, row.getLong(4), "bigint");
                    All.same(1.5f, row.getFloat(5), "real");
                    All.same(-0.1, row.getDouble(6), "float8");
                    All.same(new BigDecimal("12345678901234567890.123450"), row.getBigDecimal(7), "numeric");
                    All.same("äöü 'quoted' \\ 漢字", row.getString(8), "text");
                    All.check(Arrays.equals(bytes, row.getBytes(9)), "bytea");
                    All.same(moment.toLocalDate(), row.getObject(10, LocalDate.class), "date");
                    All.same(moment.toLocalTime(), row.getObject(11, LocalTime.class), "time");
                    All.same(moment, row.getObject(12, LocalDateTime.class), "timestamp");
                    All.same(instant.toInstant(), row.getObject(13, OffsetDateTime.class).toInstant(), "timestamptz");
                    All.same(Timestamp.valueOf(moment), row.getTimestamp(12), "timestamp as java.sql");
                    All.same(uuid, row.getObject(14), "uuid");
                    All.same(Arrays.asList(1, null, 3), Arrays.asList((Object[]) row.getArray(15).getArray()), "int[]");
                    Array texts = row.getArray(16);
                    All.same(Arrays.asList("a,b", "\"", "NULL"), Arrays.asList((Object[]) texts.getArray()), "text[]");
                    All.same("{\"k\": [1, 2]}", row.getString(17), "jsonb");
                    All.same("happy", row.getString(18), "enum");
                    All.same("mood", row.getMetaData().getColumnTypeName(18).replace("\"jdbc\".", "").replace("\"", ""), "its type");
                }
            }
        }
    }

    static void metadata(Connection connection) throws Exception {
        DatabaseMetaData data = connection.getMetaData();
        All.same("PostgreSQL", data.getDatabaseProductName(), "product");
        All.same(List.of("customer", "item", "kinds"), column(data.getTables(null, "jdbc", "%", new String[] {"TABLE"}), "TABLE_NAME"), "tables");
        All.same(List.of("id", "customer_id", "price"), column(data.getColumns(null, "jdbc", "item", null), "COLUMN_NAME"), "columns");
        All.same(List.of("YES", "NO", "NO"), column(data.getColumns(null, "jdbc", "item", null), "IS_AUTOINCREMENT"), "generated");
        All.same(List.of("int8", "int4", "numeric"), column(data.getColumns(null, "jdbc", "item", null), "TYPE_NAME"), "types");
        All.same(List.of("id"), column(data.getPrimaryKeys(null, "jdbc", "item"), "COLUMN_NAME"), "primary key");
        All.same(List.of("customer"), column(data.getImportedKeys(null, "jdbc", "item"), "PKTABLE_NAME"), "imported keys");
        All.same(List.of("item_customer_id_fkey"), column(data.getExportedKeys(null, "jdbc", "customer"), "FK_NAME"), "exported keys");
        All.same(List.of("price", "customer_id"), column(data.getIndexInfo(null, "jdbc", "item", false, false), "COLUMN_NAME").subList(1, 3), "index");
        All.check(column(data.getSchemas(), "TABLE_SCHEM").containsAll(List.of("jdbc", "public")), "schemas");
        All.check(column(data.getTypeInfo(), "TYPE_NAME").containsAll(List.of("int4", "text", "jsonb")), "types");
        column(data.getFunctions(null, "jdbc", "%"), "FUNCTION_NAME");
        column(data.getProcedures(null, "jdbc", "%"), "PROCEDURE_NAME");
        column(data.getBestRowIdentifier(null, "jdbc", "item", DatabaseMetaData.bestRowSession, false), "COLUMN_NAME");
        column(data.getTablePrivileges(null, "jdbc", "item"), "PRIVILEGE");
        column(data.getCatalogs(), "TABLE_CAT");
        column(data.getUDTs(null, "jdbc", "%", null), "TYPE_NAME");
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> values = new ArrayList<>();
        try (rows) {
            while (rows.next()) values.add(rows.getString(name));
        }
        return values;
    }

    interface Failing {
        void run() throws SQLException;
    }

    static PSQLException fails(String state, Failing failing) throws SQLException {
        try {
            failing.run();
        } catch (PSQLException error) {
            All.same(state, error.getSQLState(), error.getMessage());
            return error;
        }
        throw new AssertionError("not refused: " + state);
    }

    static void errors(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO customer (name) VALUES ('first')", Statement.RETURN_GENERATED_KEYS);
            try (ResultSet keys = statement.getGeneratedKeys()) {
                All.check(keys.next(), "a generated key");
                All.same(1, keys.getInt("id"), "the key");
            }
            var unique = fails("23505", () -> statement.executeUpdate("INSERT INTO customer (name) VALUES ('first')"));
            All.same("customer_name_key", unique.getServerErrorMessage().getConstraint(), "constraint");
            All.same("customer", unique.getServerErrorMessage().getTable(), "table");
            All.same("jdbc", unique.getServerErrorMessage().getSchema(), "schema");
            var reference = fails("23503", () -> statement.executeUpdate("INSERT INTO item (customer_id, price) VALUES (99, 1)"));
            All.same("item_customer_id_fkey", reference.getServerErrorMessage().getConstraint(), "constraint");
            fails("23514", () -> statement.executeUpdate("INSERT INTO item (customer_id, price) VALUES (1, 0)"));
            var missing = fails("23502", () -> statement.executeUpdate("INSERT INTO customer (name) VALUES (NULL)"));
            All.same("name", missing.getServerErrorMessage().getColumn(), "column");
            fails("22001", () -> statement.executeUpdate("INSERT INTO customer (name) VALUES (repeat('x', 21))"));
            fails("42P01", () -> statement.executeQuery("SELECT * FROM nowhere"));
            var syntax = fails("42601", () -> statement.executeQuery("SELECT * FORM customer"));
            All.check(syntax.getServerErrorMessage().getPosition() > 0, "a position");
        }
    }

    static void batches() throws Exception {
        try (Connection connection = All.connect("currentSchema", "jdbc", "reWriteBatchedInserts", "true")) {
            connection.setAutoCommit(false);
            try (PreparedStatement insert =
                    connection.prepareStatement("INSERT INTO customer (name) VALUES (?)", new String[] {"id"})) {
                for (int i = 0; i < 1000; i++) {
                    insert.setString(1, "batch " + i);
                    insert.addBatch();
                }
                All.same(1000, insert.executeBatch().length, "a batch");
                try (ResultSet keys = insert.getGeneratedKeys()) {
                    int count = 0;
                    while (keys.next()) count++;
                    All.same(1000, count, "generated keys");
                }
            }
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO customer (name) VALUES (?)")) {
                for (String name : new String[] {"new", "batch 5", "never"}) {
                    insert.setString(1, name);
                    insert.addBatch();
                }
                try {
                    insert.executeBatch();
                    throw new AssertionError("a batch with a duplicate");
                } catch (BatchUpdateException error) {
                    All.same("23505", error.getSQLState(), "the batch's failure");
                }
            }
            connection.rollback();
            try (Statement statement = connection.createStatement();
                    ResultSet row = statement.executeQuery("SELECT count(*) FROM customer")) {
                row.next();
                All.same(1, row.getInt(1), "after the rollback");
            }
        }
    }

    /** Statements that are sent together and not rewritten into one: each has its count, and an error stops them. */
    static void pipelines(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE sent (id int PRIMARY KEY, n int NOT NULL)");
        }
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.addBatch("INSERT INTO sent SELECT n, 0 FROM generate_series(1, 10) n");
            statement.addBatch("UPDATE sent SET n = n + 1 WHERE id > 7");
            statement.addBatch("DELETE FROM sent WHERE id = 1");
            All.same("[10, 3, 1]", Arrays.toString(statement.executeBatch()), "counts of different statements");
        }
        // More than pgjdbc sends before it reads answers.
        int[] ones = new int[1000];
        Arrays.fill(ones, 1);
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO sent VALUES (?, ?)")) {
            for (int i = 0; i < ones.length; i++) {
                insert.setInt(1, 100 + i);
                insert.setInt(2, i);
                insert.addBatch();
            }
            All.check(Arrays.equals(ones, insert.executeBatch()), "counts of one statement");
        }
        connection.commit();
        try (PreparedStatement update = connection.prepareStatement("UPDATE sent SET id = ? WHERE id = ?")) {
            for (int[] change : new int[][] {{5001, 100}, {102, 101}, {5003, 103}}) {
                update.setInt(1, change[0]);
                update.setInt(2, change[1]);
                update.addBatch();
            }
            try {
                update.executeBatch();
                throw new AssertionError("a batch with a duplicate");
            } catch (BatchUpdateException error) {
                All.same("23505", error.getSQLState(), "the batch's failure");
            }
        }
        fails("25P02", () -> connection.createStatement().executeQuery("SELECT 1"));
        connection.rollback();
        try (Statement statement = connection.createStatement();
                ResultSet row = statement.executeQuery("SELECT count(*), max(id), sum(n) FROM sent")) {
            row.next();
            // Nine rows and a thousand; 3 of the UPDATE, and the sum of 0 to 999.
            All.same("1009 1099 499503", row.getInt(1) + " " + row.getInt(2) + " " + row.getInt(3), "after the rollback");
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    static void cursors(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        try (PreparedStatement select = connection.prepareStatement("SELECT n FROM generate_series(1, ?) n")) {
            select.setFetchSize(100);
            select.setInt(1, 10_000);
            long sum = 0;
            try (ResultSet rows = select.executeQuery()) {
                while (rows.next()) sum += rows.getInt(1);
            }
            All.same(50_005_000L, sum, "rows by a cursor");
        }
        connection.commit();
        connection.setAutoCommit(true);
        try (Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE);
                ResultSet rows = statement.executeQuery("SELECT id, name FROM customer")) {
            All.check(rows.last(), "a last row");
            rows.updateString("name", "changed");
            rows.updateRow();
            rows.moveToInsertRow();
            rows.updateString("name", "inserted");
            rows.insertRow();
        }
    }

    static void copy(Connection connection) throws Exception {
        CopyManager copy = connection.unwrap(PGConnection.class).getCopyAPI();
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 500; i++) text.append(100_000 + i).append('\t').append("copied ").append(i).append('\n');
        All.same(500L, copy.copyIn("COPY customer (id, name) FROM STDIN", new StringReader(text.toString())), "copied in");
        StringWriter out = new StringWriter();
        All.same(500L, copy.copyOut("COPY (SELECT * FROM customer WHERE id >= 100000 ORDER BY id) TO STDOUT", out), "copied out");
        All.same(text.toString(), out.toString(), "what was copied");
    }

    static void notifications(Connection connection) throws Exception {
        PGConnection listening = connection.unwrap(PGConnection.class);
        try (Statement statement = connection.createStatement(); Connection other = All.connect()) {
            statement.execute("LISTEN news");
            try (Statement notifying = other.createStatement()) {
                notifying.execute("NOTIFY news, 'hello'");
            }
            var notifications = listening.getNotifications(10_000);
            All.same("hello", notifications[0].getParameter(), "a notification");
        }
    }

    static void savepoints(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("UPDATE customer SET name = 'kept' WHERE id = 1");
            Savepoint savepoint = connection.setSavepoint("s");
            fails("23505", () -> statement.executeUpdate("INSERT INTO customer VALUES (1, 'again')"));
            connection.rollback(savepoint);
            connection.commit();
            try (ResultSet row = statement.executeQuery("SELECT name FROM customer WHERE id = 1")) {
                row.next();
                All.same("kept", row.getString(1), "before the savepoint");
            }
            connection.commit();
        }
        connection.setAutoCommit(true);
        try (Connection kind = All.connect("currentSchema", "jdbc", "autosave", "always")) {
            kind.setAutoCommit(false);
            try (Statement statement = kind.createStatement()) {
                fails("22012", () -> statement.executeQuery("SELECT 1 / 0"));
                statement.executeQuery("SELECT 1");
            }
            kind.commit();
        }
    }

    /** Two transactions that each count what the other one inserts: one of them is refused, and then succeeds. */
    static void retries() throws Exception {
        try (Connection one = All.connect("currentSchema", "jdbc"); Connection two = All.connect("currentSchema", "jdbc")) {
            for (Connection connection : List.of(one, two)) {
                connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
                connection.setAutoCommit(false);
            }
            try (Statement first = one.createStatement(); Statement second = two.createStatement()) {
                first.execute("CREATE TABLE seats (who text)");
                one.commit();
                for (Statement statement : List.of(first, second)) statement.executeQuery("SELECT count(*) FROM seats").close();
                first.executeUpdate("INSERT INTO seats VALUES ('one')");
                second.executeUpdate("INSERT INTO seats VALUES ('two')");
                one.commit();
                fails("40001", two::commit);
                two.rollback();
                second.executeQuery("SELECT count(*) FROM seats").close();
                second.executeUpdate("INSERT INTO seats VALUES ('two')");
                two.commit();
            }
        }
    }

    /** Transactions that meet each other run again until all of them have counted. */
    static void deposits(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE purse (amount int NOT NULL)");
            statement.execute("INSERT INTO purse VALUES (0)");
        }
        Callable<Integer> depositing = Jdbc::deposit;
        ExecutorService depositors = Executors.newFixedThreadPool(4);
        List<Future<Integer>> futures = new ArrayList<>();
        for (int i = 0; i < 4; i++) futures.add(depositors.submit(depositing));
        depositors.shutdown();
        int deposits = 0;
        for (Future<Integer> future : futures) deposits += future.get();
        try (Statement statement = connection.createStatement(); ResultSet row = statement.executeQuery("SELECT amount FROM purse")) {
            row.next();
            All.same(deposits, row.getInt(1), "deposits");
        }
    }

    static Integer deposit() throws Exception {
        int deposits = 0;
        try (Connection connection = All.connect("currentSchema", "jdbc"); Statement statement = connection.createStatement()) {
            connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            connection.setAutoCommit(false);
            while (deposits < 10) {
                try {
                    int amount;
                    try (ResultSet row = statement.executeQuery("SELECT amount FROM purse")) {
                        row.next();
                        amount = row.getInt(1);
                    }
                    statement.executeUpdate("UPDATE purse SET amount = " + (amount + 1));
                    connection.commit();
                    deposits++;
                } catch (SQLException error) {
                    if (!List.of("40001", "40P01").contains(error.getSQLState())) throw error;
                    connection.rollback();
                }
            }
        }
        return deposits;
    }

    static void cancels(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            fails("57014", () -> statement.executeQuery("SELECT pg_sleep(60)"));
            statement.setQueryTimeout(0);
            Thread canceling = new Thread(() -> {
                try {
                    for (int i = 0; i < 200 && !statement.isClosed(); i++) {
                        Thread.sleep(50);
                        statement.cancel();
                    }
                } catch (Exception ended) {
                    // The statement is over.
                }
            });
            canceling.start();
            fails("57014", () -> statement.executeQuery("SELECT pg_sleep(60)"));
            canceling.interrupt();
            canceling.join();
        }
    }

    record Branch(byte[] global, byte[] branch) implements Xid {
        public int getFormatId() {
            return 7;
        }

        public byte[] getGlobalTransactionId() {
            return global;
        }

        public byte[] getBranchQualifier() {
            return branch;
        }
    }

    static void xa() throws Exception {
        PGXADataSource source = new PGXADataSource();
        source.setUrl(All.url() + "?currentSchema=jdbc");
        source.setUser(System.getenv("PGUSER"));
        XAConnection connection = source.getXAConnection();
        XAResource resource = connection.getXAResource();
        for (boolean commits : new boolean[] {true, false}) {
            Xid xid = new Branch(("global " + commits).getBytes(StandardCharsets.UTF_8), new byte[] {1, 2, 3});
            resource.start(xid, XAResource.TMNOFLAGS);
            try (Statement statement = connection.getConnection().createStatement()) {
                statement.executeUpdate("INSERT INTO customer (name) VALUES ('by xa " + commits + "')");
            }
            resource.end(xid, XAResource.TMSUCCESS);
            All.same(XAResource.XA_OK, resource.prepare(xid), "prepared");
            Xid[] known = resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN);
            All.same(1, known.length, "prepared transactions");
            All.check(Arrays.equals(xid.getGlobalTransactionId(), known[0].getGlobalTransactionId()), "its id");
            if (commits) resource.commit(known[0], false);
            else resource.rollback(known[0]);
        }
        Xid alone = new Branch(new byte[] {9}, new byte[] {9});
        resource.start(alone, XAResource.TMNOFLAGS);
        try (Statement statement = connection.getConnection().createStatement()) {
            statement.executeUpdate("INSERT INTO customer (name) VALUES ('in one phase')");
        }
        resource.end(alone, XAResource.TMSUCCESS);
        resource.commit(alone, true);
        connection.close();
        try (Connection reading = All.connect("currentSchema", "jdbc"); Statement statement = reading.createStatement();
                ResultSet row = statement.executeQuery("SELECT count(*) FROM customer WHERE name IN ('by xa true', 'by xa false', 'in one phase')")) {
            row.next();
            All.same(2, row.getInt(1), "what XA committed");
        }
    }
}
