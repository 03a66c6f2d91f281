package drivers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	dockerdriver "k8s4r.io/k8s4r/internal/robot/driver/docker"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// localImage is an image that no registry has.
const localImage = "localhost:1/local:1"

// dockerMachine is a robot with a Docker engine, of which all processes can be ended at once.
type dockerMachine struct {
	*realrobot.Machine
	t       *testing.T
	engine  *engine
	proxy   *faultnet.Proxy
	server  *fakeserver.Server
	model   *httptest.Server // has the artifact of the task
	attempt driver.Attempt

	mu         sync.Mutex
	lastReport wire.Status
}

// startDockerMachine starts a robot that runs a service in a container, and disconnects it.
func startDockerMachine(t *testing.T) *dockerMachine {
	t.Helper()
	realrobot.RequirePower(t)
	broker := fakeserver.StartBroker(t)
	m := &dockerMachine{t: t, engine: startPoweredEngine(t), proxy: faultnet.New(t, broker.TLSAddr)}
	m.engine.hasImage(localImage)
	m.model = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("weights")) }))
	t.Cleanup(m.model.Close)
	m.server = fakeserver.Start(t, broker.Addr, m.recordReport)
	way := *broker
	way.TLSAddr = m.proxy.Addr()
	m.Machine = realrobot.NewMachine(t, realrobot.NewJoined(t, &way, "--docker-socket", m.engine.socket))
	m.attempt = driver.Attempt{UID: "service", Number: 1, Robot: m.ID}
	m.Boot()
	m.awaitRegistration(1)
	m.server.SendDispatch(m.ID, wire.Dispatch{Action: wire.ActionCreate, Task: m.newService(), Attempt: 1})
	// Otherwise the start may not be on the disk when the power is cut, and the artifact would be downloaded again.
	m.awaitReport("the service runs", func(r wire.Status) bool { return r.State == wire.ReportRunning && r.StartedAt != nil })
	m.awaitStarts("1")
	m.proxy.RefuseConnections()
	m.model.Close()
	return m
}

// newService returns a service that needs its artifact, and records its runs.
func (m *dockerMachine) newService() wire.Task {
	task := fakeserver.NewTask(m.attempt.UID, "docker", "")
	task.Spec.Config = docker(wire.DockerConfig{
		Image: localImage, Command: "sh", Args: []string{"-c", `[ "$(cat model)" = weights ] || exit 1; echo $K8S4R_RUN >> starts; exec sleep 600`},
	})
	task.Spec.Type = "service"
	task.Spec.RestartPolicy = &wire.RestartPolicy{Attempts: 1000, Interval: wire.Duration(time.Hour), Delay: wire.Duration(time.Second)}
	task.Spec.Artifacts = []wire.Artifact{{GetterSource: m.model.URL + "/model"}}
	return task
}

func (m *dockerMachine) recordReport(_ string, s wire.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastReport = s
}

func (m *dockerMachine) awaitReport(what string, isReported func(wire.Status) bool) {
	m.t.Helper()
	testkit.EventuallyNoError(m.t, time.Minute, what, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !isReported(m.lastReport) {
			return fmt.Errorf("report %+v", m.lastReport)
		}
		return nil
	})
}

func (m *dockerMachine) awaitRegistration(n int) {
	m.t.Helper()
	testkit.Eventually(m.t, time.Minute, "the robot registers", func() bool { return m.server.RegistrationCount(m.ID) >= n })
}

// readStarts returns the numbers of the runs that have started.
func (m *dockerMachine) readStarts() []string {
	found, _ := filepath.Glob(filepath.Join(m.Dir, "tasks", m.attempt.UID, "1", "*", "starts"))
	if len(found) == 0 {
		return nil
	}
	text, _ := os.ReadFile(found[0])
	return strings.Fields(string(text))
}

func (m *dockerMachine) awaitStarts(want ...string) {
	m.t.Helper()
	testkit.EventuallyNoError(m.t, time.Minute, "the service starts", func() error {
		if got := m.readStarts(); !slices.Equal(got, want) {
			return fmt.Errorf("the runs %q have started, want %q", got, want)
		}
		return nil
	})
}

// cutPower ends the robot and its engine at once.
func (m *dockerMachine) cutPower() {
	m.t.Helper()
	ended := make(chan struct{})
	go func() { m.engine.cutPower(); close(ended) }()
	m.CutPower()
	<-ended
}

// requireSecondRun checks that only the second run is left, and what is reported about it with contact.
func (m *dockerMachine) requireSecondRun() {
	m.t.Helper()
	if run := m.engine.runsOf(m.attempt); !slices.Equal(run, []string{"K8S4R_RUN=2"}) {
		m.t.Errorf("containers of the runs %q are left", run)
	}
	before := m.server.RegistrationCount(m.ID)
	m.proxy.RestoreNetwork()
	m.awaitRegistration(before + 1)
	m.awaitReport("the reboot is reported", func(r wire.Status) bool {
		return r.State == wire.ReportRunning && r.Run == 2 && r.Attempt == 1 && len(r.Runs) == 2 && r.Runs[0].Reason == wire.ReasonRobotRebooted
	})
	m.server.SendDispatch(m.ID, wire.Dispatch{Action: wire.ActionDelete, Task: m.newService(), Attempt: 1})
	testkit.Eventually(m.t, time.Minute, "the container is removed", func() bool { return len(m.engine.left(m.attempt)) == 0 })
}

// A robot without contact and without a registry starts a container again when it boots, from the image and
// the artifacts that it has.
func TestDocker_AContainerStartsAgainAfterAReboot(t *testing.T) {
	t.Run("the container of the earlier boot has ended", func(t *testing.T) {
		m := startDockerMachine(t)
		m.cutPower()
		m.engine.start()
		if left := m.engine.left(m.attempt); len(left) != 1 {
			t.Errorf("the containers %q are left, want that of the first run", left)
		}
		m.Boot()
		m.awaitStarts("1", "2")
		m.requireSecondRun()
	})
	t.Run("the engine starts the container of the earlier boot", func(t *testing.T) {
		m := startDockerMachine(t)
		m.engine.restartAlways(m.attempt)
		m.cutPower()
		m.engine.start()
		m.awaitStarts("1", "1")
		m.Boot()
		m.awaitStarts("1", "1", "2")
		m.requireSecondRun()
	})
}

// startPoweredEngine starts an engine whose power can be cut: all of its processes and mounts are in
// namespaces of their own.
func startPoweredEngine(t *testing.T) *engine {
	t.Helper()
	return startEngine(t, "unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--", "sh", "-c", `"$@" & wait`, "sh")
}

// cutPower ends the engine and its containers at once. All that a reboot removes besides is gone when it
// returns: /run and the cgroups.
func (e *engine) cutPower() {
	var groups []string
	for _, c := range e.list() {
		for _, pattern := range []string{"/sys/fs/cgroup/*/docker/", "/sys/fs/cgroup/docker/"} {
			found, _ := filepath.Glob(pattern + c.ID)
			groups = append(groups, found...)
		}
	}
	e.stop()
	await(e.t, "the cgroups to be gone", func() bool {
		groups = slices.DeleteFunc(groups, func(dir string) bool { return os.Remove(dir) == nil })
		return len(groups) == 0
	})
	for _, name := range []string{"exec", "pid", "sock"} {
		if err := os.RemoveAll(filepath.Join(e.dir, name)); err != nil {
			e.t.Error(err)
		}
	}
}

// restartAlways lets the engine restart the container of an attempt, as only an administrator would.
func (e *engine) restartAlways(a driver.Attempt) {
	e.t.Helper()
	for _, name := range e.left(a) {
		always := &container.RestartPolicy{Name: container.RestartPolicyAlways}
		if _, err := e.client.ContainerUpdate(context.Background(), name, client.ContainerUpdateOptions{RestartPolicy: always}); err != nil {
			e.t.Fatal(err)
		}
	}
}

// runsOf returns K8S4R_RUN of the containers of an attempt.
func (e *engine) runsOf(a driver.Attempt) (runs []string) {
	e.t.Helper()
	for _, name := range e.left(a) {
		c, err := e.client.ContainerInspect(context.Background(), name, client.ContainerInspectOptions{})
		if err != nil {
			e.t.Error(err)
			continue
		}
		for _, variable := range c.Container.Config.Env {
			if strings.HasPrefix(variable, "K8S4R_RUN=") {
				runs = append(runs, variable)
			}
		}
	}
	return runs
}

// The engine may answer only after the agent has tried to remove the container of an earlier run.
func TestDocker_TheContainerOfANewRunIsKept(t *testing.T) {
	e := startPoweredEngine(t)
	d := &dockerdriver.Driver{Socket: e.socket}
	first, other := driver.Task{Config: script("sleep 600")}, driver.Task{Config: script("sleep 600")}
	fill(t, &first)
	fill(t, &other)
	other.Contained.Attempt.UID += "-other"
	first.Contained.Attempt.Run, other.Contained.Attempt.Run = 1, 1
	for _, task := range []driver.Task{first, other} {
		if _, err := d.Start(task); err != nil {
			t.Fatal(err)
		}
	}
	e.cutPower()
	for _, task := range []driver.Task{first, other} {
		if err := d.Sweep(task.Contained.Attempt); err != nil {
			t.Errorf("Sweep = %v, want nil without an engine", err)
		}
	}
	e.start()
	second := first
	second.Contained.Attempt.Run = 2
	running, err := (&dockerdriver.Driver{Socket: e.socket}).Start(second)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the other container to be gone", func() bool { return d.Offered() && len(e.left(other.Contained.Attempt)) == 0 })
	if left := e.left(second.Contained.Attempt); len(left) != 1 {
		t.Errorf("the containers %q of the second run are left, want one", left)
	}
	running.Kill()
	awaitReadable(t, running.Done())
	running.End()
}
