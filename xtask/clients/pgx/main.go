// Rows to a table by CopyFrom, values of domains, and what a session meets (session.go).
package main

import (
	"bytes"
	"context"
	"errors"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func expect(ok bool, what string) {
	if !ok {
		log.Fatal(what)
	}
}

func main() {
	ctx := context.Background()
	copies(ctx)
	session(ctx)
}

func copies(ctx context.Context) {
	conn := open(ctx)
	defer conn.Close(ctx)
	_, err := conn.Exec(ctx, `CREATE DOMAIN positive AS int CHECK (VALUE > 0);
		CREATE TABLE thing (id int8 PRIMARY KEY, name text, at timestamptz, n numeric, tags text[], p positive)`)
	must(err)
	noon := time.Date(2024, 7, 1, 12, 0, 0, 0, time.UTC)
	var rows [][]any
	for id := int64(0); id < 5000; id++ {
		rows = append(rows, []any{id, "name", noon, "1.50", []string{"a", "b"}, nil})
	}
	rows[7] = []any{int64(7), nil, nil, nil, nil, int32(7)}
	columns := []string{"id", "name", "at", "n", "tags", "p"}
	count, err := conn.CopyFrom(ctx, pgx.Identifier{"thing"}, columns, pgx.CopyFromRows(rows))
	must(err)
	expect(count == 5000, "not all rows were copied")

	var name *string
	var at *time.Time
	var p int32
	must(conn.QueryRow(ctx, "SELECT name, at, p FROM thing WHERE id = $1", 7).Scan(&name, &at, &p))
	expect(name == nil && at == nil && p == 7, "NULL and a domain's value")
	var tags []string
	must(conn.QueryRow(ctx, "SELECT at, tags FROM thing WHERE id = $1", 8).Scan(&at, &tags))
	expect(at.Equal(noon) && len(tags) == 2, "a moment and an array")

	// A row that is refused takes all others with it.
	count, err = conn.CopyFrom(ctx, pgx.Identifier{"thing"}, columns[:1], pgx.CopyFromRows([][]any{{int64(9000)}, {int64(7)}}))
	var refused *pgconn.PgError
	expect(errors.As(err, &refused) && refused.Code == "23505" && count == 0, "a key is there twice")
	must(conn.QueryRow(ctx, "SELECT count(*)::int FROM thing").Scan(&p))
	expect(p == 5000, "a row stayed")
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"thing"}, []string{"id", "p"}, pgx.CopyFromRows([][]any{{int64(9000), int32(-1)}}))
	expect(errors.As(err, &refused) && refused.Code == "23514" && refused.DataTypeName == "positive", "-1 is positive")
	_, err = conn.Exec(ctx, "INSERT INTO thing (id, p) VALUES (9000, $1)", -1)
	expect(errors.As(err, &refused) && refused.ConstraintName == "positive_check", "-1 is positive")

	var data bytes.Buffer
	_, err = conn.PgConn().CopyTo(ctx, &data, "COPY (SELECT id FROM thing) TO STDOUT (FORMAT binary)")
	must(err)
	expect(data.Len() == 19+5000*14+2, "header, rows and trailer")
}
