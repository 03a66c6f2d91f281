package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	dto "github.com/prometheus/client_model/go"
	authorizationv1 "k8s.io/api/authorization/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/server/logapi"
	"k8s4r.io/k8s4r/internal/testkit/offlineruns"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// openGate allows everything.
type openGate struct{}

func (openGate) Authenticate(*http.Request) (*access.User, error) {
	return &access.User{Name: "anna"}, nil
}

func (openGate) IsAllowed(context.Context, *access.User, authorizationv1.ResourceAttributes) (bool, error) {
	return true, nil
}

// readRuns returns the last runs of a task, as the log API does.
func (s *system) readRuns(ctx context.Context, task *robotv1.Task) (p runlog.Page, err error) {
	h := &logapi.Handler{Gate: openGate{}, Tasks: s.api, Store: s.logs, Notifier: &logapi.Notifier{}, Log: logr.Discard()}
	w := httptest.NewRecorder()
	q := runlog.Query{Limit: runlog.MaxLimit}
	h.Routes().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, runlog.Path(task.Namespace, task.Name)+"?"+q.Encode(), nil))
	if w.Code != http.StatusOK {
		return p, fmt.Errorf("%d: %s", w.Code, w.Body)
	}
	err = json.NewDecoder(w.Body).Decode(&p)
	return p, err
}

// maxOfflineRunsTime bounds the time in which 10,000 runs can be read after a robot has connected again.
const maxOfflineRunsTime = time.Minute

// A robot makes 10,000 runs without contact, and the server fails while it stores more of them.
func TestGateway_StoresRunsMadeWithoutContact(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", RestartsTasks: true, Run: -1, LogDir: t.TempDir()})
	defer r.Stop()
	task := s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "the task runs", func() bool {
		return s.task("t1").Status.Attempt == 1 && s.task("t1").Status.Attempts[0].StartedAt != nil
	})
	const runs = 10_000
	took, err := offlineruns.Measure(t.Context(), r, string(task.UID), 1, runs, func(ctx context.Context) (int64, error) {
		p, err := s.readRuns(ctx, task)
		return p.RunCount, err
	})
	if err != nil || took > maxOfflineRunsTime {
		t.Fatalf("%d runs can be read after %s, %v", runs, took, err)
	}
	t.Logf("%d runs can be read after %s", runs, took)
	since := time.Now()
	for round := range int64(3) {
		s.stop()
		if err := r.AddRuns(string(task.UID), 1, offlineruns.NewRecords(runs+100*round+1, runs+100*round+100, since)); err != nil {
			t.Fatal(err)
		}
		s.startServer(Config{})
	}
	var p runlog.Page
	eventually(t, "all runs are there", func() bool {
		p, err = s.readRuns(t.Context(), task)
		return err == nil && p.RunCount == runs+300
	})
	if len(p.Items) != runs || len(p.Gaps) != 2 || p.Gaps[0].Count() != runs || p.Gaps[1].Count() != 300 {
		t.Errorf("%d items, gaps %+v", len(p.Items), p.Gaps)
	}
	for i, one := range p.Items {
		if want := int64(i) + 301; one.Run != want || !one.WithoutContact {
			t.Fatalf("item %d is %+v, want run %d", i, one, want)
		}
	}
}

// Without a log store the robot keeps its records for a server that stores them.
func TestGateway_WithoutLogStoreReceivesNoRuns(t *testing.T) {
	s := start(t)
	files := s.logs
	s.stop()
	s.logs = nil
	s.startServer(Config{})
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", RestartsTasks: true, Run: -1, LogDir: t.TempDir()})
	defer r.Stop()
	task := s.createTask(newBoundTask("t1", "r1"))
	eventually(t, "the task runs", func() bool {
		return s.task("t1").Status.Attempt == 1 && s.task("t1").Status.Attempts[0].StartedAt != nil
	})
	if err := r.AddRuns(string(task.UID), 1, offlineruns.NewRecords(1, 3, time.Now())); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := errors.Join(r.Reconnect(t.Context()), r.AwaitOnline(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	s.createTask(newBoundTask("t2", "r1")) // the robot has its answer before a dispatch
	eventually(t, "another task runs", func() bool {
		a := s.task("t2").Status.FindAttempt(1)
		return a != nil && a.StartedAt != nil
	})
	var sent dto.Metric
	if err := s.gateway.m.received.WithLabelValues(string(wire.KindRuns)).Write(&sent); err != nil || sent.GetCounter().GetValue() > 0 {
		t.Errorf("the robot has sent runs: %v, %v", &sent, err)
	}
	s.stop()
	s.logs = files
	s.startServer(Config{})
	if err := r.Reconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the runs are there", func() bool {
		p, err := s.readRuns(t.Context(), task)
		return err == nil && p.RunCount == 3
	})
}
