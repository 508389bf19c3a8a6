import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.Map;
import liquibase.Liquibase;
import liquibase.Scope;
import liquibase.database.DatabaseFactory;
import liquibase.database.jvm.JdbcConnection;
import liquibase.resource.DirectoryResourceAccessor;
import liquibase.ui.LoggerUIService;
import org.flywaydb.core.Flyway;

/** Flyway and Liquibase: a schema is made, changed, and made again where nothing is to be done. */
class Migrations {
    static long count(Connection connection, String query) throws Exception {
        try (Statement statement = connection.createStatement(); ResultSet row = statement.executeQuery(query)) {
            row.next();
            return row.getLong(1);
        }
    }

    static void flyway() throws Exception {
        Path folder = Files.createTempDirectory("flyway");
        Map<String, String> scripts = Map.of(
            "V1__accounts.sql",
            "CREATE TABLE account (id bigserial PRIMARY KEY, owner text NOT NULL, balance numeric(12,2) NOT NULL DEFAULT 0);\n"
                + "INSERT INTO account (owner, balance) VALUES ('${first}', 10), ('b', 20);\n"
                + "COMMENT ON TABLE account IS 'who has what; with a semicolon';\n",
            "V2__moods.sql",
            "DO $$ BEGIN CREATE TYPE mood AS ENUM ('sad', 'happy'); EXCEPTION WHEN duplicate_object THEN NULL; END $$;\n"
                + "ALTER TABLE account ADD COLUMN mood mood NOT NULL DEFAULT 'happy';\n",
            "V3__index.sql",
            "CREATE INDEX CONCURRENTLY account_by_owner ON account (lower(owner));\n",
            "V4__function.sql",
            "CREATE FUNCTION total() RETURNS numeric LANGUAGE sql STABLE AS $$ SELECT sum(balance) FROM account; $$;\n",
            "R__rich.sql",
            "CREATE OR REPLACE VIEW rich AS SELECT owner FROM account WHERE balance > 15;\n");
        for (var script : scripts.entrySet()) Files.writeString(folder.resolve(script.getKey()), script.getValue());
        var configuration = Flyway.configure()
            .dataSource(All.url(), System.getenv("PGUSER"), "")
            .schemas("flyway")
            .placeholders(Map.of("first", "a"))
            .mixed(true)
            // CREATE INDEX CONCURRENTLY waits for the transaction by which Flyway locks otherwise.
            .configuration(Map.of("flyway.postgresql.transactional.lock", "false"))
            .locations("filesystem:" + folder)
            .cleanDisabled(false);
        All.same(5, configuration.load().migrate().migrationsExecuted, "migrations");
        All.same(0, configuration.load().migrate().migrationsExecuted, "migrations, again");
        configuration.load().validate();
        try (Connection connection = All.connect("currentSchema", "flyway")) {
            All.same(30L, count(connection, "SELECT total()"), "the total");
            All.same(1L, count(connection, "SELECT count(*) FROM rich"), "the view");
        }
        Files.writeString(folder.resolve("V5__wrong.sql"), "CREATE TABLE half (a int);\nSELECT 1 / 0;\n");
        try {
            configuration.load().migrate();
            throw new AssertionError("a migration that fails");
        } catch (org.flywaydb.core.api.FlywayException failed) {
            All.check(failed.getMessage().contains("22012"), failed.getMessage());
        }
        try (Connection connection = All.connect("currentSchema", "flyway")) {
            All.same(0L, count(connection, "SELECT count(*) FROM pg_tables WHERE tablename = 'half'"), "nothing half done");
        }
        configuration.load().clean();
        try (Connection connection = All.connect()) {
            All.same(0L, count(connection, "SELECT count(*) FROM pg_tables WHERE schemaname = 'flyway'"), "cleaned");
        }
    }

    static final String CHANGES = """
        <databaseChangeLog xmlns="http://www.liquibase.org/xml/ns/dbchangelog"
            xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
            xsi:schemaLocation="http://www.liquibase.org/xml/ns/dbchangelog http://www.liquibase.org/xml/ns/dbchangelog/dbchangelog-latest.xsd">
          <changeSet id="1" author="a">
            <createTable tableName="person">
              <column name="id" type="bigint" autoIncrement="true"><constraints primaryKey="true"/></column>
              <column name="name" type="varchar(50)"><constraints nullable="false" unique="true" uniqueConstraintName="person_name"/></column>
              <column name="active" type="boolean" defaultValueBoolean="true"/>
              <column name="made" type="timestamp with time zone" defaultValueComputed="now()"/>
              <column name="notes" type="clob"/>
              <column name="photo" type="blob"/>
            </createTable>
            <createTable tableName="address">
              <column name="id" type="uuid" defaultValueComputed="gen_random_uuid()"><constraints primaryKey="true"/></column>
              <column name="person_id" type="bigint"/>
            </createTable>
            <addForeignKeyConstraint baseTableName="address" baseColumnNames="person_id" constraintName="address_person"
                referencedTableName="person" referencedColumnNames="id" onDelete="CASCADE"/>
            <createIndex tableName="address" indexName="address_by_person"><column name="person_id"/></createIndex>
          </changeSet>
          <changeSet id="2" author="a">
            <insert tableName="person"><column name="name" value="first"/></insert>
            <addColumn tableName="person"><column name="age" type="int" defaultValueNumeric="18"/></addColumn>
            <addNotNullConstraint tableName="person" columnName="age" defaultNullValue="18"/>
            <modifyDataType tableName="person" columnName="name" newDataType="varchar(100)"/>
            <renameColumn tableName="person" oldColumnName="notes" newColumnName="remarks" columnDataType="text"/>
            <rollback/>
          </changeSet>
          <changeSet id="3" author="a">
            <preConditions onFail="MARK_RAN"><not><tableExists tableName="extra"/></not></preConditions>
            <createTable tableName="extra"><column name="a" type="int"/></createTable>
            <createView viewName="adults">SELECT name FROM person WHERE age &gt;= 18</createView>
          </changeSet>
        </databaseChangeLog>
        """;

    static void liquibase() throws Exception {
        Path folder = Files.createTempDirectory("liquibase");
        Files.writeString(folder.resolve("changes.xml"), CHANGES);
        try (Connection setting = All.connect(); Statement statement = setting.createStatement()) {
            statement.execute("CREATE SCHEMA liquibase");
        }
        Scope.child(Map.of(Scope.Attr.ui.name(), new LoggerUIService()), () -> {
            for (int turn = 0; turn < 2; turn++) update(folder);
        });
        try (Connection connection = All.connect("currentSchema", "liquibase")) {
            All.same(3L, count(connection, "SELECT count(*) FROM databasechangelog"), "changes");
            All.same(1L, count(connection, "SELECT count(*) FROM adults"), "the view");
            All.same(0L, count(connection, "SELECT count(*) FROM databasechangeloglock WHERE locked"), "the lock");
        }
        Scope.child(Map.of(Scope.Attr.ui.name(), new LoggerUIService()), () -> {
            Connection connection = All.connect("currentSchema", "liquibase");
            var database = DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new JdbcConnection(connection));
            database.setDefaultSchemaName("liquibase");
            try (Liquibase liquibase = new Liquibase("changes.xml", new DirectoryResourceAccessor(folder), database)) {
                liquibase.rollback(1, "");
                All.check(liquibase.listUnrunChangeSets(null, null).size() == 1, "one change is open again");
            }
        });
        try (Connection connection = All.connect()) {
            All.same(0L, count(connection, "SELECT count(*) FROM pg_tables WHERE tablename = 'extra'"), "rolled back");
        }
    }

    static void update(Path folder) throws Exception {
        Connection connection = All.connect("currentSchema", "liquibase");
        var database = DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new JdbcConnection(connection));
        database.setDefaultSchemaName("liquibase");
        try (Liquibase liquibase = new Liquibase("changes.xml", new DirectoryResourceAccessor(folder), database)) {
            liquibase.update("");
        }
    }
}
