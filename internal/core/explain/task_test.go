package explain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func task(name string, change ...func(*robotv1.Task)) *robotv1.Task {
	t := &robotv1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{robotv1.LabelTaskIndex: "0"}}}
	t.Spec.JobName, t.Spec.Name = "demo", name
	t.Status.State = "pending"
	for _, f := range change {
		f(t)
	}
	return t
}

func in(state string) func(*robotv1.Task) {
	return func(t *robotv1.Task) { t.Status.State = state }
}

func unplaced(message string) func(*robotv1.Task) {
	return func(t *robotv1.Task) {
		t.Status.Conditions = []metav1.Condition{{Type: robotv1.ConditionPlaced, Status: metav1.ConditionFalse, Message: message}}
	}
}

// rejected is a task with rejections. The message of its condition must not be read.
func rejected(s *robotv1.PlacementStatus) func(*robotv1.Task) {
	return func(t *robotv1.Task) {
		unplaced("0 of 7 robots: 7: a message that is not read")(t)
		t.Status.Placement = s
	}
}

func ofGroup(t *robotv1.Task) { t.Spec.TaskGroupName = "demo-g" }

func onRobot(name string) func(*robotv1.Task) {
	return func(t *robotv1.Task) {
		t.Status.Attempt, t.Status.Attempts = 1, []robotv1.TaskAttempt{{Attempt: 1, Robot: name}}
	}
}

func job(state, desired string) *robotv1.Job {
	j := &robotv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
	j.Status.State, j.Spec.DesiredState = state, desired
	return j
}

func initGroup() *robotv1.TaskGroup {
	g := &robotv1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo-g"}}
	g.Spec.InitTasks = []robotv1.TaskDefinition{{Name: "fetch"}}
	return g
}

// around is a Source with the objects around a task, some of which are hidden.
type around struct {
	hides   string // job, group, replica or robot
	replica []*robotv1.Task
	robot   *robotv1.Robot
	hold    string
	fails   error
}

func (a around) Hold(context.Context) (string, error) { return a.hold, a.fails }

func (a around) Job(context.Context, string, string) (*robotv1.Job, error) {
	if a.hides == "job" {
		return nil, explain.ErrHidden
	}
	return job("paused", robotv1.DesiredPaused), a.fails
}

func (a around) Group(context.Context, string, string) (*robotv1.TaskGroup, error) {
	if a.hides == "group" {
		return nil, fmt.Errorf("get it: %w", explain.ErrHidden)
	}
	return initGroup(), nil
}

func (a around) Robot(context.Context, string, string) (*robotv1.Robot, error) {
	if a.hides == "robot" {
		return nil, explain.ErrHidden
	}
	return a.robot, a.fails
}

func (a around) Replica(context.Context, *robotv1.Task) ([]*robotv1.Task, error) {
	if a.hides == "replica" {
		return nil, explain.ErrHidden
	}
	return a.replica, nil
}

// aroundDaemon has a running job, whose init task is a daemon.
type aroundDaemon struct{ around }

func (aroundDaemon) Job(context.Context, string, string) (*robotv1.Job, error) {
	return job("running", ""), nil
}

func (aroundDaemon) Group(context.Context, string, string) (*robotv1.TaskGroup, error) {
	g := initGroup()
	g.Spec.InitTasks[0].Daemon = true
	return g, nil
}

func fact(a *explain.Explanation, name string) string {
	for _, f := range a.Facts {
		if f.Name == name {
			return f.Text
		}
	}
	return ""
}

func TestExplainTask_IsHeldAfterARestore(t *testing.T) {
	const held = "it waits until the connected robots have reported what they ran since the restored backup"
	for state, want := range map[string]string{"pending": held, "dispatching": held, "unknown": held, "running": "its robot runs it", "completed": ""} {
		a, err := explain.ExplainTask(t.Context(), around{hold: taskstate.ReasonAwaitingJournals}, task("main", in(state)), noon)
		if err != nil {
			t.Fatal(err)
		}
		if isHeld := want == held; a.Summary != want || (fact(a, "held") == taskstate.ReasonAwaitingJournals) != isHeld {
			t.Errorf("%s: summary %q, facts %+v", state, a.Summary, a.Facts)
		}
	}
	if a, err := explain.ExplainTask(t.Context(), around{hold: "AnotherReason"}, task("main"), noon); err != nil || a.Summary != "no task is placed (AnotherReason)" {
		t.Errorf("a reason of a newer version: %+v, %v", a, err)
	}
}

func TestExplainTask_OmitsHiddenObjects(t *testing.T) {
	fetch := task("fetch", ofGroup, in("running"), onRobot("robot-of-the-init-task"))
	for _, row := range []struct{ hides, wantJob, wantInit, wantSummary string }{
		{"", "demo is paused: its pending tasks do not start until it is resumed", "fetch is running on robot-of-the-init-task", "its job does not let it start"},
		{"job", "demo, which you do not have permission to read", "fetch is running on robot-of-the-init-task", "it waits for init task fetch, which is running on robot-of-the-init-task"},
		{"group", "demo is paused: its pending tasks do not start until it is resumed", "hidden: you do not have permission to read them", "its job does not let it start"},
		{"replica", "demo is paused: its pending tasks do not start until it is resumed", "hidden: you do not have permission to read them", "its job does not let it start"},
	} {
		a, err := explain.ExplainTask(t.Context(), around{hides: row.hides, replica: []*robotv1.Task{fetch}}, task("main", ofGroup), noon)
		if err != nil {
			t.Fatal(err)
		}
		if fact(a, "job") != row.wantJob || fact(a, "init tasks") != row.wantInit || a.Summary != row.wantSummary {
			t.Errorf("with %q hidden: %+v", row.hides, a)
		}
		if text, _ := json.Marshal(a); (row.hides == "group" || row.hides == "replica") && strings.Contains(string(text), "robot-of") {
			t.Errorf("with %q hidden it names another task's robot: %s", row.hides, text)
		}
	}
}

func TestExplainTask_ReturnsErrorsOfTheSource(t *testing.T) {
	if a, err := explain.ExplainTask(t.Context(), around{fails: context.DeadlineExceeded}, task("main"), noon); err == nil {
		t.Errorf("no error, but %+v", a)
	}
}

func TestExplainTask_IsWaitingByState(t *testing.T) {
	works := map[lifecycle.TaskState]bool{lifecycle.TaskRunning: true, lifecycle.TaskCompleted: true, lifecycle.TaskFailed: true, lifecycle.TaskCanceled: true}
	for _, s := range lifecycle.TaskStates {
		a, err := explain.ExplainTask(t.Context(), around{}, task("main", in(string(s))), noon)
		if err != nil || a.IsWaiting == works[s] || a.State != string(s) || a.IsWaiting && a.Summary == "" {
			t.Errorf("%s: %+v, %v", s, a, err)
		}
	}
	a, err := explain.ExplainTask(t.Context(), around{}, task("main", in("running"), func(t *robotv1.Task) { t.Status.Reason = robotv1.ReasonStopping }), noon)
	if err != nil || !a.IsWaiting {
		t.Errorf("one that is asked to stop: %+v, %v", a, err)
	}
}

func TestExplainTask_ShowsHowTheRobotAnswers(t *testing.T) {
	answered := func(is metav1.ConditionStatus, message string) func(*robotv1.Task) {
		return func(t *robotv1.Task) {
			t.Status.Conditions = []metav1.Condition{{Type: robotv1.ConditionAccepted, Status: is, Message: message}}
		}
	}
	timedOut := func(t *robotv1.Task) { t.Status.Reason = robotv1.ReasonDispatchTimeout }
	for _, row := range []struct {
		name                         string
		in                           *robotv1.Task
		wantSummary, wantReplacement string
	}{
		{"not known yet", task("main", in("dispatching"), onRobot("r1")), "it was dispatched to its robot, which has not started it yet", ""},
		{"it prepares the task", task("main", in("dispatching"), onRobot("r1"), answered(metav1.ConditionTrue, "robot r1 prepares it")), "robot r1 prepares it", ""},
		{"it does not answer", task("main", in("unknown"), onRobot("r1"), answered(metav1.ConditionFalse, "robot r1 does not answer"), timedOut),
			"robot r1 does not answer", "it is replaced on another robot when this one has not answered for 5m0s (disconnect.lostAfter)"},
		{"an answer to an earlier dispatch", task("main", in("running"), onRobot("r1"), answered(metav1.ConditionTrue, "old")), "its robot runs it", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, err := explain.ExplainTask(t.Context(), around{}, row.in, noon)
			if err != nil || a.Summary != row.wantSummary || fact(a, "replacement") != row.wantReplacement {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
}

// aroundType is a task of a Job of another type.
type aroundType struct {
	around
	jobType string
}

func (a aroundType) Job(context.Context, string, string) (*robotv1.Job, error) {
	j := job("running", "")
	j.Spec.Type = a.jobType
	return j, nil
}

func TestExplainTask_LostRobotOfATiedTask(t *testing.T) {
	ofType := func(name string) func(*robotv1.Task) { return func(t *robotv1.Task) { t.Spec.Type = name } }
	for _, row := range []struct{ jobType, taskType, want string }{
		{"system", "system", "it is a task of a system job and waits for its own robot"},
		{"system", "sysbatch", "it is a task of a system job and waits for its own robot"},
		{"sysbatch", "sysbatch", "it is a task of a sysbatch job and waits for its own robot"},
	} {
		a, err := explain.ExplainTask(t.Context(), aroundType{jobType: row.jobType}, task("main", in("unknown"), onRobot("r1"), ofType(row.taskType)), noon)
		if err != nil || fact(a, "replacement") != row.want {
			t.Errorf("a %s task of a %s job: %+v, %v", row.taskType, row.jobType, a, err)
		}
	}
}

func TestExplainTask_NextAttemptHasATime(t *testing.T) {
	at := metav1.NewMicroTime(noon.Add(90 * time.Second))
	a, err := explain.ExplainTask(t.Context(), around{hides: "job"}, task("main", func(t *robotv1.Task) { t.Status.RetryAt = &at }), noon)
	if err != nil || a.Summary != "it waits for its next attempt" {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, f := range a.Facts {
		if (f.Name == explain.NextAttempt) != (f.At != nil) || f.At != nil && !f.At.Equal(&at) {
			t.Errorf("%+v", f)
		}
	}
}

func TestExplainTask_ShowsNextRun(t *testing.T) {
	at := metav1.NewMicroTime(noon.Add(90 * time.Second))
	nextRun := func(t *robotv1.Task) {
		t.Status.Reason, t.Status.Attempts[0].RunCount, t.Status.Attempts[0].NextRunAt = wire.ReasonRestarting, 3, &at
	}
	stops := func(t *robotv1.Task) { t.Status.Reason = robotv1.ReasonStopping }
	side := task("fetch", ofGroup, in("running"), onRobot("r1"), nextRun)
	for _, row := range []struct {
		name        string
		in          *robotv1.Task
		now         time.Time
		wantWaiting bool
		wantSummary string
		wantNextRun string
	}{
		{"it waits for its next run", task("main", in("running"), onRobot("r1"), nextRun), noon, true,
			"its last run has ended, and its robot starts it again", "in 90s, at 2026-01-01T12:01:30Z (run 4)"},
		{"its robot has no contact, or a clock that is behind", task("main", in("running"), onRobot("r1"), nextRun), noon.Add(time.Hour), true,
			"its last run has ended, and its robot starts it again", "due 58m ago, at 2026-01-01T12:01:30Z (run 4)"},
		{"it is stopped meanwhile", task("main", in("running"), onRobot("r1"), nextRun, stops), noon, true, "its robot is stopping it", ""},
		{"its robot is lost meanwhile", task("main", in("unknown"), onRobot("r1"), nextRun), noon, true, "its robot is disconnected", ""},
		{"it runs", task("main", in("running"), onRobot("r1")), noon, false, "its robot runs it", ""},
		{"the daemon before it waits for its next run", task("main", ofGroup), noon, true, "it waits for init task fetch, which is running on r1 (Restarting)", ""},
	} {
		a, err := explain.ExplainTask(t.Context(), aroundDaemon{around{replica: []*robotv1.Task{side}}}, row.in, row.now)
		if err != nil || a.IsWaiting != row.wantWaiting || a.Summary != row.wantSummary || fact(a, explain.NextRun) != row.wantNextRun {
			t.Errorf("%s: %+v, %v", row.name, a, err)
		}
	}
}

func TestExplainTask_ShowsWhatKeepsTheRobotFromStartingTasks(t *testing.T) {
	const runs, ran = "its robot runs it", "its robot ran it when it was last seen"
	robot := func(phase, message string, conditions ...metav1.Condition) *robotv1.Robot {
		r := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Name: "r1"}}
		r.Status.Phase, r.Status.Message, r.Status.Conditions = phase, message, conditions
		return r
	}
	maintenance := metav1.Condition{Type: robotv1.ConditionMaintenance, Status: metav1.ConditionTrue, Message: "In maintenance by anna"}
	for _, row := range []struct {
		name, state            string
		around                 around
		wantSummary, wantRobot string
	}{
		{"connected", "running", around{robot: robot("Online", "Connected")}, runs, "r1"},
		{"in maintenance", "running", around{robot: robot("Online", "Connected", maintenance)}, runs, "r1: In maintenance by anna"},
		{"disconnected", "running", around{robot: robot("Unknown", "Disconnected")}, ran, "r1 is Unknown: Disconnected"},
		{"disconnected in maintenance", "running", around{robot: robot("Offline", "", maintenance)}, ran, "r1 is Offline"},
		{"lost", "unknown", around{robot: robot("Offline", "Disconnected")}, "its robot is disconnected", "r1 is Offline: Disconnected"},
		{"deleted", "running", around{}, runs, "r1"},
		{"hidden", "running", around{hides: "robot"}, runs, "r1"},
		{"of a task that has ended", "completed", around{robot: robot("Offline", "")}, "", ""},
	} {
		a, err := explain.ExplainTask(t.Context(), row.around, task("main", in(row.state), onRobot("r1")), noon)
		if err != nil || a.Summary != row.wantSummary || fact(a, "robot") != row.wantRobot {
			t.Errorf("%s: %+v, %v", row.name, a, err)
		}
	}
}

func TestExitText(t *testing.T) {
	for want, end := range map[string]robotv1.TaskAttempt{
		"": {}, "0": {ExitCode: new(int32(0))}, "137 (signal 9)": {ExitCode: new(int32(137)), Signal: 9},
	} {
		if got := explain.ExitText(end.ExitCode, end.Signal); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := explain.ExitText(new(int32(-1)), 0); got != "" {
		t.Errorf("%q for an end that nothing has seen", got)
	}
}

func TestExplainTask_RobotRestartsItDuringAHold(t *testing.T) {
	restarts := task("main", in("running"), onRobot("r1"), func(t *robotv1.Task) {
		t.Status.Attempts[0].NextRunAt = new(metav1.NewMicroTime(noon))
	})
	a, err := explain.ExplainTask(t.Context(), around{hold: taskstate.ReasonAwaitingJournals}, restarts, noon)
	if err != nil || a.Summary != "its last run has ended, and its robot starts it again" || fact(a, "held") != "" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestExplainTask_ListsTheRejectionsOfPlacement(t *testing.T) {
	robot := func(name string, o placement.Offer) placement.Robot { return placement.Robot{Name: name, Offer: &o} }
	online := func(name string, labels ...string) placement.Robot {
		o := placement.Offer{Phase: lifecycle.RobotOnline, Labels: map[string]string{}, Capacity: placement.Room{Tasks: 9}}
		for _, l := range labels {
			o.Labels[l] = "yes"
		}
		return robot(name, o)
	}
	asks := func(name string, labels ...string) placement.Demand {
		d := placement.Demand{Tasks: []placement.Task{{Name: name, Driver: "exec"}}, Rules: &placement.Rules{Selector: map[string]string{}}}
		for _, l := range labels {
			d.Rules.Selector[l] = "yes"
		}
		return d
	}
	gang := func(d placement.Demand, index int) placement.Demand {
		d.Group, d.Gang, d.Index = "g", 2, index
		return d
	}
	label := func(robots int, want string) explain.Rejection {
		return explain.Rejection{Check: "Label", Robots: robots, Want: want, Text: "label " + want + " missing"}
	}
	fleet := []placement.Robot{online("a"), online("b"), robot("c", placement.Offer{Phase: lifecycle.RobotOffline})}
	for _, row := range []struct {
		name    string
		robots  []placement.Robot
		demands []placement.Demand
		want    *explain.Rejections
	}{
		{"counts by rejection", fleet, []placement.Demand{asks("t", "brush")},
			&explain.Rejections{Robots: 3, Checks: []explain.Rejection{label(2, "brush=yes"), {Check: "Phase", Robots: 1, Want: "Online", Got: "Offline", Text: "phase is Offline"}}}},
		{"a separator in what a user wrote", fleet[:1], []placement.Demand{asks("t", "a; b")},
			&explain.Rejections{Robots: 1, Checks: []explain.Rejection{label(1, "a; b=yes")}}},
		{"more rejections than are listed", []placement.Robot{
			online("1"), online("2", "a"), online("3", "a", "b"), online("4", "a", "b", "c"), online("5", "a", "b", "c", "d"), online("6", "a", "b", "c", "d", "e"),
		}, []placement.Demand{asks("t", "a", "b", "c", "d", "e", "f")}, &explain.Rejections{Robots: 6, Omitted: 1, Checks: []explain.Rejection{
			label(1, "a=yes"), label(1, "b=yes"), label(1, "c=yes"), label(1, "d=yes"), label(1, "e=yes"),
		}}},
		{"a gang", fleet[:1], []placement.Demand{gang(asks("t", "brush"), 0), gang(asks("u", "brush"), 1)},
			&explain.Rejections{Robots: 1, Gang: "gang needs robots for all 2 replicas and found 0; next replica", Checks: []explain.Rejection{label(1, "brush=yes")}}},
		{"no robots", nil, []placement.Demand{asks("t")}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			no := placement.Decide(placement.Snapshot{Robots: row.robots, Demands: row.demands}).Rejected["t"]
			if no == nil {
				t.Fatal("a robot takes it")
			}
			a, err := explain.ExplainTask(t.Context(), around{}, task("t", rejected(apiconv.PlacementStatusFrom(no))), noon)
			if err != nil || !reflect.DeepEqual(a.Rejections, row.want) {
				t.Errorf("%q gives %+v, %v", no, a.Rejections, err)
			}
			if text := fact(a, explain.Placement); text != no.String() {
				t.Errorf("the text is %q, want %q", text, no)
			}
		})
	}
}
