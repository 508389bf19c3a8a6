// gorm: models make their tables, are changed, and find nothing to do the second time; then rows by associations,
// upserts, soft deletes, values of all types in both formats, transactions with savepoints, locks, and the errors as gorm
// translates them and as the server sends them; a retry after 40001, many statements at once, rows as they come, and a
// statement that is given up.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

type Customer struct {
	gorm.Model
	Name    string `gorm:"size:40;uniqueIndex;not null"`
	Email   *string
	Age     uint8 `gorm:"check:age_is_sane,age < 150;default:18"`
	Born    *time.Time
	Orders  []Order
	Groups  []Group `gorm:"many2many:customer_groups"`
	Address Address `gorm:"embedded;embeddedPrefix:address_"`
	Data    []byte
}

type Address struct {
	Street string
	City   string `gorm:"index:by_city,where:address_city <> ''"`
}

type Order struct {
	ID         uint `gorm:"primaryKey"`
	CustomerID uint
	Customer   Customer `gorm:"constraint:OnDelete:CASCADE"`
	Total      float64  `gorm:"type:numeric(12,2)"`
	State      string   `gorm:"type:varchar(10);default:'open'"`
	CreatedAt  time.Time
}

type Group struct {
	Code string `gorm:"primaryKey"`
	Note sql.NullString
}

// What a newer version of the program has of the same table.
type OrderLater struct {
	ID       uint    `gorm:"primaryKey"`
	Total    float64 `gorm:"type:numeric(14,3)"`
	State    string  `gorm:"type:varchar(20);default:'new'"`
	Priority int     `gorm:"not null;default:3;index"`
}

func (OrderLater) TableName() string { return "orders" }

func must(err error) {
	if err != nil {
		log.Fatalf("%+v", err)
	}
}

func check(holds bool, what string, values ...any) {
	if !holds {
		log.Fatalf("%s: %v", what, values)
	}
}

func open(translates, simple bool) *gorm.DB {
	dsn := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", os.Getenv("PGHOST"), os.Getenv("PGPORT"), os.Getenv("PGUSER"), os.Getenv("PGDATABASE"))
	dialect := postgres.New(postgres.Config{DSN: dsn, PreferSimpleProtocol: simple})
	db, err := gorm.Open(dialect, &gorm.Config{TranslateError: translates, Logger: logger.Default.LogMode(logger.Silent)})
	must(err)
	return db
}

type Everything struct {
	ID       int64
	Small    int16     `gorm:"type:smallint"`
	Middle   int32     `gorm:"type:integer"`
	Double   float64   `gorm:"type:double precision"`
	Single   float32   `gorm:"type:real"`
	Exact    string    `gorm:"type:numeric(20,5)"`
	Truth    bool      `gorm:"type:boolean"`
	Words    string    `gorm:"type:text"`
	Fixed    string    `gorm:"type:char(5)"`
	Bytes    []byte    `gorm:"type:bytea"`
	Day      time.Time `gorm:"type:date"`
	Clock    string    `gorm:"type:time without time zone"`
	Moment   time.Time `gorm:"type:timestamptz"`
	Local    time.Time `gorm:"type:timestamp"`
	Span     string    `gorm:"type:interval"`
	Key      string    `gorm:"type:uuid"`
	Document string    `gorm:"type:jsonb"`
	Numbers  string    `gorm:"type:integer[]"`
	Network  string    `gorm:"type:inet"`
	Missing  *string   `gorm:"type:varchar(10)"`
}

// Values of all types, sent and read as text by the simple protocol, and in binary where the driver knows the type by the other.
func types(db *gorm.DB) {
	must(db.AutoMigrate(&Everything{}))
	moment := time.Date(2024, 2, 29, 23, 59, 58, 123456000, time.UTC)
	given := Everything{
		Small: -32768, Middle: 2147483647, Double: 0.1, Single: 0.25, Exact: "-123456789012345.00001", Truth: true, Words: "täxt '\\", Fixed: "ab   ",
		Bytes: []byte{0, 39, 92, 255}, Day: moment.Truncate(24 * time.Hour), Clock: "01:02:03.000004", Moment: moment, Local: moment,
		Span: "1 mon 2 days 03:04:05.000006", Key: "6f1b8a3e-5c1d-4f6a-9d0e-2b7c8a9e0f11", Document: `{"a": [1, null]}`, Numbers: "{1,NULL,3}",
		Network: "10.0.0.0/8",
	}
	must(db.Create(&given).Error)
	var read Everything
	must(db.First(&read, given.ID).Error)
	check(read.Day.Equal(given.Day) && read.Moment.Equal(given.Moment) && read.Local.Equal(given.Local), "dates", read)
	read.Day, read.Moment, read.Local = given.Day, given.Moment, given.Local
	check(reflect.DeepEqual(read, given), "values", read, given)
	must(db.Migrator().DropTable(&Everything{}))
}

func migrate(db *gorm.DB) {
	for range 2 {
		must(db.AutoMigrate(&Customer{}, &Order{}, &Group{}))
	}
	check(db.Migrator().HasTable("customer_groups"), "the table between")
	check(db.Migrator().HasIndex(&Customer{}, "by_city"), "a partial index")
	check(db.Migrator().HasConstraint(&Customer{}, "age_is_sane"), "a check")
	check(db.Migrator().HasColumn(&Customer{}, "address_street"), "an embedded column")
}

func rows(db *gorm.DB) {
	mail := "a@example.org"
	first := Customer{
		Name: "first", Email: &mail, Age: 30, Address: Address{"street", "city"}, Data: []byte{0, 255},
		Orders: []Order{{Total: 10.25}, {Total: 20.5, State: "paid"}},
		Groups: []Group{{Code: "vip", Note: sql.NullString{String: "x", Valid: true}}, {Code: "old"}},
	}
	must(db.Create(&first).Error)
	check(first.ID == 1 && first.Orders[1].ID == 2, "generated keys", first.ID)
	var many []Customer
	for i := range 100 {
		many = append(many, Customer{Name: fmt.Sprintf("customer %d", i)})
	}
	must(db.CreateInBatches(&many, 30).Error)
	check(many[0].Age == 18, "a default that came back", many[0].Age)

	var read Customer
	must(db.Preload("Orders", "total > ?", 15).Preload("Groups").First(&read, "name = ?", "first").Error)
	check(len(read.Orders) == 1 && read.Orders[0].State == "paid" && len(read.Groups) == 2, "associations", read)
	check(*read.Email == mail && read.Data[1] == 255 && read.Address.City == "city", "columns", read)
	var sums []struct {
		Name  string
		Total float64
	}
	must(db.Model(&Order{}).Select("customers.name, sum(total) total").Joins("JOIN customers ON customers.id = orders.customer_id").
		Group("customers.name").Having("sum(total) > ?", 1).Scan(&sums).Error)
	check(len(sums) == 1 && sums[0].Total == 30.75, "sums", sums)
	var count int64
	must(db.Model(&Customer{}).Where("name LIKE ? AND id IN (?)", "customer%", db.Model(&Customer{}).Select("id").Where("age = 18")).Count(&count).Error)
	check(count == 100, "a subquery", count)
	must(db.Model(&read).Association("Groups").Delete(&Group{Code: "old"}))
	check(db.Model(&read).Association("Groups").Count() == 1, "an association that was deleted")
}

func changes(db *gorm.DB) {
	upsert := clause.OnConflict{Columns: []clause.Column{{Name: "code"}}, DoUpdates: clause.AssignmentColumns([]string{"note"})}
	must(db.Clauses(upsert).Create(&[]Group{{Code: "vip", Note: sql.NullString{String: "changed", Valid: true}}, {Code: "new"}}).Error)
	must(db.Clauses(clause.OnConflict{DoNothing: true}).Create(&Group{Code: "vip"}).Error)
	var vip Group
	must(db.Take(&vip, "code = ?", "vip").Error)
	check(vip.Note.String == "changed", "an upsert", vip)

	updated := db.Model(&Customer{}).Where("name LIKE ?", "customer 1%").Updates(map[string]any{"age": gorm.Expr("age + ?", 1)})
	must(updated.Error)
	check(updated.RowsAffected == 11, "rows", updated.RowsAffected)
	var returned []Customer
	must(db.Model(&returned).Clauses(clause.Returning{Columns: []clause.Column{{Name: "id"}, {Name: "age"}}}).Where("age = ?", 19).Update("age", 20).Error)
	check(len(returned) == 11 && returned[0].Age == 20, "RETURNING", len(returned))

	must(db.Delete(&Customer{}, "name = ?", "customer 5").Error)
	check(errors.Is(db.First(&Customer{}, "name = ?", "customer 5").Error, gorm.ErrRecordNotFound), "a soft delete")
	must(db.Unscoped().First(&Customer{}, "name = ?", "customer 5").Error)
}

func failures(db *gorm.DB) {
	check(errors.Is(db.Create(&Customer{Name: "first"}).Error, gorm.ErrDuplicatedKey), "23505")
	check(errors.Is(db.Create(&Order{CustomerID: 9999}).Error, gorm.ErrForeignKeyViolated), "23503")
	check(errors.Is(db.Create(&Customer{Name: "old", Age: 200}).Error, gorm.ErrCheckConstraintViolated), "23514")
	plain := open(false, false)
	for _, broken := range []struct{ statement, code, column, constraint string }{
		{"INSERT INTO customers (name) VALUES (NULL)", "23502", "name", ""},
		{"INSERT INTO customers (name) VALUES ('first')", "23505", "", "idx_customers_name"},
		{"INSERT INTO customers (name, age) VALUES ('old', 200)", "23514", "", "age_is_sane"},
		{"INSERT INTO orders (customer_id) VALUES (9999)", "23503", "", "fk_customers_orders"},
	} {
		var sent *pgconn.PgError
		check(errors.As(plain.Exec(broken.statement).Error, &sent), "a refusal", broken)
		check(sent.Code == broken.code && sent.ColumnName == broken.column && sent.ConstraintName == broken.constraint, "its fields", sent)
		check(sent.SchemaName == "public" && sent.TableName != "", "its table", sent)
	}

	must(db.Transaction(func(tx *gorm.DB) error {
		must(tx.Create(&Customer{Name: "outside"}).Error)
		err := tx.Transaction(func(inner *gorm.DB) error {
			must(inner.Create(&Customer{Name: "inside"}).Error)
			return inner.Create(&Customer{Name: "first"}).Error
		})
		check(errors.Is(err, gorm.ErrDuplicatedKey), "the inner one's failure", err)
		var locked Customer
		return tx.Clauses(clause.Locking{Strength: "UPDATE", Options: "SKIP LOCKED"}).First(&locked, "name = ?", "first").Error
	}))
	var names []string
	must(db.Model(&Customer{}).Where("name IN ?", []string{"outside", "inside"}).Pluck("name", &names).Error)
	check(len(names) == 1 && names[0] == "outside", "a savepoint", names)
}

type Purse struct {
	ID     int
	Amount int
}

// A transaction is refused since another one has changed what it read; run again, it comes to its end.
func retries(db *gorm.DB) {
	must(db.AutoMigrate(&Purse{}))
	must(db.Create(&Purse{ID: 1, Amount: 10}).Error)
	attempts := 0
	for done := false; !done; {
		attempts++
		err := db.Transaction(func(tx *gorm.DB) error {
			var purse Purse
			if err := tx.First(&purse, 1).Error; err != nil {
				return err
			}
			if attempts == 1 {
				must(db.Exec("UPDATE purses SET amount = amount + 5").Error)
			}
			return tx.Model(&purse).Update("amount", purse.Amount+1).Error
		}, &sql.TxOptions{Isolation: sql.LevelSerializable})
		var refused *pgconn.PgError
		if errors.As(err, &refused) {
			check(refused.Code == "40001" && attempts == 1, "a refusal", refused)
			continue
		}
		must(err)
		done = true
	}
	var purse Purse
	must(db.First(&purse, 1).Error)
	check(attempts == 2 && purse.Amount == 16, "a second attempt", attempts, purse)
	must(db.Migrator().DropTable(&Purse{}))
}

// Many statements in one journey, by the driver beneath.
func pipelines(db *gorm.DB) {
	pool, err := db.DB()
	must(err)
	one, err := pool.Conn(context.Background())
	must(err)
	defer one.Close()
	must(one.Raw(func(driver any) error {
		batch := &pgx.Batch{}
		for n := range 100 {
			batch.Queue("SELECT $1::int + 1", n)
		}
		answers := driver.(*stdlib.Conn).Conn().SendBatch(context.Background(), batch)
		for n := range 100 {
			var next int
			must(answers.QueryRow().Scan(&next))
			check(next == n+1, "an answer in its order", n, next)
		}
		return answers.Close()
	}))
}

// Rows as they come; and a statement that is given up ends at the server, too.
func streams(db *gorm.DB) {
	rows, err := db.Raw("SELECT n FROM generate_series(1, ?::int) n", 1000).Rows()
	must(err)
	sum := 0
	for rows.Next() {
		var n int
		must(rows.Scan(&n))
		sum += n
	}
	must(rows.Err())
	must(rows.Close())
	check(sum == 500500, "the sum of a stream", sum)

	limited, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	err = db.WithContext(limited).Exec("SELECT pg_sleep(60)").Error
	check(errors.Is(err, context.DeadlineExceeded), "a statement that was given up", err)
	for sleeping := int64(1); sleeping > 0; {
		must(db.Raw("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(60)'").Scan(&sleeping).Error)
	}
}

func later(db *gorm.DB) {
	for range 2 {
		must(db.AutoMigrate(&OrderLater{}))
	}
	var one OrderLater
	must(db.First(&one, 1).Error)
	check(one.Priority == 3 && one.Total == 10.25, "a column that came later", one)
	types, err := db.Migrator().ColumnTypes(&OrderLater{})
	must(err)
	for _, column := range types {
		if column.Name() == "total" {
			precision, scale, _ := column.DecimalSize()
			check(precision == 14 && scale == 3, "a changed type", precision, scale)
		}
	}
	must(db.Migrator().RenameColumn(&OrderLater{}, "priority", "urgency"))
	must(db.Migrator().DropColumn(&OrderLater{}, "urgency"))
	must(db.Migrator().DropTable(&Order{}, "customer_groups", &Group{}, &Customer{}))
}

func main() {
	db := open(true, false)
	migrate(db)
	rows(db)
	types(db)
	types(open(true, true))
	changes(db)
	failures(db)
	retries(db)
	pipelines(db)
	streams(db)
	later(db)
	fmt.Println("gorm: ok")
}
