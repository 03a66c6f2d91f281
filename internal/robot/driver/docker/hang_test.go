package docker

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// hangingEngine accepts requests and answers none of them, as an engine that hangs.
func hangingEngine(t *testing.T) *client.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "engine")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	engine, err := client.New(client.WithHost("unix://" + socket))
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// startInCgroup starts a process in a cgroup that is named after a container, as an engine does.
func startInCgroup(t *testing.T, id string) *exec.Cmd {
	t.Helper()
	tree, err := isolation.OpenTree("docker-test")
	if err != nil {
		t.Skipf("needs root, or a cgroup that is delegated to this user: %v", err)
	}
	group, err := tree.Create(id, isolation.Limits{})
	if err != nil {
		t.Skipf("needs root, or a cgroup that is delegated to this user: %v", err)
	}
	c := exec.Command("sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if err := group.Remove(); err != nil {
			t.Error(err)
		}
	})
	dirs := []string{group.V2}
	for _, dir := range group.V1 {
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// A container must end at the self-stop deadline of its task, also if the engine hangs.
func TestInContainer_IsKilledThroughItsCgroupIfTheEngineHangs(t *testing.T) {
	id := strings.Repeat("c0ffee", 10) + strconv.Itoa(1000+os.Getpid()%9000)
	process := startInCgroup(t, id)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c, err := newInContainer(hangingEngine(t), id, driver.Task{Stdout: null, Stderr: null})
	if err != nil {
		t.Fatal(err)
	}
	c.killAnswer = 0
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go c.watchContainer(client.NewHijackedResponse(ours, ""))
	c.Kill()
	exited := make(chan error, 1)
	go func() { exited <- process.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	select {
	case <-exited:
	case <-ctx.Done():
		t.Fatal("its process is still running")
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		t.Fatal("its end is not noticed")
	}
	if c.code != codeKilled {
		t.Errorf("the exit code is %d", c.code)
	}
}
