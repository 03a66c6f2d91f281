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

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// password must not be written by any process but the task.
const password = "hunter2-never-written"

// secretTask returns a task that writes its PASSWORD to a file.
func secretTask(uid, file string, change ...func(*wire.Task)) wire.Task {
	t := shell(uid, fmt.Sprintf(`printf %%s "$PASSWORD" > %s`, file), change...)
	t.Spec.SecretEnv = map[string]wire.SecretKey{"PASSWORD": {SecretName: "db", Key: "password"}}
	return t
}

// dispatchWithSecrets sends an attempt of a task with values for its secretEnv.
func (s *fakeServer) dispatchWithSecrets(task wire.Task, attempt int32, values wire.Secrets) {
	s.publish(wire.KindDispatch, wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: attempt, Epoch: uint64(attempt), Secrets: values}, false)
}

// recordedLog is a log that can be read while it is written.
type recordedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *recordedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *recordedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startRecorded starts an agent and records its log.
func startRecorded(t *testing.T, c Config) (*runningAgent, *recordedLog) {
	t.Helper()
	log := &recordedLog{}
	a, err := New(c, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug - 100})))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, nil) }()
	r := &runningAgent{Agent: a, t: t, cancel: cancel, hurry: func() {}, err: sync.OnceValue(func() error { return <-ended })}
	t.Cleanup(r.stop)
	return r, log
}

// filesContaining returns the files below dir that contain a text.
func filesContaining(t *testing.T, dir, text string) (found []string) {
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

func TestSecrets_ReachTheTaskAndNoDisk(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	c := s.config(dir)
	c.HealthSocket = filepath.Join(dir, healthSocketName)
	_, log := startRecorded(t, c)
	s.awaitRegistered(1)
	seen, args := filepath.Join(t.TempDir(), "seen"), filepath.Join(t.TempDir(), "args")
	task := secretTask("t1", seen, func(t *wire.Task) {
		t.Spec.Config.Exec.Args[1] += fmt.Sprintf(`; printf %%s "$0" > %s; sleep 600`, args)
		t.Spec.Config.Exec.Args = append(t.Spec.Config.Exec.Args, "${PASSWORD}")
		t.Spec.Env = map[string]string{"COPY": "${PASSWORD}"}
		t.Spec.Templates = []wire.Template{{EmbeddedTmpl: `{{ env "PASSWORD" "unknown" }}`, DestPath: "rendered"}}
	})
	s.dispatchWithSecrets(task, 1, wire.Secrets{"PASSWORD": password})
	s.awaitRunning("t1", 1)
	waitUntil(t, "the task has written both files", func() bool { return len(lines(args)) > 0 })
	if got := lines(seen); len(got) != 1 || got[0] != password {
		t.Errorf("the task has seen %q", got)
	}
	if got := lines(args); got[0] != "${PASSWORD}" {
		t.Errorf("its argument, which everyone on the robot can read, is %q", got)
	}
	rendered, err := os.ReadFile(filepath.Join(runner.StateDir(dir).WorkDir("t1", 1), "rendered"))
	if err != nil || string(rendered) != "unknown" {
		t.Errorf("its template holds %q, %v", rendered, err)
	}
	if found := filesContaining(t, dir, password); len(found) > 0 {
		t.Errorf("it stands in %v", found)
	}
	if _, body := get(t, c.HealthSocket, "/status"); strings.Contains(body, password) {
		t.Errorf("the status contains %s", body)
	}
	s.remove("t1", 1)
	s.awaitEnd("t1", 1)
	for _, r := range s.reportsAbout("t1", 1) {
		if strings.Contains(fmt.Sprint(r), password) {
			t.Errorf("a report contains %+v", r)
		}
	}
	if text := log.String(); !strings.Contains(text, "task ended") || strings.Contains(text, password) {
		t.Errorf("the log contains %s", text)
	}
	if found := filesContaining(t, dir, password); len(found) > 0 {
		t.Errorf("after the end it stands in %v", found)
	}
}

func TestSecrets_MissingRejectsTheTask(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	seen := filepath.Join(t.TempDir(), "seen")
	s.dispatchWithSecrets(secretTask("t1", seen), 1, wire.Secrets{"OTHER": "x"})
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonRejected || !strings.Contains(end.Message, "secretEnv PASSWORD: the server has sent no value") {
		t.Errorf("ended with %s: %s", end.Reason, end.Message)
	}
	optional := secretTask("t2", seen)
	optional.Spec.SecretEnv["PASSWORD"] = wire.SecretKey{SecretName: "db", Key: "password", Optional: true}
	s.dispatchWithSecrets(optional, 1, wire.Secrets{"OTHER": "x"})
	if end := s.awaitEnd("t2", 1); end.State != wire.ReportCompleted {
		t.Errorf("without an optional one: %+v", end)
	}
}

func TestSecrets_SentAgainForUnstartedAttempt(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	seen := filepath.Join(t.TempDir(), "seen")
	task := secretTask("t1", seen)
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	must(t, j.Append(journal.Record{
		Kind: journal.Accepted, UID: "t1", Attempt: 1, At: time.Now().UTC(), Task: &task, Dispatched: &journal.DispatchStamp{Epoch: 1}, BootID: proc.BootID(),
	}))
	must(t, j.Close())
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatchWithSecrets(task, 1, wire.Secrets{"PASSWORD": password})
	if end := s.awaitEnd("t1", 1); end.State != wire.ReportCompleted {
		t.Errorf("ended with %+v", end)
	}
	if got := lines(seen); len(got) != 1 || got[0] != password {
		t.Errorf("the task has seen %q", got)
	}
}

func TestSecrets_OfNewerAttempt(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	seen := filepath.Join(t.TempDir(), "seen")
	task := secretTask("t1", seen)
	task.Spec.Config.Exec.Args[1] = fmt.Sprintf(`echo "$PASSWORD" >> %s; exec sleep 600`, seen)
	s.dispatchWithSecrets(task, 1, wire.Secrets{"PASSWORD": "first"})
	s.awaitRunning("t1", 1)
	waitUntil(t, "the first has begun", func() bool { return len(lines(seen)) == 1 })
	s.dispatchWithSecrets(task, 2, wire.Secrets{"PASSWORD": "second"})
	s.awaitRunning("t1", 2)
	waitUntil(t, "the second has begun", func() bool { return len(lines(seen)) == 2 })
	if got := lines(seen); got[0] != "first" || got[1] != "second" {
		t.Errorf("the attempts have seen %q", got)
	}
	if found := filesContaining(t, dir, "second"); len(found) > 0 {
		t.Errorf("what waited for the end of the first stands in %v", found)
	}
}
