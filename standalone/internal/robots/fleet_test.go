package robots

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

// callHome makes this test program an agent: it connects to the address in this variable, sends its
// process id and waits.
const callHome = "K8S4R_TEST_CALL_HOME"

func TestMain(m *testing.M) {
	if address := os.Getenv(callHome); address != "" {
		standIn(address)
	}
	os.Exit(m.Run())
}

// standIn acts as an agent. It exits after SIGTERM or when its parent exits, and with an error when
// the test closes the connection.
func standIn(address string) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		os.Exit(1)
	}
	fmt.Printf("hello from %s\n", os.Args[1])
	fmt.Fprintf(conn, "%d %s\n", os.Getpid(), strings.Join(os.Args[1:], " "))
	go func() { io.Copy(io.Discard, os.NewFile(3, "parent")); os.Exit(0) }()
	go func() { <-stop; os.Exit(0) }()
	io.Copy(io.Discard, conn)
	os.Exit(7)
}

// home is the listener that stand-ins connect to.
type home struct {
	net.Listener
	t *testing.T
}

func newHome(t *testing.T) home {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Setenv(callHome, l.Addr().String())
	return home{l, t}
}

type call struct {
	net.Conn
	pid  int
	args string
}

// next waits for the next stand-in.
func (h home) next() call {
	h.t.Helper()
	h.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
	conn, err := h.Accept()
	if err != nil {
		h.t.Fatalf("no agent calls: %v", err)
	}
	line := make([]byte, 4096)
	n, err := conn.Read(line)
	if err != nil {
		h.t.Fatal(err)
	}
	c := call{Conn: conn}
	pid, args, _ := strings.Cut(strings.TrimSpace(string(line[:n])), " ")
	fmt.Sscan(pid, &c.pid)
	c.args = args
	return c
}

// ended waits until the stand-in's process has exited, which closes its connection.
func (c call) ended(t *testing.T) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err != nil && os.IsTimeout(err) {
		t.Errorf("process %d still runs", c.pid)
	}
}

func fleet(t *testing.T, ids ...string) (*Fleet, Config, chan time.Duration) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pauses := make(chan time.Duration)
	dir := t.TempDir()
	c := Config{
		Agent: self, IDs: ids,
		Connect:  func(context.Context) ([]string, error) { return []string{"--mqtt-url=mqtt://broker:1"}, nil },
		StateDir: filepath.Join(dir, "robots"), LogDir: filepath.Join(dir, "logs"),
		Log: slog.New(slog.DiscardHandler),
		Wait: func(ctx context.Context, d time.Duration) {
			select {
			case pauses <- d:
			case <-ctx.Done():
			}
		},
	}
	return New(c), c, pauses
}

func TestFleet_StartsOneAgentPerRobot(t *testing.T) {
	h := newHome(t)
	f, c, _ := fleet(t, "robot-1", "robot-2")
	f.cfg.Heartbeat = 7 * time.Second
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := []call{h.next(), h.next()}
	slices.SortFunc(calls, func(a, b call) int { return strings.Compare(a.args, b.args) })
	for i, id := range c.IDs {
		want := fmt.Sprintf("--robot-id=%[1]s --label=robot=%[1]s --state-dir=%s --parent-fd=3 --on-stop=end --mqtt-url=mqtt://broker:1 --heartbeat=7s", id, filepath.Join(c.StateDir, id))
		if calls[i].args != want {
			t.Errorf("got  %s\nwant %s", calls[i].args, want)
		}
	}
	// An agent may connect before Start has returned.
	testkit.EventuallyNoError(t, 20*time.Second, "it is ready, as both run", func() error { return f.Ready(t.Context()) })
	if err := f.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	for i, id := range c.IDs {
		calls[i].ended(t)
		log, _ := os.ReadFile(filepath.Join(c.LogDir, id+".log"))
		if want := "hello from --robot-id=" + id + "\n"; string(log) != want {
			t.Errorf("log is %q, want %q", log, want)
		}
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Errorf("a second stop: %v", err)
	}
}

func TestFleet_RestartsAgentWithGrowingDelay(t *testing.T) {
	h := newHome(t)
	f, _, pauses := fleet(t, "robot-1")
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []time.Duration{minRetryDelay, 2 * minRetryDelay, 4 * minRetryDelay} {
		h.next().Close()
		if got := <-pauses; got != want {
			t.Errorf("pause %s, want %s", got, want)
		}
	}
	killed := h.next()
	if err := syscall.Kill(killed.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-pauses
	h.next()
	if err := f.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFleet_AgentsEndWithParent(t *testing.T) {
	h := newHome(t)
	f, _, _ := fleet(t, "robot-1")
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent := h.next()
	f.parent.Close() // as the kernel does for a process that was killed
	agent.ended(t)
	f.Stop(t.Context())
}

func TestFleet_NotReadyWithoutAgent(t *testing.T) {
	f, _, pauses := fleet(t, "robot-1")
	f.cfg.Agent = filepath.Join(t.TempDir(), "missing")
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-pauses
	if err := f.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "robot-1") {
		t.Errorf("got %v", err)
	}
	f.Stop(t.Context())
}

func TestRetryAfter_IsLimited(t *testing.T) {
	if got := retryDelay(1 << 20); got != maxRetryDelay {
		t.Errorf("got %s, want %s", got, maxRetryDelay)
	}
}
