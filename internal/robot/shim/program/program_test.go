package program_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/driver/drivertest"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/program"
	"k8s4r.io/k8s4r/internal/robot/shim/setup"
	"k8s4r.io/k8s4r/internal/robot/template"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// build links the shim's program as a release does.
func build(t testing.TB) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "k8s4r-shim")
	link := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "k8s4r.io/k8s4r/internal/robot/shim/k8s4r-shim")
	link.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := link.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// shell returns the config that runs a script.
func shell(script string) wire.TaskConfig {
	return wire.TaskConfig{Exec: &wire.ExecConfig{Command: "sh", Args: []string{"-c", script}}}
}

func TestProgram_PassesDriverSuite(t *testing.T) {
	path := build(t)
	drivertest.Run(t, drivertest.Suite{
		Driver: "exec", Program: path, Shell: shell,
		Unstartable: map[string]wire.TaskConfig{
			`command "/no/such/file" not found`: {Exec: &wire.ExecConfig{Command: "/no/such/file"}},
		},
	})
}

// The test program is the agent's program here, which the shim's program runs for a set-up.
func TestProgram_SetsUpWithTheAgentsProgram(t *testing.T) {
	work := setup.Work{
		Templates: []setup.Template{{
			Template: template.Template{Embedded: `{{ label "site" }}`, DestPath: "config"},
			OnChange: shim.TemplateChange{Signal: unix.SIGUSR1},
		}},
		Data: template.Data{Labels: map[string]string{"site": "hall"}},
	}
	setUp, err := work.Encode()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	spec := shim.Spec{
		Program: build(t), Driver: "exec", Config: shell("trap 'cat config > changed; exit 4' USR1; cat config > first; while :; do sleep 0.01; done"),
		Dir: filepath.Join(dir, "shim"), LogDir: dir, WorkDir: dir, Env: map[string]string{"PATH": driver.DefaultPath}, SetUp: setUp,
	}
	pid, pidfd, err := shim.Spawn(spec, t.Name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	awaitContent(t, filepath.Join(dir, "first"), "hall")
	if err := shim.SendAttributes(spec.Dir, wire.RobotAttributes{Labels: map[string]string{"site": "yard"}}); err != nil {
		t.Fatal(err)
	}
	awaitContent(t, filepath.Join(dir, "changed"), "yard")
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	if s, err := shim.ReadState(spec.Dir); err != nil || s.Exit == nil || s.Exit.Code != 4 {
		t.Errorf("state = %+v, %v, want code 4", s, err)
	}
}

// awaitContent waits until a file has this content.
func awaitContent(t *testing.T, path, want string) {
	t.Helper()
	var got []byte
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if got, _ = os.ReadFile(path); string(got) == want {
			return
		}
	}
	t.Fatalf("%s has %q, want %q", path, got, want)
}

// compress returns what the agent carries of a program.
func compress(t *testing.T, program []byte) string {
	t.Helper()
	var b strings.Builder
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(program)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// agent.TestProgramSize measures the rest of the agent.
func TestProgram_AddsOneMBToTheAgent(t *testing.T) {
	const most = 5 << 18
	b, err := os.ReadFile(build(t))
	if err != nil {
		t.Fatal(err)
	}
	if size := len(compress(t, b)); size > most {
		t.Errorf("the program has %d bytes in the agent, want at most %d", size, most)
	}
}

func TestOpen_MakesAnExecutableThatCannotBeChanged(t *testing.T) {
	b, err := os.ReadFile(build(t))
	if err != nil {
		t.Fatal(err)
	}
	open := program.NewOpener(compress(t, b))
	defer runtime.KeepAlive(open)
	path, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("another"), 0); err == nil {
		t.Error("the program can be overwritten")
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(b) {
		t.Errorf("%d bytes (%v) are in memory, want the %d of the program", len(got), err, len(b))
	}
}

func TestOpen_FindsAProgramThatCannotRun(t *testing.T) {
	for what, text := range map[string]string{"no program": "text", "another program": "#!/bin/sh\nexit 2\n"} {
		if path, err := program.NewOpener(compress(t, []byte(text)))(); err == nil || path != "" {
			t.Errorf("%s: opened as %q, %v, want an error", what, path, err)
		}
	}
}

// The first task may come while the robot lacks descriptors, processes or memory.
func TestOpen_TriesAgainAfterALack(t *testing.T) {
	b, err := os.ReadFile(build(t))
	if err != nil {
		t.Fatal(err)
	}
	open := program.NewOpener(compress(t, b))
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	_, lack := open()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(lack, unix.EMFILE) {
		t.Fatalf("without descriptors: %v, want EMFILE", lack)
	}
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := open(); err != nil || second != first {
		t.Errorf("opened as %q, %v after %q, want the same", second, err, first)
	}
}

func TestPathFor_IsTheAgentsProgramUnlessCarried(t *testing.T) {
	for _, name := range []string{"docker", "unknown"} {
		if path := program.PathFor(name); path != "" {
			t.Errorf("the shim of driver %s is %s, want the agent's program", name, path)
		}
	}
	if err := program.Usable(); errors.Is(err, program.ErrNotCarried) == program.Carried {
		t.Errorf("Usable = %v; carried: %v", err, program.Carried)
	}
	for _, name := range []string{"exec", "raw_exec", "java"} {
		if path := program.PathFor(name); (path != "") != program.Carried || path != "" && !strings.HasPrefix(path, "/proc/self/fd/") {
			t.Errorf("the shim of driver %s is %q; carried: %v", name, path, program.Carried)
		}
	}
}

// The text begins and ends within a page.
func TestForgetPages_KeepsTheText(t *testing.T) {
	path, size := filepath.Join(t.TempDir(), "file"), 5*os.Getpagesize()
	if err := os.WriteFile(path, bytes.Repeat([]byte("text"), size/4), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	for _, part := range [][]byte{b, b[100 : size-100], b[100:200], nil} {
		program.ForgetPages(unsafe.String(unsafe.SliceData(part), len(part)))
		if want := bytes.Repeat([]byte("text"), len(part)/4); !bytes.Equal(part, want) {
			t.Errorf("a text of %d bytes has changed", len(part))
		}
	}
}
