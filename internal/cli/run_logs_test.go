package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// endJob completes the Job demo in the fake cluster.
func endJob(b *bench) {
	end(b, "demo", "completed", "", robotv1.TaskCounts{TotalTasks: 1, SucceededTasks: 1})
}

// endUntilExit writes the end of the Job until the command exits, and returns its exit status. The number
// of watches depends on the order of the reads, and a watch of the fake cluster misses what was written
// between its list and its start.
func endUntilExit(b *bench, done <-chan int) int {
	b.t.Helper()
	written := time.NewTicker(20 * time.Millisecond)
	defer written.Stop()
	for until := time.After(30 * time.Second); ; {
		endJob(b)
		select {
		case status := <-done:
			return status
		case <-written.C:
		case <-until:
			b.t.Fatalf("the command does not end; out:\n%s\nerr:\n%s", b.out.String(), b.err.String())
		}
	}
}

// demoTask is a task that has started.
func demoTask(index int) *robotv1.Task {
	return task("demo", "inspect", index, func(t *robotv1.Task) { t.Status.State, t.Status.Attempt = "running", 1 })
}

func TestRun_PrintsOnlyOutputToStdout(t *testing.T) {
	answers := map[string][]logAnswer{
		"demo-inspect-0-main": {{text: logRecord(record.Stdout, "one\n") + logRecord(record.System, "lost 3 bytes\n") + logRecord(record.Stderr, "two")}},
		"demo-inspect-1-main": {{text: logRecord(record.Stdout, "three\n")}},
	}
	for _, row := range []struct {
		name, want string
		flags      []string
	}{
		{"one task: by default, unchanged", "one\n\ntwo", nil},
		{"several tasks: with --logs, by name", "[demo-inspect-0-main] one\n", []string{"--count", "2", "--logs"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, s := logBench(t, answers, group("demo", "inspect", robotv1.TaskCounts{}, ""), demoTask(0))
			done := b.start(append(append([]string{"run", "--name", "demo"}, row.flags...), "--", "inspect")...)
			b.awaitWatches(4)
			endJob(b)
			if status := b.awaitExit(done); status != ExitOK {
				t.Errorf("exit %d: %s", status, b.err.String())
			}
			for _, line := range strings.Split(strings.TrimSpace(b.out.String()), "\n") {
				if text := line[strings.LastIndex(line, " ")+1:]; text != "one" && text != "two" {
					t.Errorf("stdout has %q", line)
				}
			}
			for _, want := range []string{"job.robot.k8s4r.io/demo created", "lost 3 bytes", "job demo completed"} {
				if !strings.Contains(b.err.String(), want) {
					t.Errorf("stderr lacks %q: %q", want, b.err.String())
				}
			}
			if !strings.Contains(s.asked[0], "stream=stdout") || strings.Contains(s.asked[0], "stream=server") {
				t.Errorf("asked %q", s.asked[0])
			}
		})
	}
}

func TestRun_PrintsNoOutputUnlessAsked(t *testing.T) {
	for _, flags := range [][]string{{"--logs=false"}, {"--count", "2"}} {
		b, s := logBench(t, nil, group("demo", "inspect", robotv1.TaskCounts{}, ""), demoTask(0))
		done := b.start(append(append([]string{"run", "--name", "demo"}, flags...), "--", "inspect")...)
		b.awaitWatches(2)
		endJob(b)
		if status := b.awaitExit(done); status != ExitOK || len(s.asked) != 0 || !strings.Contains(b.out.String(), "job demo completed") {
			t.Errorf("%v: exit %d, asked %q, stdout %q", flags, status, s.asked, b.out.String())
		}
	}
}

// TestRun_EndsWithOutcomeWithoutOutput has Jobs whose output cannot be read: their exit status still counts.
func TestRun_EndsWithOutcomeWithoutOutput(t *testing.T) {
	for _, row := range []struct {
		name string
		set  func(*bench, *logServer)
		want string
	}{
		{"the server refuses", func(_ *bench, s *logServer) {
			s.answers = map[string][]logAnswer{"demo-inspect-0-main": {{err: refusal(403, "Forbidden", "you cannot get tasks/log")}}}
		}, "the output cannot be shown: demo-inspect-0-main: you cannot get tasks/log"},
		{"tasks cannot be listed", func(b *bench, _ *logServer) {
			b.hooks.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, isTasks := list.(*robotv1.TaskList); isTasks {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "tasks"}, "", nil)
				}
				return c.List(ctx, list, opts...)
			}
		}, "the output cannot be shown: list tasks: tasks is forbidden"},
		{"the robot never sends the rest", func(b *bench, _ *logServer) {
			b.deps.outputGrace = time.Millisecond
			connect := b.deps.connect
			b.deps.connect = func(conn *connection) (*cluster, error) {
				c, err := connect(conn)
				c.logs = func(ctx context.Context, _, _, _ string, _ query.Query) (io.ReadCloser, error) {
					r, w := io.Pipe()
					context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
					return r, nil
				}
				return c, err
			}
		}, "some output has not arrived yet; print it later with `k8s4r logs --job demo`"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, s := logBench(t, nil, group("demo", "inspect", robotv1.TaskCounts{}, ""), demoTask(0))
			row.set(b, s)
			done := b.start("run", "--name", "demo", "--", "inspect")
			b.awaitWatches(2)
			if status := endUntilExit(b, done); status != ExitOK {
				t.Errorf("exit %d", status)
			}
			for _, want := range []string{row.want, "job demo completed"} {
				if !strings.Contains(b.err.String(), want) {
					t.Errorf("stderr lacks %q: %q", want, b.err.String())
				}
			}
		})
	}
}

func TestRun_StopsOutputAtCtrlC(t *testing.T) {
	b, _ := logBench(t, nil)
	done := b.start("run", "--name", "demo", "--", "inspect")
	b.awaitWatches(4)
	close(b.interrupt)
	if status := b.awaitExit(done); status != ExitInterrupted || !strings.Contains(b.err.String(), "job demo continues") || b.out.String() != "" {
		t.Errorf("exit %d, stdout %q, stderr %q", status, b.out.String(), b.err.String())
	}
}
