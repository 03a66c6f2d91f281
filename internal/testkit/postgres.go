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

// Postgres is a PostgreSQL of Debian's package in a directory of its own.
type Postgres struct {
	// Address of an empty database in it.
	Address string

	t        testing.TB
	programs string
	dir      string
	as       *syscall.SysProcAttr
	server   *exec.Cmd
}

// StartPostgres starts one, which ends with the test. It is reached by a socket in its
// directory.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	dir, err := os.MkdirTemp("", "k8s4r-postgres") // the test's own is closed to another user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &Postgres{
		t: t, programs: postgresPrograms(t), dir: dir, as: postgresUser(t, dir),
	}
	p.run("initdb", "--pgdata", p.data(), "--username=archive", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	t.Cleanup(p.Stop)
	p.Start()
	p.Address = p.Database("history")
	return p
}

// Database makes another empty one, and returns its address.
func (p *Postgres) Database(name string) string {
	p.t.Helper()
	p.run("createdb", "-h", p.dir, "-U", "archive", name)
	return "postgres://archive@/" + name + "?host=" + p.dir
}

// Start starts it again, and returns once it can be reached.
func (p *Postgres) Start() {
	p.t.Helper()
	p.server = exec.Command(filepath.Join(p.programs, "postgres"), "-D", p.data(), "-k", p.dir, "-c", "listen_addresses=", "-c", "shared_buffers=64MB")
	p.server.Dir, p.server.SysProcAttr = p.dir, p.as
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

// Stop ends it, as a power cut would: what it has not written down is lost.
func (p *Postgres) Stop() {
	if p.server == nil {
		return
	}
	p.server.Process.Signal(syscall.SIGQUIT)
	p.server.Wait()
	p.server = nil
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// run runs one of PostgreSQL's programs.
func (p *Postgres) run(program string, args ...string) {
	p.t.Helper()
	cmd := exec.Command(filepath.Join(p.programs, program), args...)
	cmd.Dir, cmd.SysProcAttr = p.dir, p.as
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// postgresPrograms is the directory of the newest version. Debian keeps it out of the path.
func postgresPrograms(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is a good one
	if len(found) == 0 {
		t.Fatal("there is no PostgreSQL: hack/deps archive installs it")
	}
	return filepath.Dir(found[len(found)-1])
}

// postgresUser is who runs it, for it refuses to be run by root.
func postgresUser(t testing.TB, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres") // the package makes it
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid) // they are numbers here
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
