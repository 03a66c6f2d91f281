package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/legacyagent"
)

// habit is a behaviour of legacy agents in the field, and the outcome of a Job
// on such an agent.
type habit struct {
	name  string
	robot string
	agent legacyagent.Config
	count int32 // of tasks; 0: one
	job   string
	want  v1alpha1.TaskStatus
	// late is how many reports the agent sends after the end of each task.
	late int
}

func exits(code int32) func(string, int) int32 {
	return func(string, int) int32 { return code }
}

var habits = []habit{
	{
		name: "it subscribes seconds after the response", robot: "late", count: 3, job: "completed",
		agent: legacyagent.Config{LateSubscription: 3 * time.Second},
		want:  v1alpha1.TaskStatus{State: "completed", ExitCode: new(int32(0))},
	},
	{
		name: "it says running after completed", robot: "undead", count: 3, job: "completed", late: 1,
		agent: legacyagent.Config{RunningAfterTerminal: true},
		want:  v1alpha1.TaskStatus{State: "completed", ExitCode: new(int32(0))},
	},
	{
		name: "it says running after failed", robot: "undead-failed", job: "failed", late: 1,
		agent: legacyagent.Config{RunningAfterTerminal: true, Exit: exits(3)},
		want:  v1alpha1.TaskStatus{State: "failed", ExitCode: new(int32(3)), Reason: wire.ReasonExited, Message: "Task exited with code 3"},
	},
	{
		name: "it cannot launch, and says running after that", robot: "launchless", job: "failed", late: 1,
		agent: legacyagent.Config{FailsToStart: true},
		want:  v1alpha1.TaskStatus{State: "failed", ExitCode: new(int32(-1)), Reason: wire.ReasonStartFailed, Message: "fork/exec: no such file"},
	},
	{
		name: "it says Timeout, -1 and running before the true exit code", robot: "timeout", job: "failed", late: 1,
		agent: legacyagent.Config{WrongExitFirst: wire.ReasonTimeout, Exit: exits(143), TrueExitAfter: 2 * time.Second},
		want:  v1alpha1.TaskStatus{State: "failed", ExitCode: new(int32(143)), Reason: wire.ReasonTimeout, Message: "Task terminated: Task timeout"},
	},
	{
		name: "it says Timeout and -1, and nothing after", robot: "times-out", job: "failed",
		agent: legacyagent.Config{ReportsTimeout: true},
		want:  v1alpha1.TaskStatus{State: "failed", ExitCode: new(int32(-1)), Reason: wire.ReasonTimeout, Message: "Task terminated: Task timeout"},
	},
	{
		name: "it says the end with exit code 0 before the true one", robot: "slow-to-tell", job: "failed",
		agent: legacyagent.Config{RunningAtExit: true, Exit: exits(7), TrueExitAfter: 4 * time.Second},
		want:  v1alpha1.TaskStatus{State: "failed", ExitCode: new(int32(7)), Reason: wire.ReasonExited, Message: "Task exited with code 7"},
	},
	{
		name: "it says the end long before it is done with it", robot: "slow-to-end", count: 3, job: "completed",
		agent: legacyagent.Config{RunningAtExit: true, TrueExitAfter: 4 * time.Second},
		want:  v1alpha1.TaskStatus{State: "completed", ExitCode: new(int32(0))},
	},
}

// fleet is a system whose robots are all legacy agents.
type fleet struct {
	*system
	agents map[string]*legacyagent.Agent
	wire   *listener
}

func startFleet(t *testing.T, args ...string) *fleet {
	s := startLegacy(t, append([]string{"--robots", "0", "--metrics-address", "127.0.0.1:0"}, args...)...)
	return &fleet{system: s, agents: map[string]*legacyagent.Agent{}, wire: listen(t, s.MQTTURL, "k8s4r/robots/+/tasks/dispatch")}
}

// join starts an agent. It creates the Robot first, with the label robot that Jobs select it by.
func (f *fleet) join(robot string, cfg legacyagent.Config) *legacyagent.Agent {
	f.t.Helper()
	f.create(robotNamed(robot))
	return f.wake(robot, cfg)
}

// wake starts the agent of an existing Robot. If cfg has no broker, it uses the system's.
func (f *fleet) wake(robot string, cfg legacyagent.Config) *legacyagent.Agent {
	f.t.Helper()
	cfg.RobotID, cfg.Broker = robot, cmp.Or(cfg.Broker, f.MQTTURL)
	a, err := legacyagent.Start(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(a.Stop)
	f.agents[robot] = a
	return a
}

func robotNamed(name string) *v1alpha1.Robot {
	return &v1alpha1.Robot{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.RobotSpec{RobotID: name, Labels: map[string]string{"robot": name}},
	}
}

// jobOn returns a Job of simulated work for one robot.
func jobOn(robot, name string, count int32) *v1alpha1.Job {
	job := jobOf(name, count, shell("work", "exit 0"))
	job.Spec.RobotSelector = map[string]string{"robot": robot}
	return job
}

// taskOn returns a standalone Task for one robot.
func taskOn(robot, name string) *v1alpha1.Task {
	return &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.TaskSpec{TaskDefinition: shell("work", "exit 0"), TargetRobot: robot},
	}
}

func TestLegacyAgents_ReportFinalStatesInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, broker := range brokers {
		t.Run(broker.name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, broker.args(t)...)
			for _, h := range habits {
				f.create(robotNamed(h.robot))
				f.create(jobOn(h.robot, h.robot, max(1, h.count)))
			}
			for _, h := range habits {
				if h.agent.LateSubscription > 0 { // it gets its tasks because they are sent again
					h.agent.SubscribeIf = func() bool { return f.wire.sentAgain(h.robot) >= max(1, int(h.count)) }
				}
				f.wake(h.robot, h.agent)
			}
			for _, h := range habits {
				t.Run(h.name, func(t *testing.T) { f.in(t).holds(h) })
			}
			t.Run("no late report changes an end", func(t *testing.T) { f.in(t).endsStick() })
		})
	}
}

// in is the fleet with failures reported to a subtest.
func (f *fleet) in(t *testing.T) *fleet {
	s := *f.system
	s.t = t
	return &fleet{system: &s, agents: f.agents, wire: f.wire}
}

// holds waits for the expected end of a Job on a robot with this habit.
func (f *fleet) holds(h habit) {
	f.t.Helper()
	f.awaitJob(h.robot, h.job, 30*time.Second)
	for _, task := range f.tasksOf(h.robot) {
		f.awaitEnd(task.Name, h.want)
		if n := f.wire.dispatches(h.robot, string(task.UID)); h.agent.LateSubscription > 0 && n < 2 {
			f.t.Errorf("%s was dispatched %d times before its agent subscribed", task.Name, n)
		}
	}
	f.eachRanOnce(h.robot, max(1, int(h.count)))
}

// awaitEnd waits for the whole status of an end: the exit code may arrive late.
func (f *fleet) awaitEnd(name string, want v1alpha1.TaskStatus) {
	f.t.Helper()
	testkit.EventuallyNoError(f.t, 20*time.Second, name+" ends as it should", func() error {
		got := f.task(name).Status
		if len(got.Attempts) != 1 || got.Attempts[0].Reason != want.Reason {
			return fmt.Errorf("its attempts are %+v", got.Attempts)
		}
		if got.State != want.State || got.ExitCode == nil || *got.ExitCode != *want.ExitCode ||
			want.Message != "" && got.Message != want.Message || got.FinishedAt == nil || got.Attempt != 1 {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
}

func (f *fleet) eachRanOnce(robot string, tasks int) {
	f.t.Helper()
	runs := f.agents[robot].RunCounts()
	for uid, n := range runs {
		if n != 1 {
			f.t.Errorf("%s ran %s %d times", robot, uid, n)
		}
	}
	if len(runs) != tasks {
		f.t.Errorf("%s ran %d tasks instead of %d", robot, len(runs), tasks)
	}
}

// endsStick blocks until the server has processed each report that came after an
// end, and checks that no end has changed.
func (f *fleet) endsStick() {
	f.t.Helper()
	reports := 0
	for _, h := range habits {
		reports += h.late * max(1, int(h.count))
	}
	testkit.EventuallyNoError(f.t, 20*time.Second, "each late report is processed", func() error {
		if n := f.count("k8s4r_server_illegal_transitions_total", `state="running"`); n < reports {
			return fmt.Errorf("%d of %d", n, reports)
		}
		return nil
	})
	for _, h := range habits {
		f.awaitJob(h.robot, h.job, time.Second)
		for _, task := range f.tasksOf(h.robot) {
			f.awaitEnd(task.Name, h.want)
		}
	}
}

func TestLegacyAgents_LoseStateOrStopResponding(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	listening := f.loseSubscription("unresponsive") // takes the server half a minute to be sure of
	t.Run("one that does not answer a delete", func(t *testing.T) { f.in(t).deleteRunningTask("silent", true) })
	t.Run("one that reports running and Failed after a delete", func(t *testing.T) { f.in(t).deleteRunningTask("talking", false) })
	t.Run("one that forgets what it has run", func(t *testing.T) { f.in(t).forgets() })
	t.Run("a report of run 1 arrives during run 2", func(t *testing.T) { f.in(t).secondRun() })
	t.Run("one that receives nothing after a reconnect", func(t *testing.T) { listening(f.in(t)) })
}

// deleteRunningTask deletes a task that a robot runs. If silent, the robot does not report that it
// stopped the task.
func (f *fleet) deleteRunningTask(robot string, silent bool) {
	a := f.join(robot, legacyagent.Config{Run: -1, SilentOnDelete: silent, Heartbeat: time.Second})
	job := jobOn(robot, robot+"-off", 1)
	f.create(job)
	task := f.awaitTask(robot+"-off-main-0-work", "running", 20*time.Second)
	if len(task.Finalizers) != 1 || task.Finalizers[0] != v1alpha1.FinalizerRobotNotified {
		f.t.Errorf("finalizers are %v", task.Finalizers)
	}
	f.delete(job)
	uid := string(task.UID)
	testkit.Eventually(f.t, 20*time.Second, "the robot receives the delete", func() bool { return len(a.ReceivedDeletes()) > 0 })
	if a.ReceivedDeletes()[0] != uid {
		f.t.Errorf("it received deletes of %v instead of %s", a.ReceivedDeletes(), uid)
	}
	if silent && f.task(task.Name).DeletionTimestamp == nil {
		f.t.Error("the task is not held while its robot may be stopping it")
	}
	within := 20 * time.Second
	if !silent {
		within = 8 * time.Second // its report is enough: the server does not wait for the timeout
	}
	f.awaitGone(task, within)
	f.nothingComesBack(robot, map[string]int{uid: 1})
}

// nothingComesBack restarts an agent without its memory and runs one more task on it. runs are
// the attempts that it has run before.
func (f *fleet) nothingComesBack(robot string, runs map[string]int) {
	f.t.Helper()
	topic := wire.RobotTopic(robot, wire.KindState)
	testkit.EventuallyNoError(f.t, 10*time.Second, "the retained list is empty", func() error {
		l := listen(f.t, f.MQTTURL, topic)
		testkit.Eventually(f.t, 10*time.Second, "a list is retained", func() bool { return l.last(topic) != "" })
		if got := l.last(topic); got != `{"tasks":[]}` {
			return fmt.Errorf("it is %.200s", got)
		}
		return nil
	})
	a := f.agents[robot]
	a.Restart()
	testkit.Eventually(f.t, 20*time.Second, robot+" is back", a.IsOnline)
	last := taskOn(robot, robot+"-after")
	f.create(last)
	testkit.Eventually(f.t, 20*time.Second, "it works", func() bool { return a.RunCounts()[string(last.UID)] == 1 })
	runs[string(last.UID)] = 1
	if got := a.RunCounts(); fmt.Sprint(got) != fmt.Sprint(runs) {
		f.t.Errorf("it ran %v instead of %v", got, runs)
	}
}

// forgets ends many tasks of an agent at nearly the same time, after a list has named all of them: a
// list that crosses the end of a task on its way makes such an agent run the task again.
func (f *fleet) forgets() {
	a := f.join("forgetful", legacyagent.Config{Run: -1})
	f.create(jobOn("forgetful", "at-once", 10))
	testkit.Eventually(f.t, 30*time.Second, "all tasks run", func() bool {
		tasks := f.tasksOf("at-once")
		return len(tasks) == 10 && !slices.ContainsFunc(tasks, func(t v1alpha1.Task) bool { return t.Status.State != "running" })
	})
	a.Reconnect()
	l := listen(f.t, f.MQTTURL, wire.RobotTopic("forgetful", wire.KindState))
	testkit.EventuallyNoError(f.t, 30*time.Second, "all tasks are listed", func() error {
		list := l.last(wire.RobotTopic("forgetful", wire.KindState))
		for _, t := range f.tasksOf("at-once") {
			if !strings.Contains(list, string(t.UID)) {
				return fmt.Errorf("%s is not in the list %.300s", t.Name, list)
			}
		}
		return nil
	})
	for _, task := range f.tasksOf("at-once") {
		a.EndTask(string(task.UID))
	}
	f.awaitJob("at-once", "completed", 30*time.Second)
	f.eachRanOnce("forgetful", 10)
	f.nothingComesBack("forgetful", a.RunCounts())
}

func (f *fleet) secondRun() {
	a := f.join("again", legacyagent.Config{Run: -1})
	task := taskOn("again", "twice")
	f.create(task)
	f.awaitTask("twice", "running", 20*time.Second)
	first, second := string(task.UID), wire.AttemptUID(string(task.UID), 2)
	a.SendReport(first, wire.Status{State: wire.ReportFailed, Event: "Failed", ExitCode: 5})
	f.putBack(f.awaitTask("twice", "failed", 20*time.Second))
	f.awaitTask("twice", "running", 20*time.Second)
	if runs := a.RunCounts(); runs[first] != 1 || runs[second] != 1 || len(runs) != 2 {
		f.t.Errorf("it ran %v", runs)
	}
	a.SendReport(first, wire.Status{State: wire.ReportCompleted, Event: "Completed"})
	testkit.Eventually(f.t, 20*time.Second, "the report of run 1 is processed", func() bool {
		return f.count("k8s4r_server_dropped_messages_total", `reason="old-attempt"`) > 0
	})
	if got := f.task("twice").Status; got.State != "running" || got.Attempt != 2 {
		f.t.Errorf("a report of run 1 changed run 2 to %+v", got)
	}
	a.SendReport(second, wire.Status{State: wire.ReportCompleted, Event: "Completed"})
	got := f.awaitTask("twice", "completed", 20*time.Second).Status
	if len(got.Attempts) != 2 || *got.Attempts[0].ExitCode != 5 || *got.Attempts[1].ExitCode != 0 || got.RestartCount != 1 {
		f.t.Errorf("attempts are %+v", got.Attempts)
	}
}

// putBack returns a task to pending, as a requeue does.
func (f *fleet) putBack(task *v1alpha1.Task) {
	f.t.Helper()
	task.Status.State, task.Status.FailedRobots = "pending", nil
	if err := f.Status().Update(context.Background(), task); err != nil {
		f.t.Fatal(err)
	}
}

// loseSubscription makes an agent reconnect without subscribing and creates a task for it. The
// function that it returns checks the outcome.
func (f *fleet) loseSubscription(robot string) func(*fleet) {
	a := f.join(robot, legacyagent.Config{Heartbeat: time.Second, NoTasksAfterReconnect: true})
	f.create(taskOn(robot, "received"))
	f.awaitTask("received", "completed", 20*time.Second)
	a.Reconnect()
	f.create(taskOn(robot, "unheard"))
	return func(f *fleet) {
		f.awaitResponsive(robot, metav1.ConditionFalse)
		testkit.Eventually(f.t, 10*time.Second, "an event warns of it", func() bool { return f.warned(robot, "NotResponsive") })
		f.awaitTask("unheard", "dispatching", time.Second)
		a.Restart()
		f.awaitTask("unheard", "completed", 40*time.Second)
		f.awaitResponsive(robot, metav1.ConditionTrue)
		f.eachRanOnce(robot, 2)
	}
}

func (f *fleet) awaitResponsive(robot string, want metav1.ConditionStatus) {
	f.t.Helper()
	testkit.EventuallyNoError(f.t, 50*time.Second, fmt.Sprintf("%s is responsive: %s", robot, want), func() error {
		c := meta.FindStatusCondition(f.robot(robot).Status.Conditions, v1alpha1.ConditionResponsive)
		if c == nil || c.Status != want {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
}

// warned reports whether there is an event of this reason whose note names the way out.
func (f *fleet) warned(robot, reason string) bool {
	f.t.Helper()
	events := &corev1.EventList{}
	if err := f.List(context.Background(), events, client.InNamespace("default")); err != nil {
		f.t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.InvolvedObject.Name == robot && e.Reason == reason && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, "restart its agent") {
			return true
		}
	}
	return false
}

func TestLegacyAgents_ShareAJobWithCurrentOnes(t *testing.T) {
	t.Parallel()
	s := startLegacy(t, "--robots", "2")
	f := &fleet{system: s, agents: map[string]*legacyagent.Agent{}}
	for _, robot := range []string{"old-1", "old-2"} {
		f.join(robot, legacyagent.Config{Run: 500 * time.Millisecond, RunningAfterTerminal: true})
		f.awaitRobot(robot, "Online", 20*time.Second)
	}
	runs := testkit.NewTrace(t)
	s.create(jobOf("mixed", 20, shell("work", runs.WrapScript("sleep 0.5"))))
	s.awaitJob("mixed", "completed", time.Minute)

	on := map[string]int{}
	for _, task := range s.tasksOf("mixed") {
		on[task.Spec.TargetRobot]++
	}
	for _, robot := range []string{"robot-1", "robot-2", "old-1", "old-2"} {
		if on[robot] == 0 {
			t.Errorf("%s was given nothing: %v", robot, on)
		}
	}
	f.eachRanOnce("old-1", on["old-1"])
	f.eachRanOnce("old-2", on["old-2"])
	if n := ended(t, runs); n != on["robot-1"]+on["robot-2"] || n+on["old-1"]+on["old-2"] != 20 {
		t.Errorf("%d processes ended, and the tasks are on %v", n, on)
	}
}
