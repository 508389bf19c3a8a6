package main

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgtype"
)

// How long something may take that comes at once.
const patience = time.Minute

func open(ctx context.Context) *pgx.Conn {
	conn, err := pgx.Connect(ctx, "")
	must(err)
	return conn
}

// The refusal of a statement, with the code that it is expected to have.
func refusal(err error, code string) *pgconn.PgError {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != code {
		log.Fatalf("%s was expected: %v", code, err)
	}
	return refused
}

// A row with a value of each type.
type kinds struct {
	flag    bool
	small   int16
	number  int32
	large   int64
	single  float32
	double  float64
	exact   pgtype.Numeric
	words   string
	raw     []byte
	day     time.Time
	hour    pgtype.Time
	moment  time.Time
	instant time.Time
	span    pgtype.Interval
	key     [16]byte
	address netip.Prefix
	list    string
	numbers []int32
	names   []pgtype.Text
	temper  string
}

func (k *kinds) places() []any {
	return []any{&k.flag, &k.small, &k.number, &k.large, &k.single, &k.double, &k.exact, &k.words, &k.raw, &k.day, &k.hour, &k.moment,
		&k.instant, &k.span, &k.key, &k.address, &k.list, &k.numbers, &k.names, &k.temper}
}

// Values of all types as parameters, and as answers in text and in binary; NULL of each.
func types(ctx context.Context, conn *pgx.Conn) {
	_, err := conn.Exec(ctx, `CREATE TYPE temper AS ENUM ('sad', 'happy');
		CREATE TABLE kinds (flag bool, small int2, number int4, large int8, single float4, double float8, exact numeric, words text, raw bytea,
			day date, hour time, moment timestamp, instant timestamptz, span interval, key uuid, address inet, list jsonb, numbers int4[],
			names text[], temper temper)`)
	must(err)
	temper, err := conn.LoadType(ctx, "temper")
	must(err)
	conn.TypeMap().RegisterType(temper)

	noon := time.Date(2024, 2, 29, 12, 30, 15, 123456000, time.UTC)
	midnight := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	hour := pgtype.Time{Microseconds: 86_399_123_456, Valid: true}
	span := pgtype.Interval{Microseconds: 4_005_006, Days: 3, Months: 14, Valid: true}
	key := [16]byte{0, 17, 34, 51, 68, 85, 102, 119, 136, 153, 170, 187, 204, 221, 238, 255}
	address := netip.MustParsePrefix("10.0.0.1/32")
	numbers := []int32{3, -1}
	names := []pgtype.Text{{String: "a,b", Valid: true}, {}}
	insert := "INSERT INTO kinds VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)"
	values := []any{true, int16(-7), int32(-2147483648), int64(9223372036854775807), float32(1.5), -0.1, "-12345.6700", "it's \"quoted\" ü",
		[]byte{0, 1, 254, 255}, midnight, hour, noon, noon, span, key, address, `{"a": [1, null]}`, numbers, names, "happy"}
	_, err = conn.Exec(ctx, insert, values...)
	must(err)
	_, err = conn.Exec(ctx, insert, make([]any, len(values))...)
	must(err)

	for _, format := range []int16{pgx.TextFormatCode, pgx.BinaryFormatCode} {
		var row kinds
		formats := pgx.QueryResultFormats{format}
		must(conn.QueryRow(ctx, "SELECT * FROM kinds WHERE flag", formats).Scan(row.places()...))
		expect(row.flag && row.small == -7 && row.number == -2147483648 && row.large == 9223372036854775807, "whole numbers")
		exact, err := row.exact.Float64Value()
		must(err)
		expect(row.single == 1.5 && row.double == -0.1 && exact.Float64 == -12345.67, "numbers")
		expect(row.words == "it's \"quoted\" ü" && bytes.Equal(row.raw, []byte{0, 1, 254, 255}), "text and bytea")
		expect(row.day.Equal(midnight) && row.hour == hour && row.moment.Equal(noon) && row.instant.Equal(noon), "times")
		expect(row.span == span, "an interval")
		expect(row.key == key && row.address == address && row.list == `{"a": [1, null]}`, "uuid, inet and jsonb")
		expect(reflect.DeepEqual(row.numbers, numbers) && reflect.DeepEqual(row.names, names), "arrays")
		expect(row.temper == "happy", "an enum")

		rows, err := conn.Query(ctx, "SELECT * FROM kinds WHERE flag IS NULL", formats)
		must(err)
		expect(rows.Next(), "a row of NULLs")
		nothing, err := rows.Values()
		must(err)
		expect(reflect.DeepEqual(nothing, make([]any, len(values))), "NULLs")
		rows.Close()
		must(rows.Err())
	}
}

// Every way that pgx has to send a statement.
func modes(ctx context.Context, conn *pgx.Conn) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		for turn := 0; turn < 3; turn++ {
			var n int32
			var s string
			must(conn.QueryRow(ctx, "SELECT $1::int + 1, $2::text", mode, 41, "it's").Scan(&n, &s))
			expect(n == 42 && s == "it's", mode.String())
		}
	}
}

// Each constraint's error with its fields.
func constraints(ctx context.Context, conn *pgx.Conn) {
	_, err := conn.Exec(ctx, `CREATE TABLE client (id int PRIMARY KEY);
		CREATE TABLE account (id int PRIMARY KEY, client int CONSTRAINT of_client REFERENCES client,
			name text NOT NULL CONSTRAINT one_name UNIQUE, balance int CONSTRAINT not_less CHECK (balance >= 0));
		INSERT INTO client VALUES (1);
		INSERT INTO account VALUES (1, 1, 'a', 0)`)
	must(err)
	for _, each := range []struct {
		code, constraint, column, detail string
		row                              []any
	}{
		{"23505", "one_name", "", "Key (name)=(a) already exists.", []any{2, 1, "a", 0}},
		{"23503", "of_client", "", `Key (client)=(9) is not present in table "client".`, []any{2, 9, "b", 0}},
		{"23514", "not_less", "", "Failing row contains (2, 1, b, -1).", []any{2, 1, "b", -1}},
		{"23502", "", "name", "Failing row contains (2, 1, null, 0).", []any{2, 1, nil, 0}},
	} {
		_, err := conn.Exec(ctx, "INSERT INTO account VALUES ($1, $2, $3, $4)", each.row...)
		refused := refusal(err, each.code)
		expect(refused.SchemaName == "public" && refused.TableName == "account", each.code+": its table")
		expect(refused.ConstraintName == each.constraint && refused.ColumnName == each.column, each.code+": its constraint")
		expect(refused.Detail == each.detail, each.code+": its detail")
	}
	_, err = conn.Exec(ctx, "SELECT nothing FROM account")
	expect(refusal(err, "42703").Position == 8, "a position")
}

// Transactions that meet each other run again until all of them have counted.
func retries(ctx context.Context, conn *pgx.Conn) {
	var depositors sync.WaitGroup
	for depositor := 0; depositor < 4; depositor++ {
		depositors.Add(1)
		go func() {
			defer depositors.Done()
			own := open(ctx)
			defer own.Close(ctx)
			for deposits := 0; deposits < 10; {
				err := pgx.BeginTxFunc(ctx, own, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
					var balance int32
					if err := tx.QueryRow(ctx, "SELECT balance FROM account WHERE id = 1").Scan(&balance); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "UPDATE account SET balance = $1 WHERE id = 1", balance+1)
					return err
				})
				var refused *pgconn.PgError
				if errors.As(err, &refused) && (refused.Code == "40001" || refused.Code == "40P01") {
					continue
				}
				must(err)
				deposits++
			}
		}()
	}
	depositors.Wait()
	var balance int32
	must(conn.QueryRow(ctx, "SELECT balance FROM account WHERE id = 1").Scan(&balance))
	expect(balance == 40, "a deposit was lost or came twice")
}

// A context that is cancelled sends a cancel request, and the connection stays.
func cancels(ctx context.Context, other *pgx.Conn) {
	config, err := pgx.ParseConfig("")
	must(err)
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: patience}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	must(err)
	defer conn.Close(ctx)
	process := int32(conn.PgConn().PID())
	canceled, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for active := false; !active; {
			must(other.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
				WHERE pid = $1 AND state = 'active' AND query LIKE '%pg_sleep%')`, process).Scan(&active))
		}
	}()
	// By the simple protocol, so that it is executed as soon as it is there.
	_, err = conn.Exec(canceled, "SELECT pg_sleep(60)", pgx.QueryExecModeSimpleProtocol)
	refusal(err, "57014")
	var one int32
	must(conn.QueryRow(ctx, "SELECT 1").Scan(&one))
	expect(one == 1, "after a statement that was cancelled")
}

// Statements that are sent together: all or none of a batch; in a pipeline, what is between two syncs.
func pipelines(ctx context.Context, conn *pgx.Conn) {
	_, err := conn.Exec(ctx, "CREATE TABLE item (id int PRIMARY KEY, n int NOT NULL)")
	must(err)
	batch := &pgx.Batch{}
	for id := 0; id < 500; id++ {
		batch.Queue("INSERT INTO item VALUES ($1, $2)", id, 2*id)
	}
	var sum int64
	batch.Queue("SELECT sum(n) FROM item").QueryRow(func(row pgx.Row) error { return row.Scan(&sum) })
	must(conn.SendBatch(ctx, batch).Close())
	expect(sum == 249_500, "the sum at the end of a batch")

	batch = &pgx.Batch{}
	for _, id := range []int{1000, 1, 1001} {
		batch.Queue("INSERT INTO item VALUES ($1, $2)", id, 0)
	}
	refusal(conn.SendBatch(ctx, batch).Close(), "23505")

	pipeline := conn.PgConn().StartPipeline(ctx)
	for _, id := range []string{"2000", "1", "2001"} {
		pipeline.SendQueryParams("INSERT INTO item VALUES ($1, 0)", [][]byte{[]byte(id)}, nil, nil, nil)
		must(pipeline.Sync())
	}
	refusals := 0
	for {
		results, err := pipeline.GetResults()
		if err != nil {
			refusal(err, "23505")
			refusals++
		} else if results == nil {
			break
		}
	}
	must(pipeline.Close())
	var count int64
	must(conn.QueryRow(ctx, "SELECT count(*) FROM item").Scan(&count))
	expect(refusals == 1 && count == 502, "what was sent in a pipeline")
}

// Rows as they come, also when nobody reads them to the end; and a cursor.
func streams(ctx context.Context, conn *pgx.Conn) {
	series := "SELECT n FROM generate_series(1, $1::int) n"
	rows, err := conn.Query(ctx, series, 100_000)
	must(err)
	var n int32
	var sum int64
	_, err = pgx.ForEachRow(rows, []any{&n}, func() error { sum += int64(n); return nil })
	must(err)
	expect(sum == 5_000_050_000, "the sum of a stream")

	rows, err = conn.Query(ctx, series, 100_000)
	must(err)
	expect(rows.Next(), "a first row")
	rows.Close()

	must(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DECLARE few CURSOR FOR SELECT n FROM generate_series(1, 1000) n")
		must(err)
		total := 0
		for {
			rows, err := tx.Query(ctx, "FETCH 300 FROM few")
			must(err)
			fetched, err := pgx.CollectRows(rows, pgx.RowTo[int32])
			must(err)
			if len(fetched) == 0 {
				break
			}
			total += len(fetched)
		}
		expect(total == 1000, "rows by a cursor")
		return nil
	}))
}

// What another session tells when it commits, and nothing of what it takes back.
func notifications(ctx context.Context, conn *pgx.Conn, other *pgx.Conn) {
	_, err := conn.Exec(ctx, "LISTEN news")
	must(err)
	tx, err := other.Begin(ctx)
	must(err)
	_, err = tx.Exec(ctx, "SELECT pg_notify('news', 'taken back')")
	must(err)
	must(tx.Rollback(ctx))
	_, err = other.Exec(ctx, "SELECT pg_notify('news', $1)", "hello")
	must(err)
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	heard, err := conn.WaitForNotification(limited)
	must(err)
	expect(heard.Channel == "news" && heard.Payload == "hello" && heard.PID == other.PgConn().PID(), "a notification")
}

// What a program meets on the connections that it keeps.
func session(ctx context.Context) {
	conn, other := open(ctx), open(ctx)
	defer conn.Close(ctx)
	defer other.Close(ctx)
	types(ctx, conn)
	modes(ctx, conn)
	constraints(ctx, conn)
	retries(ctx, conn)
	cancels(ctx, other)
	pipelines(ctx, conn)
	streams(ctx, conn)
	notifications(ctx, conn, other)
}
