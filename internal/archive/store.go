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
	// postgresConnections of one program. A server has a hundred unless configured
	// otherwise.
	postgresConnections = 10
	// connectTimeout of an address that names none. A server that does not answer would
	// delay all callers for minutes.
	connectTimeout = 5 * time.Second
	// busyTimeout is how long SQLite waits for another program that writes.
	busyTimeout = 10 * time.Second
)

// Store is an archive. Its methods may be called from any goroutine.
type Store struct {
	db         *sql.DB
	dialect    goose.Dialect
	file       string // of SQLite; empty: PostgreSQL
	now        func() time.Time
	maxRuns    int
	few        int
	pruneBatch int32
	maxActions int64

	// write lets one goroutine of this program write to SQLite at a time: the others
	// would wait for it by polling.
	write sync.Mutex

	mu    sync.Mutex // over ready
	ready bool
}

// Option changes how a Store is opened.
type Option func(*Store)

// WithClock replaces time.Now.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// WithMaxRuns bounds the runs that statistics count, in place of MaxRuns.
func WithMaxRuns(n int) Option { return func(s *Store) { s.maxRuns = n } }

// WithFew replaces the limit Few.
func WithFew(n int) Option { return func(s *Store) { s.few = n } }

// WithMaxActions replaces the limit MaxActions.
func WithMaxActions(n int64) Option { return func(s *Store) { s.maxActions = n } }

// WithPruneBatch replaces the limit PruneBatch.
func WithPruneBatch(n int32) Option { return func(s *Store) { s.pruneBatch = n } }

// Open returns the archive at an address: sqlite:PATH, or postgres://USER@HOST/DATABASE
// with the parameters that PostgreSQL's own programs take; what the address leaves out, such
// as the password, comes from their environment (PGPASSWORD, PGPASSFILE). It does not
// connect: an archive that is down is one whose methods fail until it is back. The error is
// about the address.
func Open(address string, opts ...Option) (*Store, error) {
	s := &Store{now: time.Now, maxRuns: MaxRuns, few: Few, pruneBatch: PruneBatch, maxActions: MaxActions}
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
		return errors.New("sqlite: the path is missing; write sqlite:PATH")
	}
	file, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	s.file, s.dialect = file, goose.DialectSQLite3
	pragmas := url.Values{"_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
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

// Check returns an error if the archive cannot be reached. It creates the tables if needed.
func (s *Store) Check(ctx context.Context) error {
	if _, err := s.readyQueries(ctx); err != nil {
		return err
	}
	return s.db.PingContext(ctx)
}

// readyQueries returns the statements, once the tables exist.
func (s *Store) readyQueries(ctx context.Context) (*sqldb.Queries, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		if err := s.migrateTables(ctx); err != nil {
			return nil, fmt.Errorf("archive: migrate: %w", err)
		}
		s.ready = true
	}
	return sqldb.New(s.db), nil
}

func (s *Store) migrateTables(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	opts := []goose.ProviderOption{goose.WithLogger(goose.NopLogger())}
	if s.file != "" {
		if err := restrictFile(s.file); err != nil {
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
	if err := s.checkFormat(ctx, p); err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// firstFormat is the oldest version of the tables that this program reads. The objects in older
// ones have fields and reasons that were renamed since.
const firstFormat = 10

// ErrOldFormat rejects an archive that a program of an earlier version has written.
var ErrOldFormat = errors.New("written by an earlier version, whose format this program cannot read; " +
	"move it away to keep it for that version, or delete it, or set --archive to another address")

// checkFormat returns ErrOldFormat for tables older than firstFormat. It changes nothing in them.
func (s *Store) checkFormat(ctx context.Context, p *goose.Provider) error {
	version, err := p.GetDBVersion(ctx)
	if err != nil || version == 0 || version >= firstFormat {
		return err
	}
	what := "the PostgreSQL database"
	if s.file != "" {
		what = s.file
	}
	return fmt.Errorf("%s has format %d: %w", what, version, ErrOldFormat)
}

// restrictFile creates the file, which holds manifests, readable by its owner only. SQLite gives
// the files beside it the same mode.
func restrictFile(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// inTransaction runs f in one transaction: all of it happens, or nothing.
func (s *Store) inTransaction(ctx context.Context, f func(*sqldb.Queries) error) error {
	q, err := s.readyQueries(ctx)
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
