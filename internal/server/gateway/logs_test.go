package gateway

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/server/logstore"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// readLog returns the log of an attempt as text: the lines of the robot and of the server.
func (s *system) readLog(t *robotv1.Task, attempt int32) (robots, server string) {
	c, err := s.logs.ReadAt(s.t.Context(), logKey(t, attempt), 0, make([]byte, 1<<20))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(c.Data) {
		r, err := record.Parse(line)
		switch {
		case err != nil:
			robots += string(line)
		case r.Stream == record.Server:
			server += string(r.Text) + "\n"
		case r.Stream != record.Internal:
			robots += string(r.Text) + "\n"
		}
	}
	return robots, server
}

func (s *system) logDone(t *robotv1.Task, attempt int32) bool {
	info, err := s.logs.Info(s.t.Context(), logKey(t, attempt))
	return err == nil && info.Done
}

func TestGateway_StoresLogs(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", LogDir: t.TempDir(), Output: func(_ string, _ int32, log *record.Writer, _ <-chan struct{}) {
		for i := range 5000 {
			log.Write(record.Stdout, fmt.Appendf(nil, "line %d\n", i), time.Now())
		}
	}})
	defer r.Stop()
	task := s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "the log is complete", func() bool { return s.logDone(task, 1) })
	eventually(t, "the log has the end of the task", func() bool {
		_, server := s.readLog(task, 1)
		return strings.Contains(server, "-> completed on r1: Task completed")
	})
	robots, _ := s.readLog(task, 1)
	if n := strings.Count(robots, "\n"); n != 5000 || !strings.HasPrefix(robots, "line 0\nline 1\n") {
		t.Errorf("%d lines: %.100q", n, robots)
	}
}

func TestGateway_ContinuesLogsAfterRestart(t *testing.T) {
	s := start(t)
	s.approveRobots()
	more := make(chan string)
	r := s.startRobot(simrobot.Config{RobotID: "r1", LogDir: t.TempDir(), Output: func(_ string, _ int32, log *record.Writer, done <-chan struct{}) {
		for {
			select {
			case <-done:
				return
			case line, ok := <-more:
				if !ok {
					return
				}
				log.Write(record.Stdout, []byte(line+"\n"), time.Now())
			}
		}
	}})
	defer r.Stop()
	task := s.createTask(newBoundTask("t1", "r1"))
	want := ""
	for i := range 3 {
		line := fmt.Sprint("line ", i)
		more <- line
		want += line + "\n"
		eventually(t, line+" is there", func() bool {
			robots, _ := s.readLog(task, 1)
			return robots == want
		})
		s.stop()
		more <- line + " while no server ran"
		want += line + " while no server ran\n"
		s.startServer(Config{})
	}
	close(more)
	eventually(t, "the log is complete", func() bool { return s.logDone(task, 1) })
	if robots, _ := s.readLog(task, 1); robots != want {
		t.Errorf("%q, not %q", robots, want)
	}
}

// answers records the log acknowledgements to a robot.
type ackRecorder struct {
	mu  sync.Mutex
	all []wire.LogAck
}

func (a *ackRecorder) last() (wire.LogAck, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) == 0 {
		return wire.LogAck{}, false
	}
	return a.all[len(a.all)-1], true
}

func TestLogWriter_AcceptsLogsOnlyFromTaskRobot(t *testing.T) {
	files, err := logstore.NewFiles(t.TempDir(), logstore.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	task := newBoundTask("t1", "r1")
	v := newObjectIndex()
	v.deliverTask(task)
	caughtUp := false
	acks := map[string]*ackRecorder{"r1": {}, "r2": {}}
	l := &logWriter{
		store: files, objects: v, now: time.Now, onChange: func(types.UID) {}, isGone: func() bool { return caughtUp }, onError: func(string, error) {}, m: m,
		sendAck: func(robot string, _ bool, a wire.LogAck) {
			acks[robot].mu.Lock()
			defer acks[robot].mu.Unlock()
			acks[robot].all = append(acks[robot].all, a)
		},
	}
	l.initWorkers()
	w := l.workers[0]
	sendPiece := func(robot, uid string, attempt int32) (wire.LogAck, bool) {
		t.Helper()
		payload, _ := wire.Encode(wire.Logs{Attempt: attempt, Seq: 1, Data: []byte("hello\n")})
		acks[robot].all = nil
		if err := w.writeItem(t.Context(), logItem{robot: robot, uid: types.UID(uid), payload: payload}); err != nil {
			t.Fatal(err)
		}
		w.syncOnce(t.Context())
		return acks[robot].last()
	}
	uid := string(task.UID)
	for _, row := range []struct {
		name, robot, uid string
		attempt          int32
		answered, done   bool
	}{
		{"its robot", "r1", uid, 1, true, false},
		{"another robot", "r2", uid, 1, true, true},
		{"an attempt that is unknown yet", "r1", uid, 2, false, false},
		{"a task that is unknown yet", "r1", "7a7a", 1, false, false},
	} {
		a, answered := sendPiece(row.robot, row.uid, row.attempt)
		if answered != row.answered || a.Done != row.done {
			t.Errorf("%s: %+v, %v", row.name, a, answered)
		}
	}
	caughtUp = true
	if a, answered := sendPiece("r1", "7a7a", 1); !answered || !a.Done {
		t.Errorf("a deleted task: %+v, %v", a, answered)
	}
	if c, err := files.ReadAt(t.Context(), logKey(task, 1), 0, make([]byte, 1000)); err != nil || bytes.Count(c.Data, []byte("hello")) != 1 {
		t.Errorf("%q, %v", c.Data, err)
	}
}
