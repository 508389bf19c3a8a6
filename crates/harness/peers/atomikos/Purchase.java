import com.atomikos.icatch.jta.UserTransactionManager;
import com.atomikos.jdbc.AtomikosDataSourceBean;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.TreeMap;
import org.postgresql.xa.PGXADataSource;

/**
 * Purchases over three databases, each an XA transaction of Atomikos; the clients are threads.
 *
 * <p>Purchase CLIENTS ITEMS PRICE SHOP STOCK PAYMENT, of which the last three are JDBC's URLs. It says when it is ready,
 * and then, for each line "WARMUP MEASURED SEED" (milliseconds) on its standard input, what its clients did.
 */
public class Purchase {
    private static final String ENTER = "INSERT INTO purchase (item, customer, price) VALUES (?, ?, ?) RETURNING id";
    private static final String TAKE = "UPDATE item SET stock = stock - 1 WHERE id = ? AND stock > 0";
    private static final String CHARGE = "UPDATE account SET balance = balance - ? WHERE id = ? AND balance >= ?";

    private final UserTransactionManager manager = new UserTransactionManager();
    private final List<AtomikosDataSourceBean> sites = new ArrayList<>();
    private final int clients;
    private final int items;
    private final int price;

    private Purchase(String[] arguments) throws Exception {
        clients = Integer.parseInt(arguments[0]);
        items = Integer.parseInt(arguments[1]);
        price = Integer.parseInt(arguments[2]);
        manager.init();
        for (int site = 0; site < 3; site++) {
            PGXADataSource database = new PGXADataSource();
            database.setUrl(arguments[3 + site]);
            AtomikosDataSourceBean pool = new AtomikosDataSourceBean();
            pool.setUniqueResourceName("site-" + site);
            pool.setXaDataSource(database);
            pool.setMinPoolSize(clients);
            pool.setMaxPoolSize(clients);
            pool.setDefaultIsolationLevel(Connection.TRANSACTION_READ_COMMITTED);
            pool.setBorrowConnectionTimeout(30);
            pool.init();
            sites.add(pool);
        }
    }

    /** One purchase: wholly, or not at all. */
    private void buy(int item, int customer) throws Exception {
        manager.begin();
        try {
            enter(item, customer);
            change(1, TAKE, item);
            change(2, CHARGE, price, customer, price);
        } catch (Throwable failure) {
            manager.rollback();
            throw failure;
        }
        manager.commit();
    }

    private void enter(int item, int customer) throws SQLException {
        try (Connection connection = sites.get(0).getConnection();
                PreparedStatement statement = connection.prepareStatement(ENTER)) {
            statement.setInt(1, item);
            statement.setInt(2, customer);
            statement.setInt(3, price);
            try (ResultSet row = statement.executeQuery()) {
                if (!row.next()) {
                    throw new IllegalStateException("the purchase has no number");
                }
            }
        }
    }

    private void change(int site, String sql, int... parameters) throws SQLException {
        try (Connection connection = sites.get(site).getConnection();
                PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int place = 0; place < parameters.length; place++) {
                statement.setInt(place + 1, parameters[place]);
            }
            if (statement.executeUpdate() != 1) {
                throw new IllegalStateException("not one row was changed");
            }
        }
    }

    /** Whether another transaction was in the way. */
    private static boolean isConflict(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            String state = cause instanceof SQLException ? ((SQLException) cause).getSQLState() : null;
            if (state != null && state.startsWith("40")) {
                return true;
            }
        }
        return false;
    }

    /** A client: one purchase after the other until the window is over. */
    private final class Client extends Thread {
        private final SplittableRandom random;
        private final long from;
        private final long until;
        private final List<Long> micros = new ArrayList<>();
        private final Map<String, Long> failed = new TreeMap<>();
        private long acknowledged;
        private long aborted;

        Client(long seed, long from, long until) {
            this.random = new SplittableRandom(seed);
            this.from = from;
            this.until = until;
        }

        /** Four of five purchases are of a fifth of the items. */
        private int item() {
            int hot = items / 5;
            return random.nextInt(100) < 80 ? 1 + random.nextInt(hot) : 1 + hot + random.nextInt(items - hot);
        }

        @Override
        public void run() {
            for (long since = System.nanoTime(); since < until; since = System.nanoTime()) {
                try {
                    buy(item(), 1 + random.nextInt(items));
                    acknowledged++;
                    long now = System.nanoTime();
                    if (now >= from && now <= until) {
                        micros.add((now - since) / 1000);
                    }
                } catch (Throwable failure) {
                    long now = System.nanoTime();
                    if (!isConflict(failure)) {
                        if (failed.merge(failure.getClass().getName(), 1L, Long::sum) == 1) {
                            failure.printStackTrace();
                        }
                    } else if (now >= from && now <= until) {
                        aborted++;
                    }
                }
            }
        }
    }

    /** Runs all clients for a window; answers what they did, as JSON. */
    private String window(long warmup, long measured, long seed) throws InterruptedException {
        long from = System.nanoTime() + warmup * 1_000_000;
        long until = from + measured * 1_000_000;
        List<Client> running = new ArrayList<>();
        for (int client = 0; client < clients; client++) {
            running.add(new Client(seed * 1_000 + client, from, until));
        }
        for (Client client : running) {
            client.start();
        }
        long acknowledged = 0;
        long aborted = 0;
        Map<String, Long> failed = new TreeMap<>();
        StringBuilder micros = new StringBuilder();
        for (Client client : running) {
            client.join();
            acknowledged += client.acknowledged;
            aborted += client.aborted;
            client.failed.forEach((name, times) -> failed.merge(name, times, Long::sum));
            for (long one : client.micros) {
                micros.append(micros.length() == 0 ? "" : ",").append(one);
            }
        }
        StringBuilder failures = new StringBuilder();
        failed.forEach((name, times) ->
                failures.append(failures.length() == 0 ? "" : ",").append('"').append(name).append("\":").append(times));
        return "{\"acknowledged\":" + acknowledged + ",\"aborted\":" + aborted + ",\"failed\":{" + failures
                + "},\"micros\":[" + micros + "]}";
    }

    public static void main(String[] arguments) throws Exception {
        File log = new File("log").getAbsoluteFile();
        if (!log.isDirectory() && !log.mkdirs()) {
            throw new IllegalStateException("no folder for the log: " + log);
        }
        System.setProperty("com.atomikos.icatch.log_base_dir", log.getPath());
        System.setProperty("com.atomikos.icatch.max_actives", "200");
        System.setProperty("com.atomikos.icatch.tm_unique_name", "purchase");
        Purchase purchase = new Purchase(arguments);
        System.out.println("{\"ready\":\"Java " + System.getProperty("java.version") + "\"}");
        System.out.flush();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.trim().split(" ");
            System.out.println(
                    purchase.window(Long.parseLong(words[0]), Long.parseLong(words[1]), Long.parseLong(words[2])));
            System.out.flush();
        }
        for (AtomikosDataSourceBean site : purchase.sites) {
            site.close();
        }
        purchase.manager.close();
        System.exit(0);
    }
}
