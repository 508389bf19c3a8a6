import jakarta.persistence.CascadeType;
import jakarta.persistence.Column;
import jakarta.persistence.ElementCollection;
import jakarta.persistence.Entity;
import jakarta.persistence.EnumType;
import jakarta.persistence.Enumerated;
import jakarta.persistence.FetchType;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.Index;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.LockModeType;
import jakarta.persistence.ManyToMany;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.PersistenceException;
import jakarta.persistence.Table;
import jakarta.persistence.Version;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.stream.Stream;
import org.hibernate.ScrollMode;
import org.hibernate.ScrollableResults;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;
import org.hibernate.exception.ConstraintViolationException;

/** Hibernate: it makes its schema, finds nothing to change the second time, and works with it. */
class Orm {
    enum Kind { BOOK, DISC }

    @Entity(name = "Writer")
    @Table(name = "writer", indexes = @Index(name = "writer_by_born", columnList = "born"))
    static class Writer {
        @Id
        @GeneratedValue(strategy = GenerationType.SEQUENCE)
        Long id;
        @Column(nullable = false, unique = true, length = 80)
        String name;
        LocalDate born;
        @OneToMany(mappedBy = "writer", cascade = CascadeType.ALL, orphanRemoval = true)
        List<Work> works = new ArrayList<>();
        @ElementCollection
        Set<String> names = new HashSet<>();
    }

    @Entity(name = "Work")
    @Table(name = "work")
    static class Work {
        @Id
        @GeneratedValue
        UUID id;
        @Version
        int version;
        String title;
        @Enumerated(EnumType.STRING)
        Kind kind;
        @Column(precision = 12, scale = 2)
        BigDecimal price;
        Instant made;
        byte[] cover;
        String[] tags;
        boolean out;
        double weight;
        @ManyToOne(fetch = FetchType.LAZY, optional = false)
        @JoinColumn(name = "writer_id")
        Writer writer;
        @ManyToMany
        Set<Shop> shops = new HashSet<>();
    }

    @Entity(name = "Shop")
    @Table(name = "shop")
    static class Shop {
        @Id
        @GeneratedValue(strategy = GenerationType.IDENTITY)
        Integer id;
        String town;
    }

    static SessionFactory factory() {
        Configuration configuration = new Configuration()
            .addAnnotatedClass(Writer.class)
            .addAnnotatedClass(Work.class)
            .addAnnotatedClass(Shop.class)
            .setProperty("hibernate.connection.url", All.url() + "?currentSchema=orm")
            .setProperty("hibernate.connection.username", System.getenv("PGUSER"))
            .setProperty("hibernate.connection.password", "")
            .setProperty("hibernate.default_schema", "orm")
            .setProperty("hibernate.jdbc.batch_size", "20")
            .setProperty("hibernate.hbm2ddl.halt_on_error", "true")
            .setProperty("hibernate.hbm2ddl.auto", "update");
        return configuration.buildSessionFactory();
    }

    static void run() throws Exception {
        try (Connection connection = All.connect(); Statement statement = connection.createStatement()) {
            statement.execute("CREATE SCHEMA orm");
        }
        factory().close();
        try (Connection connection = All.connect(); Statement statement = connection.createStatement()) {
            // What a newer version of the program brings.
            statement.execute("ALTER TABLE orm.work DROP COLUMN weight");
        }
        try (SessionFactory factory = factory()) {
            write(factory);
            read(factory);
            streams(factory);
            conflicts(factory);
            retries(factory);
            cancels(factory);
            factory.getSchemaManager().validateMappedObjects();
            factory.getSchemaManager().truncateMappedObjects();
        }
    }

    static void write(SessionFactory factory) {
        factory.inTransaction(session -> {
            Shop shop = new Shop();
            shop.town = "Here";
            session.persist(shop);
            for (int i = 0; i < 50; i++) {
                Writer writer = new Writer();
                writer.name = "writer " + i;
                writer.born = LocalDate.of(1900 + i, 1, 1);
                writer.names.add("alias " + i);
                for (int j = 0; j < 3; j++) {
                    Work work = new Work();
                    work.title = "work " + i + "." + j;
                    work.kind = j == 0 ? Kind.DISC : Kind.BOOK;
                    work.price = new BigDecimal(i + 1).setScale(2);
                    work.made = Instant.parse("2024-02-29T10:00:00.123456Z");
                    work.cover = new byte[] {0, 1, 2, (byte) i};
                    work.tags = new String[] {"a", "b " + j};
                    work.writer = writer;
                    work.shops.add(shop);
                    writer.works.add(work);
                }
                session.persist(writer);
            }
        });
    }

    static void read(SessionFactory factory) {
        factory.inSession(session -> {
            var counted = session.createQuery("select count(w) from Work w where w.kind = :kind and w.writer.born < :born", Long.class)
                .setParameter("kind", Kind.BOOK)
                .setParameter("born", LocalDate.of(1910, 1, 1))
                .getSingleResult();
            All.same(20L, counted, "a count over a join");
            List<Writer> page = session.createQuery("from Writer w left join fetch w.works order by w.born desc", Writer.class)
                .getResultList();
            All.same(50, page.size(), "writers");
            All.same(3, page.get(0).works.size(), "their works");
            List<Work> some = session.createQuery("from Work w order by w.price desc, w.title", Work.class)
                .setFirstResult(10).setMaxResults(5).getResultList();
            All.same("work 46.1", some.get(0).title, "a page");
            All.same("b 1", some.get(0).tags[1], "an array");
            All.same(Instant.parse("2024-02-29T10:00:00.123456Z"), some.get(0).made, "an instant");
            var sums = session.createQuery(
                "select w.writer.name, sum(w.price), max(length(w.title)) from Work w group by w.writer.name having sum(w.price) > 140 order by 2", Object[].class)
                .getResultList();
            All.same(4, sums.size(), "groups");
            session.createNativeQuery("SELECT unnest(tags) t, count(*) FROM orm.work GROUP BY t ORDER BY t", Object[].class).getResultList();
        });
        factory.inTransaction(session -> {
            Work locked = session.createQuery("from Work w where w.title = 'work 1.1'", Work.class)
                .setLockMode(LockModeType.PESSIMISTIC_WRITE).getSingleResult();
            locked.price = locked.price.add(BigDecimal.ONE);
            session.createQuery("from Shop s", Shop.class).setLockMode(LockModeType.PESSIMISTIC_READ).getResultList();
            All.same(100, session.createMutationQuery("update Work w set w.out = true where w.kind = :kind")
                .setParameter("kind", Kind.BOOK).executeUpdate(), "a bulk update");
        });
    }

    /** Rows come a few at a time, and a stream may be left before its end. */
    static void streams(SessionFactory factory) {
        String titles = "select w.title from Work w order by w.title";
        factory.inTransaction(session -> {
            try (Stream<String> stream = session.createQuery(titles, String.class).setFetchSize(7).getResultStream()) {
                All.same(150L, stream.filter(title -> title.startsWith("work ")).count(), "a stream");
            }
            try (Stream<String> stream = session.createQuery(titles, String.class).setFetchSize(7).getResultStream()) {
                All.same("work 0.1", stream.skip(1).findFirst().orElseThrow(), "the second of a stream");
            }
            int rows = 0;
            try (ScrollableResults<String> scrolled =
                    session.createQuery(titles, String.class).setFetchSize(7).scroll(ScrollMode.FORWARD_ONLY)) {
                while (scrolled.next()) rows++;
            }
            All.same(150, rows, "what was scrolled through");
        });
    }

    /** The SQLSTATE that an error of Hibernate's comes from. */
    static String state(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof SQLException found) return found.getSQLState();
        }
        return null;
    }

    static Shop shop(String town) {
        Shop shop = new Shop();
        shop.town = town;
        return shop;
    }

    /** Two transactions have both counted before either has added: one of them runs again. */
    static void retries(SessionFactory factory) {
        String count = "select count(s) from Shop s";
        int attempts = 0;
        boolean done = false;
        while (!done) {
            attempts++;
            try (Session session = factory.openSession()) {
                session.beginTransaction();
                try {
                    Long shops = session.createQuery(count, Long.class).getSingleResult();
                    if (attempts == 1) {
                        factory.inTransaction(other ->
                            other.persist(shop("number " + other.createQuery(count, Long.class).getSingleResult())));
                    }
                    session.persist(shop("number " + shops));
                    session.getTransaction().commit();
                    done = true;
                } catch (PersistenceException error) {
                    All.same("40001", state(error), "the state of a conflict");
                    All.check(attempts < 5, "a transaction that is alone does not fail");
                    if (session.getTransaction().isActive()) session.getTransaction().rollback();
                }
            }
        }
        All.same(2, attempts, "attempts");
        factory.inSession(session -> All.same(
            List.of("Here", "number 1", "number 2"),
            session.createQuery("select s.town from Shop s order by s.town", String.class).getResultList(),
            "the shops"));
    }

    /** A query that has a time limit, and one that another thread cancels. */
    static void cancels(SessionFactory factory) throws Exception {
        factory.inSession(session -> canceled(() ->
            session.createNativeQuery("SELECT 1 FROM pg_sleep(60)", Integer.class).setTimeout(1).getResultList()));
        try (Session session = factory.openSession()) {
            Thread canceling = new Thread(() -> {
                try {
                    awaitRunning("%pg_sleep(61)%");
                    session.cancelQuery();
                } catch (Exception error) {
                    error.printStackTrace();
                }
            });
            canceling.start();
            canceled(() -> session.createNativeQuery("SELECT 1 FROM pg_sleep(61)", Integer.class).getResultList());
            canceling.join();
        }
        factory.inSession(session ->
            All.same(1, session.createNativeQuery("SELECT 1", Integer.class).getSingleResult(), "one"));
    }

    static void canceled(Runnable query) {
        try {
            query.run();
        } catch (PersistenceException expected) {
            All.same("57014", state(expected), "the state of what was canceled");
            return;
        }
        throw new AssertionError("a query came to its end");
    }

    /** Asks the server until a statement runs whose text is like this. */
    static void awaitRunning(String text) throws Exception {
        try (Connection connection = All.connect(); var asked = connection.prepareStatement(
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE ? AND pid <> pg_backend_pid()")) {
            asked.setString(1, text);
            for (int turn = 0; turn < 6000; turn++) {
                try (ResultSet row = asked.executeQuery()) {
                    row.next();
                    if (row.getInt(1) == 1) return;
                }
                Thread.sleep(10);
            }
        }
        throw new AssertionError("nothing runs that is like " + text);
    }

    static void conflicts(SessionFactory factory) {
        try (Session one = factory.openSession(); Session two = factory.openSession()) {
            Work mine = one.createQuery("from Work w where w.title = 'work 2.0'", Work.class).getSingleResult();
            Work theirs = two.createQuery("from Work w where w.title = 'work 2.0'", Work.class).getSingleResult();
            one.beginTransaction();
            mine.price = BigDecimal.TEN;
            one.getTransaction().commit();
            two.beginTransaction();
            theirs.price = BigDecimal.ONE;
            try {
                two.getTransaction().commit();
                throw new AssertionError("a stale version");
            } catch (OptimisticLockException expected) {
                two.clear();
            }
        }
        try (Session session = factory.openSession()) {
            session.beginTransaction();
            Writer twice = new Writer();
            twice.name = "writer 1";
            try {
                session.persist(twice);
                session.flush();
                throw new AssertionError("a duplicate");
            } catch (ConstraintViolationException expected) {
                All.check(expected.getConstraintName() != null, "its constraint");
                session.getTransaction().rollback();
            }
        }
        factory.inTransaction(session -> {
            Writer writer = session.createQuery("from Writer w where w.name = 'writer 3'", Writer.class).getSingleResult();
            writer.works.remove(0);
            session.remove(session.createQuery("from Writer w where w.name = 'writer 4'", Writer.class).getSingleResult());
        });
        factory.inSession(session -> All.same(146L, session.createQuery("select count(w) from Work w", Long.class).getSingleResult(), "what is left"));
    }
}
