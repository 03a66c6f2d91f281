package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

// brokers are those with which the whole system must work.
var brokers = []struct {
	name string
	args func(t *testing.T) []string
}{
	{"on the embedded broker", func(*testing.T) []string { return nil }},
	// k8s4r up has no certificates for a broker of others.
	{"on Mosquitto", func(t *testing.T) []string { return []string{"--mqtt-url", mosquitto(t), "--allow-anonymous-agents"} }},
}

func TestExamples_RunToTheirEnd(t *testing.T) {
	t.Parallel()
	for _, broker := range brokers {
		t.Run(broker.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, append([]string{"--robots", "3"}, broker.args(t)...)...)
			for i := range 3 {
				s.awaitRobot(fmt.Sprintf("robot-%d", i+1), string(lifecycle.RobotOnline), 30*time.Second)
			}
			if out, err := s.kubectl("apply", "-f", "../../examples"); err != nil {
				t.Fatalf("apply examples: %v\n%s", err, out)
			} else if strings.Contains(out, "Warning") {
				t.Errorf("an example uses a field without effect:\n%s", out)
			}
			s.whatWaitsForItsOperatorGoesOn()
			s.everyJobCompletes()
			s.label("share.robot.k8s4r.io/team-b=true")
			s.tenantHas("guest", "completed")
			s.aRequeueRunsAgain()
			s.theServiceIsRunAgainAndRollsOver()
			s.theSystemJobIsOnEveryRobot()
			s.theSysbatchJobRanOnEveryRobot()
			s.whatIsKeptRunningIsCanceled()
			s.threeRobotsTookPictures()
			s.tasksOfOneReplicaShareARobot()
			if got := s.task("disk-map-0-count").Status.Outputs["points"]; got != "1000" {
				t.Errorf("a task found %q points of its init task's", got)
			}
			s.awaitTask("ping", "completed", 30*time.Second)
			s.awaitTask("ping-robot-1", "completed", 30*time.Second)
			if got := s.tasksOf("only-robot-2")[0].Spec.TargetRobot; got != "robot-2" {
				t.Errorf("the selector picked %s", got)
			}
		})
	}
}

func (s *system) whatWaitsForItsOperatorGoesOn() {
	s.t.Helper()
	s.awaitJob("later", "paused", 30*time.Second)
	if out, err := s.RunProgram("k8s4r", "job", "resume", "later"); err != nil {
		s.t.Fatalf("resume: %v\n%s", err, out)
	}
	testkit.Eventually(s.t, 30*time.Second, "the Job for a datacenter says what it waits for", func() bool {
		out, _ := s.RunProgram("k8s4r", "why", "in-the-halls-main-0-where")
		return strings.Contains(out, "datacenter")
	})
	if out, err := s.kubectl("label", "robot", "robot-1", "datacenter=hall-1"); err != nil {
		s.t.Fatalf("label: %v\n%s", err, out)
	}
}

func (s *system) aRequeueRunsAgain() {
	s.t.Helper()
	if out, err := s.kubectl("patch", "rjob", "again", "--type=merge", "-p", `{"spec":{"requeue":{"generation":1}}}`); err != nil {
		s.t.Fatalf("patch: %v\n%s", err, out)
	}
	testkit.EventuallyNoError(s.t, 30*time.Second, "both tasks complete once more", func() error {
		for _, task := range s.tasksOf("again") {
			if task.Status.State != string(lifecycle.TaskCompleted) || task.Status.Attempt != 2 {
				return fmt.Errorf("%s: attempt %d is %s", task.Name, task.Status.Attempt, task.Status.State)
			}
		}
		return nil
	})
}

func (s *system) everyJobCompletes() {
	s.t.Helper()
	jobs := &v1alpha1.JobList{}
	if err := s.List(context.Background(), jobs, client.InNamespace("default")); err != nil {
		s.t.Fatal(err)
	}
	if len(jobs.Items) < 18 {
		s.t.Fatalf("only %d jobs", len(jobs.Items))
	}
	for _, job := range jobs.Items {
		if v1alpha1.IsKeptRunning(job.Spec.Type) {
			continue
		}
		s.awaitJob(job.Name, "completed", time.Minute)
		if out, err := s.kubectl("wait", "--for=condition=Complete", "--timeout=5s", "rjob/"+job.Name); err != nil {
			s.t.Errorf("kubectl wait: %v\n%s", err, out)
		}
	}
}

// theServiceIsRunAgainAndRollsOver lets the service exit with 0, after which it must run again.
func (s *system) theServiceIsRunAgainAndRollsOver() {
	s.t.Helper()
	s.runs("watch", 2)
	edit := `{"spec":{"taskGroups":[{"name":"cameras","count":2,"restartPolicy":{"attempts":10,"interval":"1m","delay":"1s","mode":"delay"},"update":{"maxParallel":1,"minHealthyTime":"2s"},` +
		`"tasks":[{"name":"look","driver":"exec","config":{"execConfig":{"command":"/bin/sh","args":["-c","sleep 1"]}}}]}]}}`
	if out, err := s.kubectl("patch", "rjob", "watch", "--type=merge", "-p", edit); err != nil {
		s.t.Fatalf("patch: %v\n%s", err, out)
	}
	testkit.EventuallyNoError(s.t, 60*time.Second, "a task that ended well runs again", func() error {
		for _, task := range s.tasksOf("watch") {
			for _, a := range task.Status.Attempts {
				if slices.ContainsFunc(a.Runs, func(r v1alpha1.TaskRun) bool { return r.Run < a.RunCount && r.ExitCode != nil && *r.ExitCode == 0 }) {
					return nil
				}
			}
		}
		return fmt.Errorf("none has")
	})
	s.awaitJob("watch", "running", time.Second)
}

func (s *system) theSystemJobIsOnEveryRobot() {
	s.t.Helper()
	s.runs("health", 3)
	robots := map[string]bool{}
	for _, task := range s.tasksOf("health") {
		robots[task.Spec.TargetRobot] = true
	}
	if len(robots) != 3 {
		s.t.Errorf("the system job is on %v", robots)
	}
}

func (s *system) theSysbatchJobRanOnEveryRobot() {
	s.t.Helper()
	robots := map[string]bool{}
	for _, task := range s.tasksOf("inventory") {
		robots[task.Spec.TargetRobot] = true
		if task.Status.State != string(lifecycle.TaskCompleted) || task.Status.Attempt != 1 {
			s.t.Errorf("%s is %s in attempt %d", task.Name, task.Status.State, task.Status.Attempt)
		}
	}
	if len(robots) != 3 {
		s.t.Errorf("the sysbatch job ran on %v", robots)
	}
}

// runs blocks until this many tasks of a job are running.
func (s *system) runs(job string, n int) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 60*time.Second, fmt.Sprintf("%d tasks of %s run", n, job), func() error {
		running := 0
		for _, task := range s.tasksOf(job) {
			if task.Status.State == string(lifecycle.TaskRunning) {
				running++
			}
		}
		if running != n {
			return fmt.Errorf("%d do", running)
		}
		return nil
	})
}

func (s *system) whatIsKeptRunningIsCanceled() {
	s.t.Helper()
	for _, job := range []string{"watch", "health"} {
		if out, err := s.RunProgram("k8s4r", "job", "cancel", job); err != nil {
			s.t.Fatalf("cancel %s: %v\n%s", job, err, out)
		}
		s.awaitJob(job, "canceled", time.Minute)
	}
}

// threeRobotsTookPictures reads the files that the processes wrote.
func (s *system) threeRobotsTookPictures() {
	s.t.Helper()
	files, _ := filepath.Glob(filepath.Join(s.DataDir, "robots", "*", "tasks", "*", "*", "work", "picture.txt"))
	pattern := regexp.MustCompile(`^picture (\d) taken by (robot-\d)\n$`)
	indexes, robots := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		m := pattern.FindStringSubmatch(string(text))
		if m == nil {
			s.t.Fatalf("%s holds %q", file, text)
		}
		indexes[m[1]], robots[m[2]] = true, true
	}
	if len(files) != 3 || len(indexes) != 3 || len(robots) != 3 {
		s.t.Errorf("want three pictures by three robots, have files %v", files)
	}
}

func (s *system) tasksOfOneReplicaShareARobot() {
	s.t.Helper()
	robotOf := map[string]string{}
	for _, task := range s.tasksOf("survey") {
		replica := task.Labels[v1alpha1.LabelTaskGroup] + "/" + task.Labels[v1alpha1.LabelTaskIndex]
		if other, ok := robotOf[replica]; ok && other != task.Spec.TargetRobot {
			s.t.Errorf("replica %s is on %s and %s", replica, other, task.Spec.TargetRobot)
		}
		robotOf[replica] = task.Spec.TargetRobot
	}
	if robotOf["survey-drive/0"] == robotOf["survey-drive/1"] {
		s.t.Errorf("both replicas of drive are on %s though there are three robots", robotOf["survey-drive/0"])
	}
}

func TestKubectl_PrintsTheExpectedColumns(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "1")
	s.create(jobOf("hello", 1, shell("say", "echo hi")))
	s.awaitJob("hello", "completed", 30*time.Second)
	for _, row := range []struct {
		name string
		args string
		want string
	}{
		{"jobs by short name", "get rjob hello", `NAME +TYPE +STATE +TOTAL +SUCCEEDED +FAILED +RUNNING +AGE\nhello +batch +completed +1 +1 +0 +0`},
		{"jobs wide", "get rjob hello -o wide", `REASON\n.*Changed to status "completed": all tasks completed`},
		{"groups by short name", "get rtg", `NAME +JOB +STATE +TOTAL +RUNNING +SUCCEEDED +FAILED +AGE\nhello-main +hello +completed +1 +0 +1 +0`},
		{"tasks by short name", "get rtask", `NAME +JOB +ROBOT +DRIVER +STATE +EXITCODE +RESTARTS +AGE\nhello-main-0-say +hello +robot-1 +raw_exec +completed +0`},
		{"tasks wide", "get rtask -o wide", `ATTEMPT +REASON\n.* 1 `},
		{"robots by short name", "get rb", `NAME +ROBOTID +PHASE +HOSTNAME +OS +CPUS +RUNNING +LASTHEARTBEAT +AGE\nrobot-1 +robot-1 +Online +\S+ +linux +\d+ +0 +\S+ +\S+\n`},
		{"robots wide", "get rb -o wide", `VERSION +ADDRESS\n`},
		{"all of ours by category", "get k8s4r", `(?s)job.robot.k8s4r.io/hello.*robot.robot.k8s4r.io/robot-1.*taskgroup.robot.k8s4r.io/hello-main.*task.robot.k8s4r.io/hello-main-0-say`},
		{"field descriptions", "explain rjob.spec.taskGroups.count", `Count is the number of replicas`},
	} {
		t.Run(row.name, func(t *testing.T) {
			testkit.EventuallyNoError(t, 10*time.Second, row.args, func() error {
				out, err := s.kubectl(strings.Fields(row.args)...)
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				if !regexp.MustCompile(row.want).MatchString(out) {
					return fmt.Errorf("got\n%s", out)
				}
				return nil
			})
		})
	}
}
