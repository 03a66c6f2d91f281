package runner

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/sealed"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// sealing lets the robot keep the secrets of a task.
func sealing(t *wire.Task) { t.Spec.OfflineSecrets = wire.OfflineSecretsSealed }

// requireSealed checks whether the disk has secrets, and that none are in plain text.
func (x *restartTest) requireSealed(want bool) {
	x.t.Helper()
	files, _ := filepath.Glob(filepath.Join(x.dir, sealed.DirName, "*.secrets"))
	if (len(files) > 0) != want {
		x.t.Errorf("the disk has %v, want secrets: %t", files, want)
	}
	must(x.t, filepath.WalkDir(x.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if b, err := os.ReadFile(path); err != nil || bytes.Contains(b, []byte(password)) {
			x.t.Errorf("%s contains the secret, %v", path, err)
		}
		return nil
	}))
}

// requirePassword checks the environment of the last run that was started.
func (x *restartTest) requirePassword(want string) {
	x.t.Helper()
	if got := x.shims.specs[len(x.shims.specs)-1].Env["PASSWORD"]; got != want {
		x.t.Errorf("PASSWORD of the run is %q, want %q", got, want)
	}
}

func TestSealedSecrets_RestartWithoutContact(t *testing.T) {
	x := newRestartTest(t, restarting(9, time.Second), withSecret, sealing)
	x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
	x.requireSealed(true)
	x.begin()
	x.left, x.offline = shim.State{MayHaveStarted: true, Exit: &shim.Exit{Code: 3, At: x.wall}}, true
	x.restartAgent()
	x.pass(time.Second)
	x.requireStarts("after a restart of the agent", 1)
	x.requirePassword(password)
	if x.countRequests() > 0 {
		t.Error("asks for secrets that it has")
	}
	x.begin()
	x.rebootRobot(cutShort)
	x.requireStarts("after a restart of the robot", 1)
	x.requirePassword(password)
	x.requireSealed(true)
	x.begin()
	x.end(shim.Exit{})
	x.requireEnd("", 3)
	x.requireSealed(false)
}

func TestSealedSecrets_AreKeptOnlyIfTheTaskAsks(t *testing.T) {
	for name, changes := range map[string][]func(*wire.Task){
		"it does not ask":     {withSecret},
		"a value of later":    {withSecret, func(t *wire.Task) { t.Spec.OfflineSecrets = "later" }},
		"it has no secretEnv": {sealing},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRestartTest(t, append(changes, restarting(9, time.Second))...)
			x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
			x.requireStarts("with contact", 1)
			x.requireSealed(false)
		})
	}
}

// Secrets that cannot be read come from the server, and are kept again.
func TestSealedSecrets_DamagedOnesComeFromTheServer(t *testing.T) {
	x := newRestartTest(t, restarting(9, time.Second), withSecret, sealing)
	x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
	x.begin()
	x.end(shim.Exit{Code: 3})
	must(t, os.WriteFile(filepath.Join(x.dir, sealed.DirName, "t1.1.secrets"), []byte("damaged"), 0o600))
	x.restartAgent()
	x.pass(time.Hour)
	x.requireStarts("without secrets", 0)
	x.list(true)
	x.dispatchSecrets(wire.Secrets{"PASSWORD": "changed"})
	x.requireStarts("with secrets", 1)
	x.requirePassword("changed")
	x.begin()
	x.left, x.offline = shim.State{MayHaveStarted: true, Exit: &shim.Exit{Code: 3, At: x.wall}}, true
	x.restartAgent()
	x.pass(time.Second)
	x.requireStarts("after another restart of the agent", 1)
	x.requirePassword("changed")
}

// An agent that crashes before the end of an attempt is complete leaves secrets, and the next one removes them.
func TestSealedSecrets_NextAgentRemovesLeftOnes(t *testing.T) {
	x := newRestartTest(t, restarting(9, time.Second), withSecret, sealing)
	must(t, sealed.Open(x.dir).Put("t1", 1, wire.Secrets{"PASSWORD": password}))
	x.restartAgent()
	x.requireSealed(false)
}
