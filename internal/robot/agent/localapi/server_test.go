package localapi

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

func TestFindTask(t *testing.T) {
	tasks := []runner.LiveTask{
		{Namespace: "a", Name: "one", UID: "u1"}, {Namespace: "b", Name: "one", UID: "u2"}, {Namespace: "a", Name: "two", UID: "u3"},
	}
	for name, want := range map[string]string{"two": "u3", "a/two": "u3", "u3": "u3", "b/one": "u2", "u1": "u1"} {
		if got, err := findTask(tasks, name); err != nil || got.UID != want {
			t.Errorf("%s is %s, %v", name, got.UID, err)
		}
	}
	for name, want := range map[string]string{"one": "use one of a/one, b/one", "three": "is not on this robot", "": "is required"} {
		if _, err := findTask(tasks, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

func TestServer_FollowsLogOfTaskUntilItEnds(t *testing.T) {
	tasks := &changingTasks{tasks: make(chan fakeTasks, 1)}
	tasks.set(fakeTasks{{Namespace: "a", Name: "one", UID: "u1", Attempt: 2}})
	socket := startServer(t, nil, tasks)
	segment := filepath.Join(filepath.Dir(socket), strings.Repeat("0", 20)+".log")
	write := func(text string) {
		f, err := os.OpenFile(segment, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		must(t, err)
		_, err = f.WriteString("2026-01-01T12:00:00.000000Z stdout F " + text + "\n")
		must(t, err)
		must(t, f.Close())
	}
	write("first")
	c := Client{Socket: socket}
	if got := readLog(t, c, false); got != "first\n" {
		t.Errorf("the log is %q", got)
	}
	log, err := c.OpenLog(context.Background(), "one", true)
	must(t, err)
	defer log.Close()
	if got := readLine(t, log); got != "first" {
		t.Errorf("the first line is %q", got)
	}
	write("second")
	if got := readLine(t, log); got != "second" {
		t.Errorf("the second line is %q", got)
	}
	write("third")
	tasks.set(fakeTasks{})
	if got := texts(t, log); got != "third\n" {
		t.Errorf("the rest of the log is %q", got)
	}
}

func TestServer_FollowsLogLongerThanTheReadTimeout(t *testing.T) {
	const timeout = 500 * time.Millisecond
	socket := startImpatientServer(t, nil, fakeTasks{{Name: "one", UID: "u1"}}, timeout)
	f, err := os.Create(filepath.Join(filepath.Dir(socket), strings.Repeat("0", 20)+".log"))
	must(t, err)
	defer f.Close()
	began := time.Now()
	log, err := Client{Socket: socket}.OpenLog(context.Background(), "one", true)
	must(t, err)
	defer log.Close()
	for time.Since(began) < 2*timeout { // each line takes a poll of the log
		_, err := f.WriteString("2026-01-01T12:00:00.000000Z stdout F line\n")
		must(t, err)
		if got := readLine(t, log); got != "line" {
			t.Fatalf("the line is %q", got)
		}
	}
}

func TestServer_BoundsTheTimeForABody(t *testing.T) {
	socket := startImpatientServer(t, nil, fakeTasks{}, 500*time.Millisecond)
	c, err := net.Dial("unix", socket)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(testTimeout)))
	_, err = io.WriteString(c, "POST /maintenance?on=false HTTP/1.0\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 7\r\n\r\non")
	must(t, err)
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), " 400 ") || !strings.Contains(string(answer), "parameters cannot be read") {
		t.Errorf("the answer to half a body: %v, %q", err, answer)
	}
}

// changingTasks are tasks that change while they are listed.
type changingTasks struct {
	fakeTasks
	tasks chan fakeTasks
}

func (c *changingTasks) ListTasks(context.Context) ([]runner.LiveTask, error) {
	now := <-c.tasks
	c.tasks <- now
	return now, nil
}

func (c *changingTasks) set(to fakeTasks) {
	select {
	case <-c.tasks:
	default:
	}
	c.tasks <- to
}

func readLog(t *testing.T, c Client, follow bool) string {
	t.Helper()
	log, err := c.OpenLog(context.Background(), "one", follow)
	must(t, err)
	defer log.Close()
	return texts(t, log)
}

// texts returns the texts of all records.
func texts(t *testing.T, log io.Reader) (out string) {
	t.Helper()
	all, err := io.ReadAll(log)
	must(t, err)
	for line := range strings.Lines(string(all)) {
		_, text, _ := strings.Cut(line, " F ")
		out += text
	}
	return out
}

// readLine returns the text of the next record.
func readLine(t *testing.T, log io.Reader) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		n, err := log.Read(b)
		must(t, err)
		if n == 1 && b[0] == '\n' {
			_, text, _ := strings.Cut(string(line), " F ")
			return text
		}
		line = append(line, b[:n]...)
	}
}

func TestServer_BoundsLogsSoThatActionsRemain(t *testing.T) {
	socket := startServer(t, nil, fakeTasks{{Name: "one", UID: "u1"}})
	must(t, os.WriteFile(filepath.Join(filepath.Dir(socket), strings.Repeat("0", 20)+".log"), []byte("2026-01-01T12:00:00.000000Z stdout F x\n"), 0o600))
	c := Client{Socket: socket}
	for range maxLogs {
		log, err := c.OpenLog(context.Background(), "one", true)
		must(t, err)
		defer log.Close()
		readLine(t, log)
	}
	for range maxRequests {
		if log, err := c.OpenLog(context.Background(), "one", true); err == nil || !strings.Contains(err.Error(), "8 logs are read already") {
			t.Fatalf("one more log: %v, %v", log, err)
		}
	}
	if _, err := c.ActOnTask(context.Background(), "stop", "one"); err != nil {
		t.Errorf("a stop: %v", err)
	}
}

// slowTasks are tasks that are listed when the test releases them.
type slowTasks struct {
	fakeTasks
	began, release chan struct{}
}

func (s slowTasks) ListTasks(context.Context) ([]runner.LiveTask, error) {
	s.began <- struct{}{}
	<-s.release
	return s.fakeTasks, nil
}

func TestServer_BoundsRequests(t *testing.T) {
	tasks := slowTasks{began: make(chan struct{}, maxRequests+1), release: make(chan struct{})}
	c := Client{Socket: startServer(t, nil, tasks)}
	ended := make(chan error, maxRequests)
	for range maxRequests {
		go func() {
			_, err := c.ListTasks(context.Background())
			ended <- err
		}()
		<-tasks.began
	}
	if _, err := c.SetMaintenance(context.Background(), false, ""); err == nil || !strings.Contains(err.Error(), "16 requests are served already") {
		t.Errorf("one more request: %v", err)
	}
	close(tasks.release)
	for range maxRequests {
		must(t, <-ended)
	}
}

func TestServer_BoundsConnections(t *testing.T) {
	socket := startImpatientServer(t, nil, fakeTasks{}, testTimeout)
	for range maxConnections {
		idle, err := net.Dial("unix", socket)
		must(t, err)
		defer idle.Close()
	}
	c := Client{Socket: socket}
	if _, err := c.ListTasks(context.Background()); err == nil || !strings.Contains(err.Error(), "64 connections are open already") {
		t.Errorf("one more connection: %v", err)
	}
}

func TestClient_ExplainsMissingAgent(t *testing.T) {
	_, err := Client{Socket: filepath.Join(t.TempDir(), "local.sock")}.ListTasks(context.Background())
	if err == nil || !strings.Contains(err.Error(), "no agent responds on ") {
		t.Error(err)
	}
}

func TestServer_PassesActionsWithThePerson(t *testing.T) {
	needRoot(t)
	c := Client{Socket: startServer(t, nil, fakeTasks{{Namespace: "a", Name: "one", UID: "u1"}})}
	for _, action := range []string{"stop", "restart"} {
		got, err := c.ActOnTask(context.Background(), action, "one")
		if want := "a/one: " + action + " by root (uid 0):"; err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", action, got, err, want)
		}
		if _, err := c.ActOnTask(context.Background(), action, "two"); err == nil || !strings.Contains(err.Error(), "not on this robot") {
			t.Errorf("%s of another task: %v", action, err)
		}
	}
	if got, err := c.SetMaintenance(context.Background(), true, " arm "); err != nil || got != "maintenance-on by root (uid 0): arm" {
		t.Errorf("maintenance on: %q, %v", got, err)
	}
	if got, err := c.SetMaintenance(context.Background(), false, ""); err != nil || got != "maintenance-off by root (uid 0):" {
		t.Errorf("maintenance off: %q, %v", got, err)
	}
	for reason, want := range map[string]string{" ": "a reason is required", strings.Repeat("x", 257): "longer than 256 bytes", "a\nb": "one line"} {
		if _, err := c.SetMaintenance(context.Background(), true, reason); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reason %.10q: %v, want %q", reason, err, want)
		}
	}
}

func TestServer_RefusesActionsOfOtherUsers(t *testing.T) {
	needRoot(t)
	socket := startServer(t, nil, fakeTasks{{Name: "one", UID: "u1"}})
	must(t, os.Chmod(socket, 0o666))
	for _, path := range []string{"/tasks", "/logs?task=one", "/stop?task=one", "/restart?task=one", "/maintenance?on=true&reason=x"} {
		method := "GET"
		if !strings.HasPrefix(path, "/tasks") && !strings.HasPrefix(path, "/logs") {
			method = "POST"
		}
		answer, err := requestAs(t, otherUID, otherUID, nil, socket, method, path)
		if err != nil || !strings.Contains(answer, " 403 ") {
			t.Errorf("%s: %v, %q", path, err, answer)
		}
	}
}
