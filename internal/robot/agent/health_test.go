package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// command runs a subcommand for the agent of a state directory.
func command(t *testing.T, dir, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{name, "--config", os.DevNull, "--state-dir", dir}, args...)...)
	cmd.Env = append(os.Environ(), asAgent+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// statusOf returns the JSON output of the status command.
func statusOf(t *testing.T, dir string) (h Health, code int) {
	t.Helper()
	stdout, _, code := command(t, dir, "status", "-o", "json")
	if stdout != "" {
		must(t, json.Unmarshal([]byte(stdout), &h))
	}
	return h, code
}

func get(t *testing.T, socket, path string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
	answer, err := client.Get("http://agent" + path)
	must(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, string(b)
}

// healthOf returns the state that the agent serves.
func healthOf(t *testing.T, socket string) (h Health) {
	t.Helper()
	_, body := get(t, socket, "/status")
	must(t, json.Unmarshal([]byte(body), &h))
	return h
}

func TestStatus_ShowsAgentAndTasks(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "exec sleep 600"), 2)
	s.awaitRunning("t1", 2)

	h, code := statusOf(t, dir)
	if code != exitOK || h.RobotID != robot || h.PID != agent.Process.Pid || !h.Connected || !h.Registered || h.Problem != "" || h.JournalBytes == 0 {
		t.Errorf("exit status %d and %+v", code, h)
	}
	if len(h.Tasks) != 1 || h.Tasks[0].UID != "t1" || h.Tasks[0].Attempt != 2 || h.Tasks[0].State != runner.TaskRunning || h.Tasks[0].Since == nil || !proc.IsAlive(h.Tasks[0].PID) {
		t.Errorf("tasks %+v", h.Tasks)
	}
	waitUntil(t, "the last contact", func() bool { h, _ := statusOf(t, dir); return h.LastContact != nil })
	page, _, _ := command(t, dir, "status")
	for _, want := range []string{"Robot     r1\n", "registered\n", "last responded ", "Tasks     1\n", "default/task-t1", "raw_exec", "running"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q:\n%s", want, page)
		}
	}

	s.stop()
	waitUntil(t, "status without a connection", func() bool {
		h, code := statusOf(t, dir)
		return code == exitFailed && !h.Connected && !h.Registered && len(h.Tasks) == 1
	})
	must(t, agent.Process.Kill())
	_ = agent.Wait()
	if _, stderr, code := command(t, dir, "status"); code != exitFailed || !strings.Contains(stderr, "no agent responds on "+filepath.Join(dir, healthSocketName)) {
		t.Errorf("without an agent: exit status %d, %q", code, stderr)
	}
	// The socket of the killed agent does not disturb the next one.
	next := agentProcess(t, s, dir)
	must(t, next.Start())
	waitUntil(t, "the next agent", func() bool {
		h, _ := statusOf(t, dir)
		return h.PID == next.Process.Pid && len(h.Tasks) == 1 && h.Tasks[0].State == runner.TaskRunning
	})
}

func withSocket(c Config) Config {
	c.HealthSocket = filepath.Join(c.StateDir, healthSocketName)
	return c
}

func TestHealth_FollowsTheConnection(t *testing.T) {
	s := newFakeServer(t)
	s.acceptRegistrations = false
	c := withSocket(s.config(t.TempDir()))
	a := startAgent(t, c, registerEvery(20*time.Millisecond))
	is := func(path string, want int) func() bool {
		return func() bool { code, _ := get(t, c.HealthSocket, path); return code == want }
	}
	waitUntil(t, "a registration that is refused", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.registers) > 1
	})
	if code, body := get(t, c.HealthSocket, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "not registered") {
		t.Errorf("not registered: /readyz responded with %d %s", code, body)
	}
	if !is("/healthz", http.StatusOK)() {
		t.Error("a robot that waits for its approval is held to be broken")
	}
	s.setFields(func() { s.acceptRegistrations = true })
	waitUntil(t, "ready", is("/readyz", http.StatusOK))
	s.stop()
	waitUntil(t, "not ready", is("/readyz", http.StatusServiceUnavailable))
	if !is("/healthz", http.StatusOK)() {
		t.Error("a robot without a network is held to be broken")
	}
	a.stop()
	if _, err := os.Stat(c.HealthSocket); err == nil {
		t.Error("the socket outlives the agent")
	}
}

func TestHealth_SocketIsPrivate(t *testing.T) {
	c := withSocket(newFakeServer(t).config(t.TempDir()))
	startAgent(t, c)
	waitUntil(t, "the socket", func() bool { _, err := os.Stat(c.HealthSocket); return err == nil })
	info, err := os.Stat(c.HealthSocket)
	must(t, err)
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %o, want 600", mode)
	}
}

func TestHealth_UnhealthyWithoutWritableJournal(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	c := withSocket(s.config(t.TempDir()))
	var refuses atomic.Bool
	startAgent(t, c, refusing(&refuses, errors.New("no space left on device")))
	s.awaitRegistered(1)
	waitUntil(t, "the socket", func() bool { _, err := os.Stat(c.HealthSocket); return err == nil })
	refuses.Store(true)
	s.dispatch(shell("t1", "true"), 1)
	waitUntil(t, "the agent to be unhealthy", func() bool {
		code, _ := get(t, c.HealthSocket, "/healthz")
		return code == http.StatusServiceUnavailable
	})
	_, body := get(t, c.HealthSocket, "/metrics")
	if !strings.Contains(body, "k8s4r_agent_healthy 0\n") || !strings.Contains(body, "k8s4r_agent_connected 1\n") {
		t.Errorf("metrics\n%s", body)
	}
	refuses.Store(false)
	waitUntil(t, "the agent to be healthy again", func() bool { code, _ := get(t, c.HealthSocket, "/healthz"); return code == http.StatusOK })
}

func TestMetrics_AreValid(t *testing.T) {
	s := newFakeServer(t)
	c := withSocket(s.config(t.TempDir()))
	startAgent(t, c)
	s.awaitRegistered(1)
	s.publishRaw(wire.RobotTopic(robot, wire.KindDispatch), []byte("{"), false)
	s.dispatch(shell("t1", "exec sleep 600"), 1)
	s.awaitRunning("t1", 1)
	_, body := get(t, c.HealthSocket, "/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	must(t, err)
	for _, want := range []string{
		"k8s4r_agent_tasks{state=\"running\"} 1\n", "k8s4r_agent_registered 1\n", "k8s4r_agent_errors_total{type=\"dropped message on tasks/dispatch\"} 1\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics without %s:\n%s", want, body)
		}
	}
	if n := len(families); n > 20 {
		t.Errorf("%d families of metrics for an agent", n)
	}
}

func TestHealth_RequestsLeakNoGoroutines(t *testing.T) {
	s := newFakeServer(t)
	c := withSocket(s.config(t.TempDir()))
	startAgent(t, c)
	s.awaitRegistered(1)
	get(t, c.HealthSocket, "/readyz")
	before := runtime.NumGoroutine()
	for range 50 {
		get(t, c.HealthSocket, "/status")
	}
	awaitGoroutines(t, before+10, "after fifty requests")
}

func TestHealth_KeepsSocketOfAnotherProcess(t *testing.T) {
	s := newFakeServer(t)
	c := withSocket(s.config(t.TempDir()))
	l, err := net.Listen("unix", c.HealthSocket)
	must(t, err)
	defer l.Close()
	a := startAgent(t, c)
	s.awaitRegistered(1) // it works without one
	a.stop()
	if conn, err := net.Dial("unix", c.HealthSocket); err != nil {
		t.Errorf("the other's socket: %v", err)
	} else {
		conn.Close()
	}

	must(t, os.WriteFile(filepath.Join(c.StateDir, "file"), []byte("mine"), 0o600))
	if l, err := listenPrivateSocket(t.Context(), filepath.Join(c.StateDir, "file")); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v, %v", l, err)
	}
	if l, err := listenPrivateSocket(t.Context(), filepath.Join(c.StateDir, strings.Repeat("a", 200))); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a long path: %v, %v", l, err)
	}
}
