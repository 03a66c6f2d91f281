package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/legacyagent"
)

// TestDefectsOfLegacyServer shows, one by one, that what the system got wrong
// that K8s4r has its protocol from is right here. The first is about a system
// at rest, so it comes before the others. That templates and user were ignored
// gets its rows when the agent has them.
func TestDefectsOfLegacyServer(t *testing.T) {
	s := startLegacy(t, "--robots", "0", "--metrics-address", "127.0.0.1:0")
	s.robotWith("r1", nil)
	agent(t, s, "r1", "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	for _, defect := range []struct {
		name  string
		check func(*system)
	}{
		{"two API writes a heartbeat, and a full list every 2 s", restIsFree},
		{"tasks of a Job were never dispatched, because they lacked jobName", jobNameTravels},
		{"count was ignored", countIsHonoured},
		{"env was ignored", envIsHonoured},
		{"driver was ignored", driverIsHonoured},
		{"resources were ignored", resourcesAreHonoured},
		{"killTimeout was ignored", killTimeoutIsHonoured},
		{"a timeout was noticed up to 5 s late", timeoutIsExact},
		{"constraints were never read", constraintsAreRead},
		{"priority was never read", priorityIsRead},
		{"deletes left a retained copy that came back to life", deletesAreForGood},
	} {
		t.Run(defect.name, func(t *testing.T) { defect.check(s.in(t)) })
	}
}

// in is the system with failures reported to a subtest.
func (s *system) in(t *testing.T) *system {
	sub := *s
	sub.t = t
	return &sub
}

// robotWith makes the Robot of an agent that is to come, with the label robot
// that Jobs select it by.
func (s *system) robotWith(name string, capacity map[string]string) {
	s.t.Helper()
	robot := robotNamed(name)
	for what, much := range capacity {
		if robot.Spec.Capacity == nil {
			robot.Spec.Capacity = map[string]resource.Quantity{}
		}
		robot.Spec.Capacity[what] = resource.MustParse(much)
	}
	s.create(robot)
}

// on lets a Job run on one robot only.
func on(robot string, job *v1alpha1.Job) *v1alpha1.Job {
	job.Spec.RobotSelector = map[string]string{"robot": robot}
	return job
}

// ourKinds are the resources that K8s4r's programs watch.
var ourKinds = []string{"jobs", "taskgroups", "tasks", "robots"}

// restIsFree compares what the API server was asked for before and after
// fifty heartbeats, ten seconds' worth. Most come from a legacy agent, which
// sends all of its device information with each.
func restIsFree(s *system) {
	f := &fleet{system: s, agents: map[string]*legacyagent.Agent{}}
	f.join("talkative", legacyagent.Config{Heartbeat: 250 * time.Millisecond})
	s.awaitRobot("talkative", "Online", 20*time.Second)
	s.settled("r1", "talkative")
	s.tasksOf("no-such-job") // a LIST to be counted
	before, from := s.apiMetrics(), s.heartbeats()
	testkit.Eventually(s.t, 30*time.Second, "fifty heartbeats more", func() bool { return s.heartbeats() >= from+50 })
	after := s.apiMetrics()

	for _, verb := range []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"} {
		if n := requests(after, verb, "robots") - requests(before, verb, "robots"); n > 0 {
			s.t.Errorf("fifty heartbeats cost %d requests %s robots", n, verb)
		}
	}
	for _, kind := range ourKinds {
		if n := requests(after, "LIST", kind) - requests(before, "LIST", kind); n > 0 {
			s.t.Errorf("%d requests LIST %s within ten seconds at rest", n, kind)
		}
	}
	if requests(before, "POST", "robots") < 2 || requests(before, "LIST", "tasks") == 0 {
		s.t.Error("what this test asked for is not counted: the metric is not what it was")
	}
}

// requests returns how many requests for one of our kinds the API server has counted.
func requests(metrics, verb, kind string) int {
	return counted(metrics, "apiserver_request_total", `verb="`+verb+`"`, `resource="`+kind+`"`, `group="robot.k8s4r.io"`)
}

// settled blocks until the writes that follow a registration have ended: the objects have
// not changed for ten heartbeats.
func (s *system) settled(robots ...string) {
	s.t.Helper()
	version, since := "", 0
	testkit.Eventually(s.t, 30*time.Second, "the robots are at rest", func() bool {
		now := ""
		for _, robot := range robots {
			now += s.robot(robot).ResourceVersion + " "
		}
		if now != version {
			version, since = now, s.heartbeats()
		}
		return s.heartbeats() >= since+10
	})
}

// heartbeats returns how many heartbeats the server has received.
func (s *system) heartbeats() int {
	s.t.Helper()
	return s.count("k8s4r_server_received_messages_total", `kind="heartbeat"`)
}

// apiMetrics returns the metrics of the API server.
func (s *system) apiMetrics() string {
	s.t.Helper()
	c, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// file returns a path in the test's directory. Processes that wait for the file to be deleted
// therefore end with the test.
func (s *system) file(name string) string { return filepath.Join(s.t.TempDir(), name) }

func linesOf(file string) []string {
	text, _ := os.ReadFile(file)
	return testkit.SplitLines(string(text))
}

func jobNameTravels(s *system) {
	l := listen(s.t, s.MQTTURL, wire.RobotTopic("r1", wire.KindDispatch))
	out := s.file("out")
	s.create(on("r1", jobOf("named", 1, shell("say", `echo "$K8S4R_JOB $K8S4R_TASK_GROUP $K8S4R_TASK" > `+out))))
	s.awaitJob("named", "completed", 20*time.Second)
	if spec := s.task("named-main-0-say").Spec; spec.JobName != "named" || spec.TaskGroupName != "named-main" {
		s.t.Errorf("the task is of job %q and group %q", spec.JobName, spec.TaskGroupName)
	}
	d, err := wire.Decode[wire.Dispatch]([]byte(l.last(wire.RobotTopic("r1", wire.KindDispatch))))
	if err != nil || d.Task.Spec.JobName != "named" {
		s.t.Errorf("dispatched was %+v, %v", d.Task.Spec, err)
	}
	if got := linesOf(out); len(got) != 1 || !strings.HasPrefix(got[0], "named ") {
		s.t.Errorf("the process saw %q", got)
	}
}

func countIsHonoured(s *system) {
	out := s.file("out")
	s.create(on("r1", jobOf("counted", 5, shell("say", `echo "$K8S4R_TASK_INDEX" >> `+out))))
	s.awaitJob("counted", "completed", 20*time.Second)
	got := linesOf(out)
	slices.Sort(got)
	if tasks := s.tasksOf("counted"); fmt.Sprint(got) != "[0 1 2 3 4]" || len(tasks) != 5 {
		s.t.Errorf("replicas %v of %d ran", got, len(tasks))
	}
}

func envIsHonoured(s *system) {
	out := s.file("out")
	task := shell("say", `echo "$GREETING" > `+out)
	task.Env = map[string]string{"GREETING": "good  morning"}
	s.create(on("r1", jobOf("greeting", 1, task)))
	s.awaitJob("greeting", "completed", 20*time.Second)
	if got := linesOf(out); len(got) != 1 || got[0] != "good  morning" {
		s.t.Errorf("the process saw %q", got)
	}
}

func driverIsHonoured(s *system) {
	raw := shell("say", "exit 0")
	raw.Driver = v1alpha1.DriverRawExec
	s.create(on("r1", jobOf("raw", 1, raw)))
	s.awaitJob("raw", "completed", 20*time.Second)

	boxed := v1alpha1.TaskDefinition{
		Name: "say", Driver: v1alpha1.DriverDocker,
		Config: v1alpha1.TaskConfig{DockerConfig: &v1alpha1.DockerConfig{Image: "busybox"}},
	}
	job := on("r1", jobOf("boxed", 1, boxed))
	s.create(job)
	s.awaitRefusal("boxed-main-0-say", "driver docker")
	s.delete(job)
}

// awaitRefusal waits until the status of a task names what it waits for.
func (s *system) awaitRefusal(task, because string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 20*time.Second, task+" says why it waits", func() error {
		got := &v1alpha1.Task{}
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: task}, got); err != nil {
			return err
		}
		c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionPlaced)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, because) || got.Spec.TargetRobot != "" {
			return fmt.Errorf("it is %q on %q: %+v", got.Status.State, got.Spec.TargetRobot, c)
		}
		return nil
	})
}

func resourcesAreHonoured(s *system) {
	s.robotWith("small", map[string]string{"cpu": "1", "memory": "1Gi"})
	agent(s.t, s, "small")
	s.awaitRobot("small", "Online", 20*time.Second)
	need := func(cpu, memory, script string) v1alpha1.TaskDefinition {
		task := shell("work", script)
		task.Resources = &v1alpha1.Resources{CPU: quantity(cpu), Memory: quantity(memory)}
		return task
	}
	out := s.file("out")
	s.create(on("small", jobOf("turns", 3, need("600m", "1Mi", fmt.Sprintf("echo start >> %[1]s; sleep 0.1; echo end >> %[1]s", out)))))
	s.awaitJob("turns", "completed", 20*time.Second)
	if got := strings.Join(linesOf(out), " "); got != "start end start end start end" {
		s.t.Errorf("tasks of 600m cpu shared a robot of one: %s", got)
	}
	for name, task := range map[string]v1alpha1.TaskDefinition{"cpu": need("2", "1Mi", "exit 0"), "memory": need("1m", "2Gi", "exit 0")} {
		job := on("small", jobOf("greedy-"+name, 1, task))
		s.create(job)
		s.awaitRefusal("greedy-"+name+"-main-0-work", name)
		s.delete(job)
	}
}

func quantity(s string) *resource.Quantity { return new(resource.MustParse(s)) }

// ignoresTERM is a script that no SIGTERM ends.
const ignoresTERM = `trap "" TERM; while :; do sleep 0.05; done`

func killTimeoutIsHonoured(s *system) {
	task := shell("work", ignoresTERM)
	task.Timeout, task.KillTimeout = span(2*time.Second), span(700*time.Millisecond)
	s.endsByTimeout("killed", task, 2700*time.Millisecond, 137, syscall.SIGKILL)
}

func timeoutIsExact(s *system) {
	task := shell("work", "sleep 60")
	task.Timeout = span(1300 * time.Millisecond)
	s.endsByTimeout("slow", task, 1300*time.Millisecond, 143, syscall.SIGTERM)
}

func span(d time.Duration) *v1alpha1.Duration { return new(v1alpha1.Duration(d.String())) }

// endsByTimeout checks that a task ends at its timeout: twice in a row, to half a second. It has ten
// tries. The older server, up to 5 s late each time, is in time twice in one of a hundred pairs; a
// busy machine is late now and then.
func (s *system) endsByTimeout(name string, task v1alpha1.TaskDefinition, after time.Duration, code int32, signal syscall.Signal) {
	s.t.Helper()
	var late time.Duration
	inTime := 0
	for try := 0; try < 10 && inTime < 2; try++ {
		job := fmt.Sprintf("%s-%d", name, try)
		s.create(on("r1", jobOf(job, 1, task)))
		s.awaitJob(job, "failed", 20*time.Second)
		if late = s.endedByTimeout(job+"-main-0-work", after, code, signal); late <= 500*time.Millisecond {
			inTime++
		} else {
			inTime = 0
		}
	}
	if inTime < 2 {
		s.t.Errorf("it ended %s after %s", late, after)
	}
}

// endedByTimeout checks the status of a task whose timeout has passed, and returns how
// late that was seen.
func (s *system) endedByTimeout(name string, after time.Duration, code int32, signal syscall.Signal) (late time.Duration) {
	s.t.Helper()
	got := s.task(name).Status
	if got.State != "failed" || got.Message != "Task terminated: Task timeout" ||
		got.ExitCode == nil || *got.ExitCode != code || got.Signal != int32(signal) {
		s.t.Errorf("status is %+v", got)
	}
	if got.StartedAt == nil || got.FinishedAt == nil {
		s.t.Fatalf("it ran from %v to %v", got.StartedAt, got.FinishedAt)
	}
	if late = got.FinishedAt.Sub(got.StartedAt.Time) - after; late < 0 {
		s.t.Errorf("it ended %s before %s", -late, after)
	}
	if a := got.Attempts[0]; a.Reason != wire.ReasonTimeout || a.Signal != int32(signal) || *a.ExitCode != code {
		s.t.Errorf("attempt is %+v", a)
	}
	return late
}

func constraintsAreRead(s *system) {
	s.robotWith("chosen", nil)
	agent(s.t, s, "chosen")
	s.awaitRobot("chosen", "Online", 20*time.Second)
	// Two: left to themselves they spread, and one would go to another robot.
	job := jobOf("picky", 2, shell("work", "exit 0"))
	job.Spec.TaskGroups[0].Constraints = []v1alpha1.Constraint{
		{LTarget: new("${robot.labels.robot}"), Operand: "=", RTarget: new("chosen")},
	}
	s.create(job)
	s.awaitJob("picky", "completed", 20*time.Second)
	for _, task := range s.tasksOf("picky") {
		if at := task.Spec.TargetRobot; at != "chosen" {
			s.t.Errorf("%s ran on %s, which does not meet its constraint", task.Name, at)
		}
	}
}

func priorityIsRead(s *system) {
	s.robotWith("busy", map[string]string{"tasks": "1"})
	agent(s.t, s, "busy")
	s.awaitRobot("busy", "Online", 20*time.Second)
	hold, out := s.file("hold"), s.file("out")
	s.hold(hold)
	s.create(on("busy", jobOf("first", 1, shell("work", while(hold)))))
	s.awaitTask("first-main-0-work", "running", 20*time.Second)
	for _, job := range []struct {
		name     string
		priority int32
	}{{"low", 10}, {"high", 90}, {"middle", 50}} {
		j := on("busy", jobOf(job.name, 1, shell("work", "echo "+job.name+" >> "+out)))
		j.Spec.Priority = &job.priority
		s.create(j)
		s.awaitRefusal(job.name+"-main-0-work", "")
	}
	os.Remove(hold)
	for _, job := range []string{"first", "low", "high", "middle"} {
		s.awaitJob(job, "completed", 20*time.Second)
	}
	if got := fmt.Sprint(linesOf(out)); got != "[high middle low]" {
		s.t.Errorf("they ran in the order %s", got)
	}
}

// hold creates a file whose deletion scripts wait for. It is deleted with the test at the latest.
func (s *system) hold(file string) {
	s.t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// while returns a script that runs as long as a file exists.
func while(file string) string { return "while [ -e " + file + " ]; do sleep 0.05; done" }

// deletesAreForGood deletes a task of a connected robot and a task of a robot whose agent is
// stopped. Neither may come back after the agent has restarted, with what it has stored or with
// nothing but its identity.
func deletesAreForGood(s *system) {
	s.robotWith("reborn", nil)
	first := agent(s.t, s, "reborn")
	s.awaitRobot("reborn", "Online", 20*time.Second)
	runs := s.file("runs")
	heard, unheard := s.startEndless("heard", runs), s.startEndless("unheard", runs)

	s.delete(heard.job)
	s.awaitGone(heard.task, 20*time.Second)
	testkit.Eventually(s.t, 20*time.Second, "its process is gone", func() bool { return !processIn(heard.pid) })
	s.awaitUnlisted("reborn", heard.task)
	first.Kill()
	s.delete(unheard.job)
	s.awaitGone(unheard.task, 20*time.Second)
	s.awaitUnlisted("reborn", unheard.task)

	second := agent(s.t, s, "reborn")
	testkit.Eventually(s.t, 30*time.Second, "the other process is gone too", func() bool { return !processIn(unheard.pid) })
	s.create(on("reborn", jobOf("with-memory", 1, shell("work", "exit 0"))))
	s.awaitJob("with-memory", "completed", 30*time.Second)
	second.Kill()
	blank := s.file("state")
	if err := os.CopyFS(filepath.Join(blank, "identity"), os.DirFS(filepath.Join(stateDir(s, "reborn"), "identity"))); err != nil {
		s.t.Fatal(err)
	}
	agent(s.t, s, "reborn", "--state-dir", blank)
	s.create(on("reborn", jobOf("without-memory", 1, shell("work", "exit 0"))))
	s.awaitJob("without-memory", "completed", time.Minute)
	if got := linesOf(runs); len(got) != 2 {
		s.t.Errorf("what ran is %q", got)
	}
}

// endless is a Job on the robot reborn that ends only when it is stopped, or
// with the test.
type endless struct {
	job  *v1alpha1.Job
	task *v1alpha1.Task
	pid  string // file
}

func (s *system) startEndless(name, runs string) endless {
	s.t.Helper()
	hold, pid := s.file("hold"), s.file("pid")
	s.hold(hold)
	job := on("reborn", jobOf(name, 1, shell("work", fmt.Sprintf("echo $$ > %s; echo %s >> %s; %s", pid, name, runs, while(hold)))))
	s.create(job)
	return endless{job: job, task: s.awaitTask(name+"-main-0-work", "running", 20*time.Second), pid: pid}
}

// awaitUnlisted blocks until the retained list of a robot does not name this task.
func (s *system) awaitUnlisted(robot string, task *v1alpha1.Task) {
	s.t.Helper()
	topic := wire.RobotTopic(robot, wire.KindState)
	testkit.EventuallyNoError(s.t, 10*time.Second, "no list names "+task.Name, func() error {
		l := listen(s.t, s.MQTTURL, topic)
		testkit.Eventually(s.t, 10*time.Second, "a list is retained", func() bool { return l.last(topic) != "" })
		if list := l.last(topic); strings.Contains(list, string(task.UID)) {
			return fmt.Errorf("the retained list is %s", list)
		}
		return nil
	})
}

// TestRobot_GoesOfflineWithoutHeartbeats covers the defects of the first server that concern
// time, with robots that are offline after seconds instead of minutes.
func TestRobot_GoesOfflineWithoutHeartbeats(t *testing.T) {
	const offlineAfter = 12 * time.Second
	s := start(t, "--robots", "0", "--offline-after", offlineAfter.String())
	s.robotWith("r1", nil)
	cmd := agent(t, s, "r1", "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	t.Run("heartbeats did not advance lastHeartbeatTime", func(t *testing.T) { s.in(t).heartbeatAdvances(offlineAfter / 3) })
	t.Run("a robot that went offline kept its tasks forever", func(t *testing.T) { s.in(t).silenceIsSeen(cmd) })
}

// heartbeatAdvances waits for four values of the last heartbeat, none older than the limit.
func (s *system) heartbeatAdvances(bound time.Duration) {
	s.t.Helper()
	last := s.lastHeartbeat("r1")
	for range 3 {
		var pause time.Duration // for which the machine did not let this test look
		looked := time.Now()
		testkit.Eventually(s.t, bound+time.Second, "the time of the last heartbeat advances", func() bool {
			pause, looked = max(pause, time.Since(looked)), time.Now()
			return s.lastHeartbeat("r1").After(last.Time)
		})
		next := s.lastHeartbeat("r1")
		if gap := next.Sub(last.Time); gap > bound+pause {
			s.t.Errorf("from one to the next are %s, more than a third of --offline-after", gap)
		}
		last = next
	}
}

// silenceIsSeen suspends an agent, like a robot that drives into a tunnel, and resumes it.
func (s *system) silenceIsSeen(agent *program) {
	s.t.Helper()
	hold, out := s.file("hold"), s.file("out")
	s.hold(hold)
	s.create(on("r1", jobOf("before", 1, shell("work", while(hold)+"; echo before >> "+out))))
	task := s.awaitTask("before-main-0-work", "running", 20*time.Second)
	agent.Signal(syscall.SIGSTOP)
	defer agent.Signal(syscall.SIGCONT)
	s.awaitTask(task.Name, "unknown", 30*time.Second)
	if phase := s.robot("r1").Status.Phase; phase != "Offline" {
		s.t.Errorf("the robot is %s", phase)
	}
	s.create(on("r1", jobOf("during", 1, shell("work", "echo during >> "+out))))
	s.awaitRefusal("during-main-0-work", "ffline")

	os.Remove(hold)
	agent.Signal(syscall.SIGCONT)
	s.awaitRobot("r1", "Online", 30*time.Second)
	s.awaitJob("before", "completed", 30*time.Second)
	s.awaitJob("during", "completed", 30*time.Second)
	if got := linesOf(out); len(got) != 2 {
		s.t.Errorf("what ran is %q", got)
	}
	if got := s.task(task.Name).Status; got.Attempt != 1 {
		s.t.Errorf("it took %d attempts", got.Attempt)
	}
}
