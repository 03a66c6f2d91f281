package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
)

// keepsItsTasks is a robot that may be away for an hour before another one takes its tasks.
var keepsItsTasks = v1alpha1.Disconnect{LostAfter: span(time.Hour)}

// TestPublicReports_Outage shows what happens in an outage that users of other systems have reported as
// defects. All of it happens to one robot, in one outage that is long enough to count as Offline.
func TestPublicReports_Outage(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node,console", "--offline-after", "6s")
	way := faultnet.New(t, hostPort(s.MQTTSURL))
	s.robotWith("r1", nil)
	agent(t, s, "r1", "--mqtt-url", "mqtts://"+way.Addr(), "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	starts := map[string]string{}
	for _, name := range []string{"crashes", "steady", "lost", "waits", "never", "updated"} {
		starts[name] = s.file(name)
	}
	s.create(outageService("crashes", v1alpha1.RestartPolicy{Attempts: 3, Interval: span(time.Hour)}, starts["crashes"]))
	s.create(outageService("steady", waitsAnHour, starts["steady"]))
	lost := outageService("lost", waitsAnHour, starts["lost"])
	lost.Spec.Disconnect = &v1alpha1.Disconnect{LostAfter: span(time.Second)}
	s.create(lost)
	s.create(outageService("waits", waitsAnHour, starts["waits"]))
	s.create(outageService("updated", waitsAnHour, starts["updated"]))
	for _, name := range []string{"crashes", "steady", "lost", "waits", "updated"} {
		s.awaitRuns(starts[name], 1)
	}
	s.killRun(starts["waits"], 1)
	s.awaitRestart("waits-main-0-work", 1)

	way.RefuseConnections()
	s.awaitRobot("r1", "Offline", time.Minute)
	s.killRun(starts["crashes"], 1)
	s.awaitRuns(starts["crashes"], 2)
	s.create(outageService("never", waitsAnHour, starts["never"]))
	testkit.Eventually(t, 20*time.Second, "it has a task", func() bool { return len(s.tasksOf("never")) == 1 })
	for _, job := range []string{"never", "waits"} {
		s.cli("job", "cancel", job)
		s.awaitJob(job, "canceled", 20*time.Second)
	}
	s.changeScript("updated", starts["updated"])

	way.RestoreNetwork()
	s.awaitRobot("r1", "Online", time.Minute)
	t.Run("kubeedge 3618 and 6414: edge pods are not restarted while offline", func(t *testing.T) {
		s.in(t).awaitFirstAttempt("crashes-main-0-work", 2)
		s.in(t).checkAttempts(starts["crashes"], "1", "1")
	})
	t.Run("an update is forgotten during the outage", func(t *testing.T) {
		s.in(t).awaitChangedScript("updated", starts["updated"])
	})
	t.Run("kubeedge 3941 and 4048: a pod is rebuilt on reconnect", func(t *testing.T) {
		s.in(t).awaitFirstAttempt("steady-main-0-work", 1)
		s.in(t).checkAttempts(starts["steady"], "1")
	})
	t.Run("nomad 12680: a reconnect starts a replacement that is stopped at once", func(t *testing.T) {
		s.in(t).awaitFirstAttempt("lost-main-0-work", 1)
		s.in(t).checkAttempts(starts["lost"], "1")
	})
	t.Run("a stopped task is started at reconnect and stopped at once", func(t *testing.T) {
		s.in(t).checkAttempts(starts["waits"], "1")
		s.in(t).checkAttempts(starts["never"])
	})
	t.Run("nomad 14925: a task that has reconnected is not updated", func(t *testing.T) {
		s.in(t).changeScript("steady", starts["steady"])
		s.in(t).awaitChangedScript("steady", starts["steady"])
	})
}

// TestPublicReports_Reboot shows what happens if a robot loses power and has no contact when it boots.
func TestPublicReports_Reboot(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node,console")
	way := faultnet.New(t, hostPort(s.MQTTSURL))
	s.robotWith("r1", nil)
	robot := s.startRebootable("r1", "--mqtt-url", "mqtts://"+way.Addr(), "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	app, services := s.file("app"), s.file("services")
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("sleep 600")) }))
	t.Cleanup(source.Close)
	edge := on("r1", restarted("app", waitsAnHour, app, "exec sh my-app"))
	edge.Spec.Type = v1alpha1.JobTypeBatch
	edge.Spec.Disconnect = &v1alpha1.Disconnect{LostAfter: span(6 * time.Hour), Replace: new(bool), Reconcile: v1alpha1.ReconcileBestScore}
	edge.Spec.TaskGroups[0].Tasks[0].Artifacts = []v1alpha1.Artifact{{GetterSource: source.URL + "/my-app"}}
	s.create(edge)
	system := on("r1", restarted("services", waitsAnHour, services, "exec sleep 600"))
	system.Spec.Type, system.Spec.TaskGroups[0].Count = v1alpha1.JobTypeSystem, nil
	s.create(system)
	s.awaitRuns(app, 1)
	s.awaitRuns(services, 1)

	robot.cutPower()
	source.Close()
	way.RefuseConnections()
	robot.boot()
	t.Run("nomad 24629: an allocation cannot be started after disconnect and reboot", func(t *testing.T) { s.in(t).awaitRuns(app, 2) })
	t.Run("openyurt 2810: services are broken after an offline reboot", func(t *testing.T) { s.in(t).awaitRuns(services, 2) })
	way.RestoreNetwork()
	s.awaitFirstAttempt(s.tasksOf("app")[0].Name, 2)
	s.awaitFirstAttempt(s.tasksOf("services")[0].Name, 2)
	s.checkAttempts(app, "1", "1")
	s.checkAttempts(services, "1", "1")
}

// outageService returns a service that runs on r1 only. Each run writes its attempt and its process ID.
func outageService(name string, policy v1alpha1.RestartPolicy, starts string) *v1alpha1.Job {
	job := on("r1", restarted(name, policy, starts, "exec sleep 600"))
	job.Spec.Disconnect = &keepsItsTasks
	return job
}

// changeScript changes what the task of a job runs.
func (s *system) changeScript(name, starts string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 20*time.Second, "change the script of "+name, func() error {
		job := &v1alpha1.Job{}
		if err := s.Get(s.t.Context(), nameOf("default", name), job); err != nil {
			return err
		}
		job.Spec.TaskGroups[0].Tasks[0] = shell("work", "echo changed $$ >> "+starts+"; exec sleep 600")
		return s.Update(s.t.Context(), job)
	})
}

// awaitFirstAttempt blocks until a task runs, in its first attempt, and the server knows of this run.
func (s *system) awaitFirstAttempt(task string, run int64) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 30*time.Second, fmt.Sprintf("%s runs", task), func() error {
		status := s.task(task).Status
		if status.State != "running" || status.Attempt != 1 || status.Attempts[0].RunCount != run {
			return fmt.Errorf("it is %s %s: %+v", status.State, status.Reason, status.Attempts)
		}
		return nil
	})
}

// awaitChangedScript blocks until only the changed script of a job runs.
func (s *system) awaitChangedScript(job, starts string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 60*time.Second, "the changed script runs", func() error {
		if got := attemptsIn(starts); len(got) != 2 || got[1] != "changed" {
			return fmt.Errorf("its starts are %s", got)
		}
		for _, task := range s.tasksOf(job) {
			if task.Status.State != "running" {
				return fmt.Errorf("%s is %s", task.Name, task.Status.State)
			}
		}
		return nil
	})
	testkit.Eventually(s.t, 20*time.Second, "the earlier script has ended", func() bool {
		return errors.Is(syscall.Kill(s.processOfRun(starts, 1), 0), syscall.ESRCH)
	})
}

func (s *system) checkAttempts(starts string, want ...string) {
	s.t.Helper()
	if got := attemptsIn(starts); !slices.Equal(got, want) {
		s.t.Errorf("it ran as attempts %s, want %s", got, want)
	}
}
