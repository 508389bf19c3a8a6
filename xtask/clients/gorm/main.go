// gorm: models make their tables, are changed, and find nothing to do the second time; then rows by associations,
// upserts, soft deletes, transactions with savepoints, locks, and the errors as gorm translates them; a retry after 40001,
// rows as they come, and a statement that is given up.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
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

func open() *gorm.DB {
	dsn := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", os.Getenv("PGHOST"), os.Getenv("PGPORT"), os.Getenv("PGUSER"), os.Getenv("PGDATABASE"))
	db, err := gorm.Open(postgres.Open(dsn), &gorm.Config{TranslateError: true, Logger: logger.Default.LogMode(logger.Silent)})
	must(err)
	return db
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
	db := open()
	migrate(db)
	rows(db)
	changes(db)
	failures(db)
	retries(db)
	streams(db)
	later(db)
	fmt.Println("gorm: ok")
}
