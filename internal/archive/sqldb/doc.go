// Package sqldb is the archive's fixed statements, generated from queries.sql.
package sqldb
