package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// logServer responds in place of k8s4r-server.
type logServer struct {
	mu      sync.Mutex
	asked   []string
	answers map[string][]logAnswer // by task; used in order, the last one repeats
}

type logAnswer struct {
	text string
	cut  bool // the connection breaks after the text
	err  error
}

func (s *logServer) logs(_ context.Context, _, namespace, task string, q query.Query) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, namespace+"/"+task+"?"+q.Encode())
	all := s.answers[task]
	if len(all) == 0 {
		return nil, fmt.Errorf("no log of %s is expected", task)
	}
	if len(all) > 1 {
		s.answers[task] = all[1:]
	}
	if all[0].err != nil {
		return nil, all[0].err
	}
	var r io.Reader = strings.NewReader(all[0].text)
	if all[0].cut {
		r = io.MultiReader(r, broken{})
	}
	return io.NopCloser(r), nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func logRecord(s record.Stream, text string) string {
	return string(record.Record{Time: noon, Stream: s, Partial: !strings.HasSuffix(text, "\n"), Text: []byte(strings.TrimSuffix(text, "\n"))}.Append(nil))
}

func mark(position string) string { return logRecord(record.Internal, position+"\n") }

func aTask(name string, state lifecycle.TaskState, attempt int32) *robotv1.Task {
	return &robotv1.Task{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{robotv1.LabelJob: "demo"}},
		Spec:       robotv1.TaskSpec{JobName: "demo"},
		Status:     robotv1.TaskStatus{State: string(state), Attempt: attempt},
	}
}

func logBench(t *testing.T, answers map[string][]logAnswer, objects ...client.Object) (*bench, *logServer) {
	b := newBench(t, objects...)
	s := &logServer{answers: answers}
	connect := b.deps.connect
	b.deps.connect = func(c *connection) (*cluster, error) {
		cl, err := connect(c)
		if err == nil {
			cl.logs = s.logs
		}
		return cl, err
	}
	b.deps.retry = func(int) time.Duration { return time.Millisecond }
	return b, s
}

func TestLogs_PrintTaskOutput(t *testing.T) {
	text := logRecord(record.Server, "task changed state dispatching -> running\n") + logRecord(record.Stdout, "one\n") + logRecord(record.Stderr, "two\n") +
		logRecord(record.Stdout, "name? ") + logRecord(record.Stdout, "me\n") + "no record\n" + mark("1:500")
	b, s := logBench(t, map[string][]logAnswer{"t1": {{text: text}}}, aTask("t1", lifecycle.TaskRunning, 1))
	if code := b.run("logs", "--tail", "5", "t1"); code != ExitOK {
		t.Errorf("exit status %d: %s", code, b.err.String())
	}
	if got, want := b.out.String(), "one\ntwo\nname? me\nno record\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if got := b.err.String(); !strings.Contains(got, "task changed state dispatching -> running") {
		t.Errorf("beside it: %q", got)
	}
	if want := "default/t1?format=records&tail=5"; s.asked[0] != want {
		t.Errorf("asked %q, not %q", s.asked[0], want)
	}
}

func TestLogs_PrintNothingTwiceAfterReconnect(t *testing.T) {
	b, s := logBench(t, map[string][]logAnswer{"t1": {
		{text: logRecord(record.Stdout, "one\n") + mark("1:100") + logRecord(record.Stdout, "two\n"), cut: true},
		{err: errors.New("connection refused")},
		{text: logRecord(record.Stdout, "two\n") + logRecord(record.Stdout, "three\n") + mark("1:300")},
	}}, aTask("t1", lifecycle.TaskRunning, 1))
	if code := b.run("logs", "-f", "t1", "--timestamps"); code != ExitOK {
		t.Errorf("exit status %d: %s", code, b.err.String())
	}
	const stamp = "2026-03-01T12:00:00.000000Z "
	if got, want := b.out.String(), stamp+"one\n"+stamp+"two\n"+stamp+"three\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if last := s.asked[len(s.asked)-1]; !strings.Contains(last, "from=1%3A100") {
		t.Errorf("asked %q", last)
	}
}

func refusal(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
}

func TestLogs_ExplainRefusals(t *testing.T) {
	for _, row := range []struct {
		name string
		args string
		err  error
		want string
		code int
	}{
		{"no such task", "t9", nil, `task "t9" not found in namespace default`, ExitFailed},
		{"not started", "t1", refusal(http.StatusConflict, query.ReasonNotStarted, "task t1 is pending and has not started"), "`k8s4r why t1` shows what it waits for", ExitFailed},
		{"gone", "t1", refusal(http.StatusGone, query.ReasonGone, "the log is not kept any more"), "--log-max-age", ExitFailed},
		{"no such attempt", "--attempt 3 t1", refusal(http.StatusNotFound, query.ReasonNoAttempt, "task t1 has had 1 attempts"), "has had 1 attempts", ExitFailed},
		{"no right", "t1", refusal(http.StatusForbidden, metav1.StatusReasonForbidden, `user "x" cannot get tasks/log`), "cannot get tasks/log", ExitFailed},
		{"no server", "t1", &logsUnreachableError{"https://10.0.0.1:8443", "connection refused"}, "port-forward", ExitFailed},
		{"nothing named", "", nil, "a Job with --job, is required", ExitUsage},
		{"both named", "t1 --job demo", nil, "--job cannot be combined with the task", ExitUsage},
		{"a time that is none", "t1 --since soon", nil, "--since=soon", ExitUsage},
		{"an attempt of a job", "--job demo --attempt 1", nil, "--attempt", ExitUsage},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, _ := logBench(t, map[string][]logAnswer{"t1": {{err: row.err}}}, aTask("t1", lifecycle.TaskPending, 1))
			if code := b.run(append([]string{"logs"}, strings.Fields(row.args)...)...); code != row.code || !strings.Contains(b.err.String(), row.want) {
				t.Errorf("exit status %d, message %q", code, b.err.String())
			}
		})
	}
}

func TestLogs_PrintLogsOfJob(t *testing.T) {
	job := &robotv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", UID: "demo"}, Status: robotv1.JobStatus{State: string(lifecycle.JobCompleted)}}
	answers := map[string][]logAnswer{
		"t1": {{text: logRecord(record.Stdout, "on") + logRecord(record.Stdout, "e\n") + logRecord(record.Stdout, "no end")}},
		"t2": {{text: logRecord(record.Stderr, "two\n")}},
	}
	objects := []client.Object{job, aTask("t1", lifecycle.TaskCompleted, 1), aTask("t2", lifecycle.TaskCompleted, 1), aTask("t3", lifecycle.TaskCanceled, 0)}
	t.Run("one after the other", func(t *testing.T) {
		b, _ := logBench(t, answers, objects...)
		if code := b.run("logs", "--job", "demo"); code != ExitOK {
			t.Errorf("exit status %d: %s", code, b.err.String())
		}
		if got, want := b.out.String(), "[t1] one\n[t1] no end\n[t2] two\n"; got != want {
			t.Errorf("%q, not %q", got, want)
		}
		if !strings.Contains(b.err.String(), "t3") {
			t.Errorf("nothing of t3: %q", b.err.String())
		}
	})
	t.Run("at once, until the Job has ended", func(t *testing.T) {
		b, _ := logBench(t, answers, objects...)
		if code := b.run("logs", "--job", "demo", "-f"); code != ExitOK {
			t.Errorf("exit status %d: %s", code, b.err.String())
		}
		for _, want := range []string{"[t1] one\n", "[t1] no end\n", "[t2] two\n"} {
			if strings.Count(b.out.String(), want) != 1 {
				t.Errorf("no %q in %q", want, b.out.String())
			}
		}
	})
}
