package agent

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/robot/agent/diagnose"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// diagnosis returns the JSON output of doctor.
func diagnosis(t *testing.T, dir, broker string, args ...string) (doctorReport, int) {
	t.Helper()
	stdout, stderr, code := command(t, dir, "doctor", append([]string{"-o", "json", "--robot-id", robot, "--mqtt-url", "mqtt://" + broker}, args...)...)
	var e doctorReport
	if err := json.Unmarshal([]byte(stdout), &e); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	return e, code
}

func (e doctorReport) about(check string) []diagnose.Finding {
	return slices.DeleteFunc(slices.Clone(e.Findings), func(f diagnose.Finding) bool { return f.Check != check })
}

// level returns the worst level of one check, and OK if there are no findings.
func (e doctorReport) level(check string) diagnose.Level { return diagnose.Worst(e.about(check)) }

func TestDoctor_DoesNotDisturbARunningAgent(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	before := names(t, dir)
	e, code := diagnosis(t, dir, s.addr)
	if code != exitOK || e.Worst == diagnose.Fail || e.RobotID != robot {
		t.Errorf("exit status %d, %+v", code, e)
	}
	if got := e.level("agent"); got != diagnose.OK {
		t.Errorf("agent: %+v", e.about("agent"))
	}
	for _, check := range []string{"kernel", "broker"} {
		if len(e.about(check)) != 1 || e.level(check) != diagnose.OK {
			t.Errorf("%s: %+v", check, e.about(check))
		}
	}
	for _, check := range []string{"drivers", "state directory", "isolation", "clock", "certificates", "service"} {
		if len(e.about(check)) == 0 || e.level(check) == diagnose.Fail {
			t.Errorf("%s: %+v", check, e.about(check))
		}
	}
	page, _, code := command(t, dir, "doctor")
	if want := "mqtt://" + s.addr + " answers"; code != exitOK || !strings.Contains(page, want) {
		t.Errorf("without the agent's flags: exit status %d, want %q in\n%s", code, want, page)
	}
	if after := names(t, dir); !slices.Equal(before, after) {
		t.Errorf("it left %v, there were %v", after, before)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.registers) != 1 || len(s.presences) != 0 {
		t.Errorf("the agent registered %d times and disconnected %d times, want 1 and 0", len(s.registers), len(s.presences))
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestDoctor_WithoutAgent(t *testing.T) {
	s, dir := newFakeServer(t), filepath.Join(t.TempDir(), "state")
	e, code := diagnosis(t, dir, s.addr)
	if code != exitOK || e.level("agent") != diagnose.Warn {
		t.Errorf("exit status %d, agent %+v", code, e.about("agent"))
	}
	found := 0
	for _, f := range isolation.Facts {
		for _, i := range e.about("isolation") {
			if strings.Contains(i.Message, string(f)) {
				found++
				break
			}
		}
	}
	if found != len(isolation.Facts) {
		t.Errorf("it reports %d kinds of isolation, want %d: %+v", found, len(isolation.Facts), e.about("isolation"))
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it created the state directory")
	}

	page, _, code := command(t, dir, "doctor", "--robot-id", robot, "--mqtt-url", "mqtt://"+s.addr)
	if code != exitOK || !strings.Contains(page, "The agent of robot r1 can run here") || !strings.Contains(page, "ok ") || !strings.Contains(page, "> systemctl start k8s4r-agent") {
		t.Errorf("exit status %d and\n%s", code, page)
	}
}

func TestDoctor_FindsFailures(t *testing.T) {
	s := newFakeServer(t)
	closing, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and ends them
	must(t, err)
	defer closing.Close()
	go func() {
		for {
			conn, err := closing.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	file := configFile(t, "")
	tests := []struct{ name, dir, broker, check, message string }{
		{"no broker", t.TempDir(), freeAddr(t), "broker", "connection refused"},
		{"a server that is no broker", t.TempDir(), closing.Addr().String(), "broker", "does not support MQTT 5"},
		{"a name that is not found", t.TempDir(), "no-such-host.invalid:1883", "dns", "not found"},
		{"a file for a state directory", file, s.addr, "state directory", "is not a directory"},
		{"a state directory that cannot be written", "/proc/k8s4r", s.addr, "state directory", "cannot be written"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e, code := diagnosis(t, test.dir, test.broker)
			found := e.about(test.check)
			if code != exitFailed || e.Worst != diagnose.Fail || e.level(test.check) != diagnose.Fail {
				t.Fatalf("exit status %d, %+v", code, e)
			}
			if f := found[len(found)-1]; !strings.Contains(f.Message, test.message) || f.Remedy == "" {
				t.Errorf("%+v, want %q and a remedy", f, test.message)
			}
		})
	}
}

func TestDoctor_WarnsOfReadableSecrets(t *testing.T) {
	s := newFakeServer(t)
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("abc"), 0o600))
	must(t, os.Chmod(token, 0o644))
	if e, _ := diagnosis(t, t.TempDir(), s.addr, "--token-file", token); e.level("secrets") != diagnose.Warn || e.about("secrets")[0].Remedy != "chmod 600 "+token {
		t.Errorf("%+v", e.about("secrets"))
	}
	must(t, os.Chmod(token, 0o600))
	if e, _ := diagnosis(t, t.TempDir(), s.addr, "--token-file", token); len(e.about("secrets")) != 0 {
		t.Errorf("%+v", e.about("secrets"))
	}
}

func TestCommands_RejectInvalidArguments(t *testing.T) {
	for _, args := range [][]string{{"doctor", "-o", "xml"}, {"status", "-o", "xml"}, {"status", "now"}, {"doctor", "--nonsense"}, {"unit", "here"}} {
		var out strings.Builder
		if code := Main(args, &out, &out); code != exitUsage || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%v: exit status %d, %q", args, code, out.String())
		}
	}
	for _, name := range []string{"doctor", "status", "unit"} {
		var out strings.Builder
		if code := Main([]string{name, "-h"}, &out, &out); code != exitOK || !strings.Contains(out.String(), "Usage: k8s4r-agent "+name) || !strings.Contains(out.String(), "-config") {
			t.Errorf("%s -h: exit status %d, %q", name, code, out.String())
		}
	}
}

func TestUnit_NamesThisProgram(t *testing.T) {
	program, err := os.Executable()
	must(t, err)
	var out strings.Builder
	if code := Main([]string{"unit", "--config", "/opt/arm.yaml"}, &out, &out); code != exitOK || !strings.Contains(out.String(), `ExecStart="`+program+`" --config "/opt/arm.yaml"`+"\n") {
		t.Errorf("exit status %d and\n%s", code, out.String())
	}
}
