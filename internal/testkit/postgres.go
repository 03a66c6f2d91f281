package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Postgres is a PostgreSQL server of Debian's package with its own data directory.
type Postgres struct {
	// Address is the URL of an empty database.
	Address string

	t           testing.TB
	programs    string
	dir         string
	sysProcAttr *syscall.SysProcAttr
	server      *exec.Cmd
}

// StartPostgres starts a server that listens on a socket in its directory, and stops it when the
// test ends.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	dir, err := os.MkdirTemp("", "k8s4r-postgres") // another user cannot read t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &Postgres{
		t: t, programs: postgresPrograms(t), dir: dir, sysProcAttr: postgresUser(t, dir),
	}
	p.runProgram("initdb", "--pgdata", p.dataDir(), "--username=archive", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	t.Cleanup(p.Stop)
	p.Start()
	p.Address = p.CreateDatabase("history")
	return p
}

// CreateDatabase creates another empty database and returns its URL.
func (p *Postgres) CreateDatabase(name string) string {
	p.t.Helper()
	p.runProgram("createdb", "-h", p.dir, "-U", "archive", name)
	return "postgres://archive@/" + name + "?host=" + p.dir
}

// Start starts the server again and returns once it accepts connections.
func (p *Postgres) Start() {
	p.t.Helper()
	p.server = exec.Command(filepath.Join(p.programs, "postgres"), "-D", p.dataDir(), "-k", p.dir, "-c", "listen_addresses=", "-c", "shared_buffers=64MB")
	p.server.Dir, p.server.SysProcAttr = p.dir, p.sysProcAttr
	log := &tail{}
	p.server.Stdout, p.server.Stderr = log, log
	if err := p.server.Start(); err != nil {
		p.t.Fatal(err)
	}
	EventuallyNoError(p.t, 30*time.Second, "PostgreSQL", func() error {
		out, err := exec.Command(filepath.Join(p.programs, "pg_isready"), "-h", p.dir).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s\n%s", err, out, log)
		}
		return nil
	})
}

// Stop kills the server without a checkpoint, as a power failure would.
func (p *Postgres) Stop() {
	if p.server == nil {
		return
	}
	p.server.Process.Signal(syscall.SIGQUIT)
	p.server.Wait()
	p.server = nil
}

func (p *Postgres) dataDir() string { return filepath.Join(p.dir, "data") }

// runProgram runs one of PostgreSQL's programs to its end.
func (p *Postgres) runProgram(program string, args ...string) {
	p.t.Helper()
	cmd := exec.Command(filepath.Join(p.programs, program), args...)
	cmd.Dir, cmd.SysProcAttr = p.dir, p.sysProcAttr
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// postgresPrograms returns the directory of the newest version, which is not in the PATH.
func postgresPrograms(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is valid
	if len(found) == 0 {
		t.Fatal("PostgreSQL is not installed; run hack/deps archive")
	}
	return filepath.Dir(found[len(found)-1])
}

// postgresUser returns the credentials of the user postgres if the test runs as root, which
// PostgreSQL refuses.
func postgresUser(t testing.TB, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres") // created by the Debian package
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid) // always numbers on Linux
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
