package archive

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	_ "modernc.org/sqlite" // the driver sqlite

	"k8s4r.io/k8s4r/internal/archive/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// sqliteConnections may read at a time.
	sqliteConnections = 4
	// postgresConnections of one program. A server has a hundred unless it is told
	// otherwise.
	postgresConnections = 10
	// connectTimeout of an address that names none. A server that answers nothing would
	// hold everybody up for minutes.
	connectTimeout = 5 * time.Second
	// busy is how long SQLite waits for another program that writes.
	busy = 10 * time.Second
)

// Store is an archive. Its methods may be called from any goroutine.
type Store struct {
	db      *sql.DB
	dialect goose.Dialect
	file    string // of SQLite; empty: PostgreSQL
	now     func() time.Time
	maxRuns int
	few     int

	// write lets one goroutine of this program write to SQLite at a time: the others
	// would wait for it by polling.
	write sync.Mutex

	mu    sync.Mutex // over ready
	ready bool
}

// Option changes how a Store is opened.
type Option func(*Store)

// WithClock has the Store read this clock, in place of time.Now.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// WithMaxRuns has statistics count so many runs, in place of MaxRuns.
func WithMaxRuns(n int) Option { return func(s *Store) { s.maxRuns = n } }

// WithFew has a search by name or label gather so many objects that match, in place of Few,
// before it looks through all, the last created first.
func WithFew(n int) Option { return func(s *Store) { s.few = n } }

// Open returns the archive at an address: sqlite:PATH, or postgres://USER@HOST/DATABASE
// with the parameters that PostgreSQL's own programs take; what the address leaves out, such
// as the password, comes from their environment (PGPASSWORD, PGPASSFILE). It does not
// connect: an archive that is down is one whose methods fail until it is back. The error is
// about the address.
func Open(address string, opts ...Option) (*Store, error) {
	s := &Store{now: time.Now, maxRuns: MaxRuns, few: Few}
	scheme, rest, _ := strings.Cut(address, ":")
	var err error
	switch scheme {
	case "sqlite":
		err = s.openSQLite(rest)
	case "postgres", "postgresql":
		s.dialect = goose.DialectPostgres
		err = s.openPostgres(address)
	default:
		err = errors.New("must be sqlite:PATH or postgres://USER@HOST/DATABASE")
	}
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	for _, o := range opts {
		o(s)
	}
	return s, nil
}

func (s *Store) openSQLite(path string) error {
	if path == "" {
		return errors.New("sqlite: names no file; write sqlite:PATH")
	}
	file, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	s.file, s.dialect = file, goose.DialectSQLite3
	pragmas := url.Values{"_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()),
		"auto_vacuum(incremental)", // before the first table; Prune gives the room back
		"journal_mode(WAL)",
		"journal_size_limit(67108864)", // a WAL that grew once would stay as large
		// An object may be deleted as soon as it is recorded, so a commit outlives a
		// power cut.
		"synchronous(FULL)",
		"foreign_keys(on)",
	}}
	name := url.URL{Scheme: "file", OmitHost: true, Path: file, RawQuery: pragmas.Encode()}
	if s.db, err = sql.Open("sqlite", name.String()); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(sqliteConnections)
	s.db.SetMaxIdleConns(sqliteConnections)
	return nil
}

func (s *Store) openPostgres(address string) error {
	config, err := pgx.ParseConfig(address) // its errors hide the password
	if err != nil {
		return err
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	s.db = stdlib.OpenDB(*config)
	s.db.SetMaxOpenConns(postgresConnections)
	s.db.SetMaxIdleConns(postgresConnections)
	return nil
}

// Close ends all connections.
func (s *Store) Close() error { return s.db.Close() }

// Check tells whether the archive can be reached, and makes it ready to be used if so.
func (s *Store) Check(ctx context.Context) error {
	if _, err := s.queries(ctx); err != nil {
		return err
	}
	return s.db.PingContext(ctx)
}

// queries are the statements, once the tables are there.
func (s *Store) queries(ctx context.Context) (*sqldb.Queries, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		if err := s.migrate(ctx); err != nil {
			return nil, fmt.Errorf("archive: migrate: %w", err)
		}
		s.ready = true
	}
	return sqldb.New(s.db), nil
}

func (s *Store) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	opts := []goose.ProviderOption{goose.WithLogger(goose.NopLogger())}
	if s.file != "" {
		if err := private(s.file); err != nil {
			return err
		}
	} else {
		one, err := lock.NewPostgresSessionLocker() // two programs may start at once
		if err != nil {
			return err
		}
		opts = append(opts, goose.WithSessionLocker(one))
	}
	p, err := goose.NewProvider(s.dialect, s.db, files, opts...)
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// private makes the file, which holds what is in manifests, for its owner alone. What
// SQLite writes beside it takes the same mode.
func private(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// change runs f in one transaction: all of it happens, or nothing.
func (s *Store) change(ctx context.Context, f func(*sqldb.Queries) error) error {
	q, err := s.queries(ctx)
	if err != nil {
		return err
	}
	if s.file != "" {
		s.write.Lock()
		defer s.write.Unlock()
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := f(q.WithTx(tx)); err != nil {
		return err
	}
	return tx.Commit()
}
