import java.sql.Connection;
import java.sql.DriverManager;
import java.util.Properties;
import java.util.logging.Level;
import java.util.logging.Logger;

/** All of them, one after the other, each in a schema of its own. */
public class All {
    static String url() {
        return "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
            + System.getenv("PGDATABASE");
    }

    static Connection connect(String... pairs) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        for (int i = 0; i < pairs.length; i += 2) properties.setProperty(pairs[i], pairs[i + 1]);
        return DriverManager.getConnection(url(), properties);
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void same(Object wanted, Object got, String what) {
        if (!java.util.Objects.equals(wanted, got)) {
            throw new AssertionError(what + ": wanted " + wanted + ", got " + got);
        }
    }

    interface Part {
        void run() throws Exception;
    }

    static void run(String name, Part part) throws Exception {
        long begin = System.nanoTime();
        part.run();
        System.out.printf("%s: %.1f s%n", name, (System.nanoTime() - begin) / 1e9);
    }

    public static void main(String[] arguments) throws Exception {
        Logger.getLogger("").setLevel(Level.WARNING);
        run("pgjdbc", Jdbc::run);
        run("Flyway", Migrations::flyway);
        run("Liquibase", Migrations::liquibase);
        run("Hibernate", Orm::run);
    }
}
