module gormclient

go 1.24

require (
	gorm.io/driver/postgres v1.6.0
	gorm.io/gorm v1.31.1
)
