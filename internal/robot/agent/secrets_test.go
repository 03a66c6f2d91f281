package agent

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/wire"
)

// password is what must be written nowhere by anybody but the task.
const password = "hunter2-never-written"

// needy is a task that writes its PASSWORD to a file.
func needy(uid, file string, change ...func(*wire.Task)) wire.Task {
	t := shell(uid, fmt.Sprintf(`printf %%s "$PASSWORD" > %s`, file), change...)
	t.Spec.SecretEnv = map[string]wire.SecretKey{"PASSWORD": {SecretName: "db", Key: "password"}}
	return t
}

// dispatchWith sends an attempt of a task with values for its secretEnv.
func (s *fakeServer) dispatchWith(task wire.Task, attempt int32, values wire.Secrets) {
	s.publish(wire.KindDispatch, wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: attempt, Epoch: uint64(attempt), Secrets: values}, false)
}

// heardLog is a log that can be read while it is written.
type heardLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *heardLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *heardLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startHeard is startAgent with all that it logs.
func startHeard(t *testing.T, c Config) (*running, *heardLog) {
	t.Helper()
	heard := &heardLog{}
	a, err := New(c, slog.New(slog.NewTextHandler(heard, &slog.HandlerOptions{Level: slog.LevelDebug - 100})))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, nil) }()
	r := &running{Agent: a, t: t, cancel: cancel, hurry: func() {}, err: sync.OnceValue(func() error { return <-ended })}
	t.Cleanup(r.stop)
	return r, heard
}

// whereIs lists the files below dir that hold a text.
func whereIs(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error { // an error: it has just gone
		if d == nil || !d.Type().IsRegular() {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return nil
	}))
	return found
}

func TestASecretReachesTheTaskAndNoDisk(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	endsAll(t, dir)
	c := s.config(dir)
	c.HealthSocket = filepath.Join(dir, healthSocketName)
	_, heard := startHeard(t, c)
	s.awaitRegistered(1)
	seen, args := filepath.Join(t.TempDir(), "seen"), filepath.Join(t.TempDir(), "args")
	task := needy("t1", seen, func(t *wire.Task) {
		t.Spec.Config.Exec.Args[1] += fmt.Sprintf(`; printf %%s "$0" > %s; sleep 600`, args)
		t.Spec.Config.Exec.Args = append(t.Spec.Config.Exec.Args, "${PASSWORD}")
		t.Spec.Env = map[string]string{"COPY": "${PASSWORD}"}
		t.Spec.Templates = []wire.Template{{EmbeddedTmpl: `{{ env "PASSWORD" "unknown" }}`, DestPath: "rendered"}}
	})
	s.dispatchWith(task, 1, wire.Secrets{"PASSWORD": password})
	s.awaitRunning("t1", 1)
	eventually(t, "the task has written both files", func() bool { return len(lines(args)) > 0 })
	if got := lines(seen); len(got) != 1 || got[0] != password {
		t.Errorf("the task has seen %q", got)
	}
	if got := lines(args); got[0] != "${PASSWORD}" {
		t.Errorf("its argument, which everyone on the robot can read, is %q", got)
	}
	rendered, err := os.ReadFile(filepath.Join(places{dir}.work("t1", 1), "rendered"))
	if err != nil || string(rendered) != "unknown" {
		t.Errorf("its template holds %q, %v", rendered, err)
	}
	if found := whereIs(t, dir, password); len(found) > 0 {
		t.Errorf("it stands in %v", found)
	}
	if _, body := get(t, c.HealthSocket, "/status"); strings.Contains(body, password) {
		t.Errorf("the status says %s", body)
	}
	s.remove("t1", 1)
	s.awaitEnd("t1", 1)
	for _, r := range s.said("t1", 1) {
		if strings.Contains(fmt.Sprint(r), password) {
			t.Errorf("a report says %+v", r)
		}
	}
	if said := heard.String(); !strings.Contains(said, "task ended") || strings.Contains(said, password) {
		t.Errorf("the log says %s", said)
	}
	if found := whereIs(t, dir, password); len(found) > 0 {
		t.Errorf("after the end it stands in %v", found)
	}
}

func TestATaskWithoutItsSecretIsNotStarted(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	seen := filepath.Join(t.TempDir(), "seen")
	s.dispatchWith(needy("t1", seen), 1, wire.Secrets{"OTHER": "x"})
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonRejected || !strings.Contains(end.Message, "secretEnv PASSWORD: the server has sent no value") {
		t.Errorf("ended with %s: %s", end.Reason, end.Message)
	}
	optional := needy("t2", seen)
	optional.Spec.SecretEnv["PASSWORD"] = wire.SecretKey{SecretName: "db", Key: "password", Optional: true}
	s.dispatchWith(optional, 1, wire.Secrets{"OTHER": "x"})
	if end := s.awaitEnd("t2", 1); end.State != wire.ReportCompleted {
		t.Errorf("without an optional one: %+v", end)
	}
}

func TestAnAttemptThatWasNotBegunBeforeTheAgentWasKilledGetsItsSecretAgain(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	endsAll(t, dir)
	seen := filepath.Join(t.TempDir(), "seen")
	task := needy("t1", seen)
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	must(t, j.Append(journal.Record{
		Kind: journal.Accepted, UID: "t1", Attempt: 1, At: time.Now().UTC(), Task: &task, Said: &journal.Stamp{Epoch: 1}, BootID: proc.BootID(),
	}))
	must(t, j.Close())
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatchWith(task, 1, wire.Secrets{"PASSWORD": password})
	if end := s.awaitEnd("t1", 1); end.State != wire.ReportCompleted {
		t.Errorf("ended with %+v", end)
	}
	if got := lines(seen); len(got) != 1 || got[0] != password {
		t.Errorf("the task has seen %q", got)
	}
}

func TestANewerAttemptHasItsOwnSecret(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	endsAll(t, dir)
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	seen := filepath.Join(t.TempDir(), "seen")
	task := needy("t1", seen)
	task.Spec.Config.Exec.Args[1] = fmt.Sprintf(`echo "$PASSWORD" >> %s; exec sleep 600`, seen)
	s.dispatchWith(task, 1, wire.Secrets{"PASSWORD": "first"})
	s.awaitRunning("t1", 1)
	eventually(t, "the first has begun", func() bool { return len(lines(seen)) == 1 })
	s.dispatchWith(task, 2, wire.Secrets{"PASSWORD": "second"})
	s.awaitRunning("t1", 2)
	eventually(t, "the second has begun", func() bool { return len(lines(seen)) == 2 })
	if got := lines(seen); got[0] != "first" || got[1] != "second" {
		t.Errorf("the attempts have seen %q", got)
	}
	if found := whereIs(t, dir, "second"); len(found) > 0 {
		t.Errorf("what waited for the end of the first stands in %v", found)
	}
}
