package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/wire"
)

const faultTasks = 200

// TestJobSurvivesKills ends parts of the system in the middle of a Job of 200
// tasks, and reads from the files that the tasks write what really ran.
func TestJobSurvivesKills(t *testing.T) {
	killUp := func(_ *testing.T, s *system, _ *proxy) { s.Kill(); s.Start() }
	for _, row := range []struct {
		name     string
		embedded bool // with a broker of its own, which dies with it
		hit      func(t *testing.T, s *system, p *proxy)
	}{
		{"kill -9 of k8s4r up", false, killUp},
		{"kill -9 of k8s4r up with its broker", true, killUp},
		{"kill -9 of one agent", true, func(t *testing.T, s *system, _ *proxy) { killAgent(t, "robot-2", s.DataDir) }},
		{"every connection to the broker cut", false, func(t *testing.T, _ *system, p *proxy) {
			if n := p.cut(); n < 4 {
				t.Errorf("only %d connections to cut, want three robots and the server", n)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := []string{"--robots", "3"}
			var p *proxy
			if !row.embedded {
				p = newProxy(t, hostPort(mosquitto(t)))
				args = append(args, "--mqtt-url", "mqtt://"+p.Addr().String())
			}
			s := start(t, args...)
			runs := newRunLog(t)
			s.create(jobOf("many", faultTasks, shell("work", runs.script("0.2"))))
			testkit.Eventually(t, time.Minute, "a third of the tasks has run", func() bool { return runs.ended() > faultTasks/3 })
			row.hit(t, s, p)
			s.awaitJob("many", "completed", 3*time.Minute)
			runs.check(t, s, s.tasksOf("many"))
		})
	}
}

// runLog is a file that every task appends a line to when it starts and when
// it ends: "start NAME ATTEMPT" and "end NAME ATTEMPT". Appends of a short
// line are whole.
type runLog struct{ path string }

func newRunLog(t *testing.T) *runLog {
	return &runLog{path: filepath.Join(t.TempDir(), "runs")}
}

func (l *runLog) script(sleep string) string {
	return fmt.Sprintf(`echo "start $K8S4R_TASK_UID $K8S4R_ATTEMPT" >> %[1]s; sleep %[2]s; echo "end $K8S4R_TASK_UID $K8S4R_ATTEMPT" >> %[1]s`, l.path, sleep)
}

func (l *runLog) lines() []string {
	text, _ := os.ReadFile(l.path)
	return testkit.Lines(string(text))
}

func (l *runLog) ended() int {
	n := 0
	for _, line := range l.lines() {
		if strings.HasPrefix(line, "end ") {
			n++
		}
	}
	return n
}

func killAgent(t *testing.T, id, dataDir string) {
	t.Helper()
	pid := agentPID(id, dataDir)
	if pid == 0 {
		t.Fatalf("no process of %s", id)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// agentPID finds the agent of this robot by its arguments.
func agentPID(id, dataDir string) int {
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, entry := range entries {
		cmdline, _ := os.ReadFile(entry)
		args := strings.ReplaceAll(string(cmdline), "\x00", " ")
		if strings.Contains(args, "k8s4r-agent") && strings.Contains(args, id+" ") && strings.Contains(args, dataDir) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
			return pid
		}
	}
	return 0
}

// check stops the system and holds what the tasks wrote against what the
// robots' journals say: no attempt started twice, and none at all after the end
// of an earlier one was journaled.
func (l *runLog) check(t *testing.T, s *system, tasks []v1alpha1.Task) {
	t.Helper()
	if len(tasks) != faultTasks {
		t.Errorf("%d tasks instead of %d", len(tasks), faultTasks)
	}
	s.Stop()
	starts, ends := l.runs(t)
	for key, n := range starts {
		if n != 1 {
			t.Errorf("attempt %d of %s started %d times", key.attempt, key.uid, n)
		}
	}
	finished := journaledEnds(t, s.DataDir)
	for key := range starts {
		if first, ok := finished[key.uid]; ok && key.attempt > first {
			t.Errorf("attempt %d of %s ran though the end of attempt %d had been journaled", key.attempt, key.uid, first)
		}
	}
	for _, task := range tasks {
		if !ends[string(task.UID)] {
			t.Errorf("%s is completed and never ended", task.Name)
		}
	}
	t.Logf("%d tasks, %d starts", len(tasks), len(starts))
}

type attempt struct {
	uid     string
	attempt int32
}

// runs counts the starts of each attempt, and says which tasks have ended.
func (l *runLog) runs(t *testing.T) (starts map[attempt]int, ends map[string]bool) {
	t.Helper()
	starts, ends = map[attempt]int{}, map[string]bool{}
	for _, line := range l.lines() {
		var what string
		var a attempt
		if _, err := fmt.Sscanf(line, "%s %s %d", &what, &a.uid, &a.attempt); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if what == "start" {
			starts[a]++
		} else {
			ends[a.uid] = true
		}
	}
	return starts, ends
}

// journaledEnds reads from the robots' journals which tasks completed, and in
// which attempt first.
func journaledEnds(t *testing.T, dataDir string) map[string]int32 {
	t.Helper()
	first := map[string]int32{}
	dirs, _ := filepath.Glob(filepath.Join(dataDir, "robots", "*"))
	for _, dir := range dirs {
		j, err := journal.Open(dir, journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range j.Entries() {
			if e.Ended() && e.Status.State == wire.ReportCompleted {
				if n, ok := first[e.UID]; !ok || e.Attempt < n {
					first[e.UID] = e.Attempt
				}
			}
		}
		j.Close()
	}
	if len(first) == 0 {
		t.Fatal("the journals hold no end at all")
	}
	return first
}

// proxy forwards connections to a broker, and can cut them all.
type proxy struct {
	net.Listener
	target string
	down   atomic.Bool // nothing gets through
	mu     sync.Mutex
	conns  map[net.Conn]bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, target: target, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); p.cut() })
	go p.serve()
	return p
}

func (p *proxy) serve() {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		if p.down.Load() {
			in.Close()
			continue
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = true, true
		p.mu.Unlock()
		go pipe(in, out)
		go pipe(out, in)
	}
}

func pipe(from, to net.Conn) {
	io.Copy(to, from)
	from.Close()
	to.Close()
}

// cut closes every connection and returns how many there were.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns) / 2
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
	return n
}
