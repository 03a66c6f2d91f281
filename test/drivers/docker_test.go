package drivers

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	dockerdriver "k8s4r.io/k8s4r/internal/robot/driver/docker"
	"k8s4r.io/k8s4r/internal/robot/driver/drivertest"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

func docker(c wire.DockerConfig) wire.TaskConfig {
	if c.NetworkMode == "" {
		c.NetworkMode = "none"
	}
	return wire.TaskConfig{Docker: &c}
}

func script(s string) wire.TaskConfig {
	return docker(wire.DockerConfig{Image: image, Command: "sh", Args: []string{"-c", s}})
}

func TestDocker(t *testing.T) {
	e := startEngine(t)
	drivertest.Run(t, drivertest.Suite{
		Driver: "docker", Engine: e.socket, Shell: script, Left: e.left,
		Broken: map[string]wire.TaskConfig{"dockerConfig is missing": {}, "image is empty": docker(wire.DockerConfig{})},
		Unstartable: map[string]wire.TaskConfig{
			`image "localhost:1/no:1" is not on this robot and cannot be pulled`: docker(wire.DockerConfig{Image: "localhost:1/no:1"}),
			`repository name must be lowercase`:                                  docker(wire.DockerConfig{Image: "NO"}),
			`network no-such-network not found`:                                  docker(wire.DockerConfig{Image: image, NetworkMode: "no-such-network"}),
			`bind source path does not exist: /no/such`:                          docker(wire.DockerConfig{Image: image, Volumes: []string{"/no/such:/data"}}),
		},
	})
	for name, test := range map[string]func(*testing.T, *engine){
		"a task overrides the settings of its image":             overridesImage,
		"a task runs as its user and owns its directory":         ownsDirectory,
		"a task is root only if it names root":                   isRootOnlyByName,
		"a task keeps no dangerous rights":                       dropsRights,
		"volumes are mounted as specified":                       mountsVolumes,
		"a task above its memory limit is killed and reports it": limitsMemory,
		"a task cannot start more processes than its limit":      limitsProcesses,
		"a large output is complete and in order":                keepsOutput,
		"usage is measured while a container runs":               measuresUsage,
		"a container that another client removes was killed":     isRemovedByOthers,
		"a second container of one attempt is rejected":          rejectsSecondContainer,
		"a run replaces the ended container of the one before":   replacesEndedContainer,
		"a pull is canceled with its task":                       cancelsPull,
		"a task outlives its engine and is stopped later":        outlivesEngine,
		"containers are removed once the engine is back":         sweepsAfterOutage,
	} {
		t.Run(name, func(t *testing.T) {
			of := *e
			of.t = t
			test(t, &of)
			e.process = of.process
		})
	}
}

// output runs a task until it ends, and returns what it wrote.
func (e *engine) output(task driver.Task) (string, driver.End) {
	e.t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		e.t.Fatal(err)
	}
	task.Stdout, task.Stderr = write, write
	running := start(e.t, &dockerdriver.Driver{Socket: e.socket}, &task)
	write.Close()
	out, _ := io.ReadAll(read)
	awaitReadable(e.t, running.Done())
	return string(out), running.End()
}

func (e *engine) requireOutput(task driver.Task, want string) {
	e.t.Helper()
	if out, end := e.output(task); out != want || end.Code != 0 {
		e.t.Errorf("ended as %+v and wrote %q, want %q", end, out, want)
	}
}

// requireStartError starts a task that must fail to start, and returns the error.
func (e *engine) requireStartError(task driver.Task) error {
	e.t.Helper()
	fill(e.t, &task)
	running, err := (&dockerdriver.Driver{Socket: e.socket}).Start(task)
	if err == nil {
		running.Kill()
		awaitReadable(e.t, running.Done())
		e.t.Fatalf("started, and ended as %+v", running.End())
	}
	return err
}

func overridesImage(t *testing.T, e *engine) {
	e.requireOutput(driver.Task{Config: docker(wire.DockerConfig{Image: image})}, "entry point image\n")
	e.requireOutput(driver.Task{Config: docker(wire.DockerConfig{Image: image, Args: []string{"mine"}})}, "entry point mine\n")
	e.requireOutput(driver.Task{Config: docker(wire.DockerConfig{Image: image, Command: "echo"})}, "\n")
	e.requireOutput(driver.Task{Config: docker(wire.DockerConfig{Image: image, Command: "pwd", WorkDir: "/etc"})}, "/etc\n")
	e.requireOutput(driver.Task{Config: script("echo $PATH")}, "/bin\n")
}

func ownsDirectory(t *testing.T, e *engine) {
	for user, want := range map[string]string{"nobody": "65534 65534\nmine\n", "1234:4321": "1234 4321\nmine\n"} {
		task := driver.Task{Contained: driver.Contained{User: user}, Config: script("echo `id -u` `id -g`; cd $HOME; echo mine > file; cat file")}
		task.Dir = t.TempDir()
		task.Env = map[string]string{"HOME": task.Dir}
		if err := os.Chmod(task.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		e.requireOutput(task, want)
	}
	unknown := driver.Task{Contained: driver.Contained{User: "no-such-user"}, Config: script("")}
	if err := e.requireStartError(unknown); !strings.Contains(err.Error(), `user: the image has no user "no-such-user"`) {
		t.Errorf("Start = %v", err)
	}
}

func mountsVolumes(t *testing.T, e *engine) {
	dir := t.TempDir()
	c := script("echo written > /rw/file; cat /ro/file; touch /ro/file 2>/dev/null || echo refused")
	c.Docker.Volumes = []string{dir + ":/rw", dir + ":/ro:ro"}
	e.requireOutput(driver.Task{Config: c, Contained: driver.Contained{User: "root"}}, "written\nrefused\n")
	if b, err := os.ReadFile(filepath.Join(dir, "file")); string(b) != "written\n" {
		t.Errorf("the robot has %q, %v", b, err)
	}
}

// limitsMemory tries again, since the engine misses some OOM kills for good (containerd#8893).
func limitsMemory(t *testing.T, e *engine) {
	const tries = 10
	for range tries {
		task := driver.Task{Config: script("tail /dev/zero"), Contained: driver.Contained{Limits: isolation.Limits{Memory: 16 << 20, CPU: 500, CPUWeight: 500}}}
		_, end := e.output(task)
		if end.Code != 137 || end.Signal != int(syscall.SIGKILL) {
			t.Fatalf("ended as %+v, want SIGKILL", end)
		}
		if end.OOM {
			return
		}
	}
	t.Errorf("none of %d containers reports OOM", tries)
}

func limitsProcesses(t *testing.T, e *engine) {
	task := driver.Task{Config: script("for i in 1 2 3 4 5 6 7 8 9; do sleep 600 & done; echo all"), Contained: driver.Contained{Limits: isolation.Limits{PIDs: 6}}}
	if out, _ := e.output(task); strings.Contains(out, "all") || !strings.Contains(out, "fork") {
		t.Errorf("nine processes were started with a limit of six: %q", out)
	}
}

func keepsOutput(t *testing.T, e *engine) {
	const lines = 500_000
	out, end := e.output(driver.Task{Config: script("seq " + strconv.Itoa(lines))})
	var want bytes.Buffer
	for i := range lines {
		want.WriteString(strconv.Itoa(i+1) + "\n")
	}
	if end.Code != 0 || out != want.String() {
		t.Errorf("ended as %+v with %d bytes of %d", end, len(out), want.Len())
	}
}

// One attempt is busy, one is idle and one does not exist.
func measuresUsage(t *testing.T, e *engine) {
	d := &dockerdriver.Driver{Socket: e.socket}
	busy := driver.Attempt{UID: "busy", Number: 2, Robot: "r1"}
	idle := driver.Attempt{UID: "idle", Number: 1, Robot: "r1"}
	for a, what := range map[driver.Attempt]string{busy: "x=$(head -c 20000000 /dev/zero | tr '\\0' x); while :; do :; done", idle: "exec sleep 600"} {
		task := driver.Task{Config: script(what)}
		fill(t, &task)
		task.Contained.Attempt = a
		running, err := d.Start(task)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { running.Kill(); running.End() })
	}
	asked := []driver.Attempt{busy, idle, {UID: "gone", Number: 1, Robot: "r1"}}
	var last time.Duration
	var uses map[driver.Attempt]proc.Use
	await(t, "the one to have worked, and to have 20 MB", func() bool {
		uses = d.MeasureUse(asked)
		_, both := uses[idle] // a busy engine may be too slow to answer for both
		grown := both && uses[busy].CPU > last && uses[busy].CPU > 500*time.Millisecond && uses[busy].Memory > 20_000_000
		last = uses[busy].CPU
		return grown
	})
	if sleeps := uses[idle]; len(uses) != 2 || sleeps.CPU > uses[busy].CPU || sleeps.Memory <= 0 || sleeps.Memory > 20_000_000 {
		t.Errorf("they use %+v", uses)
	}
	if none := (&dockerdriver.Driver{Socket: "/no/such"}).MeasureUse(asked); len(none) != 0 {
		t.Errorf("without an engine: %+v", none)
	}
}

func isRemovedByOthers(t *testing.T, e *engine) {
	running := start(t, &dockerdriver.Driver{Socket: e.socket}, &driver.Task{Config: script("sleep 600")})
	for _, name := range e.containers() {
		if _, err := e.client.ContainerRemove(context.Background(), name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			t.Error(err)
		}
	}
	awaitReadable(t, running.Done())
	if end := running.End(); end.Code != 137 {
		t.Errorf("ended as %+v", end)
	}
}

func rejectsSecondContainer(t *testing.T, e *engine) {
	d := &dockerdriver.Driver{Socket: e.socket}
	task := driver.Task{Config: script("sleep 600")}
	running := start(t, d, &task)
	second := task
	second.Contained.Attempt.Robot = "robot-2" // a failed start must only clean up its own containers
	if _, err := d.Start(second); err == nil || !strings.Contains(err.Error(), "already in use") {
		t.Errorf("a second Start: %v", err)
	}
	running.Kill()
	awaitReadable(t, running.Done())
	if end := running.End(); end.Signal != int(syscall.SIGKILL) {
		t.Errorf("ended as %+v", end)
	}
}

// replacesEndedContainer starts a run whose predecessor's container has ended and is still there.
func replacesEndedContainer(t *testing.T, e *engine) {
	d := &dockerdriver.Driver{Socket: e.socket}
	task := driver.Task{Config: script("exit 7")}
	before := start(t, d, &task)
	awaitReadable(t, before.Done())
	defer before.End() // which would remove its container
	after, err := d.Start(task)
	if err != nil {
		t.Fatal(err)
	}
	awaitReadable(t, after.Done())
	if end := after.End(); end.Code != 7 {
		t.Errorf("ended as %+v, want the exit code 7", end)
	}
}

func cancelsPull(t *testing.T, e *engine) {
	registry, err := net.Listen("tcp", "127.0.0.1:0") // never answers
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	asked := make(chan struct{})
	go func() {
		c, err := registry.Accept()
		if err != nil {
			return
		}
		close(asked)
		_, _ = io.Copy(io.Discard, c) // until the engine disconnects
		_ = c.Close()
	}()
	address := strings.Replace(registry.Addr().String(), "127.0.0.1", "localhost", 1)
	suite := drivertest.Suite{Driver: "docker", Engine: e.socket, Left: e.left}
	suite.StopsBeforeTheStart(t, docker(wire.DockerConfig{Image: address + "/slow:1"}), asked)
}

func outlivesEngine(t *testing.T, e *engine) {
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	task := driver.Task{Dir: dir, Stdout: out, Stderr: out, Config: script("trap 'echo stopped; exit 7' TERM; touch up; while :; do sleep 0.1; done")}
	running := start(t, &dockerdriver.Driver{Socket: e.socket}, &task)
	await(t, "the task to run", func() bool { _, err := os.Stat(filepath.Join(dir, "up")); return err == nil })
	e.stop()
	running.Signal(syscall.SIGTERM) // while the engine is down
	e.start()
	awaitReadable(t, running.Done())
	if end := running.End(); end.Code != 7 {
		t.Errorf("ended as %+v, want the exit code 7", end)
	}
}

func sweepsAfterOutage(t *testing.T, e *engine) {
	d := &dockerdriver.Driver{Socket: e.socket}
	task := driver.Task{Config: script("sleep 600")}
	_ = start(t, d, &task)
	e.stop()
	if d.Offered() {
		t.Error("offered without an engine")
	}
	if err := d.Sweep(task.Contained.Attempt); err != nil {
		t.Errorf("Sweep = %v, want nil: the agent has killed the processes as root", err)
	}
	e.start()
	await(t, "it to be offered, as the engine is back", d.Offered)
	await(t, "the container to be gone", func() bool { // retried, as with each heartbeat
		return d.Offered() && len(e.left(task.Contained.Attempt)) == 0
	})
}
