package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// fleetFixture is three robots whose agents Rollouts update while each runs a task.
type fleetFixture struct {
	*updateFixture
	robots []string
	files  string // URL of the directory with the programs
}

// TestAgentUpdate_ByRollouts updates three agents with a Rollout. A second one, whose version works on the first
// robot only, is aborted, and all robots are back. One process of each task runs all the time.
func TestAgentUpdate_ByRollouts(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a policy file must belong to root")
	}
	f := newFleetFixture(t)
	good := f.build("v99.0.1")
	next := f.build("v99.0.2")
	bad := f.script(next.version, `case "$*" in *"--robot-id r1 "*) exec `+next.program+` "$@";; esac; exit 1`)

	f.startRollout("good", good)
	f.awaitRollout("good", v1alpha1.RolloutComplete)
	f.awaitVersions(good.version)
	f.areTasksUntouched()

	f.mustAtRobot("hold", "--reason", "a visit")
	f.startRollout("bad", bad)
	testkit.EventuallyNoError(t, time.Minute, "the held robot waits", func() error {
		u := f.robot("r1").Status.Agent.Update
		if u == nil || u.State != v1alpha1.AgentUpdateWaiting || !strings.Contains(u.Message, "k8s4r-agent release") {
			return fmt.Errorf("the robot reports %+v", u)
		}
		return nil
	})
	f.mustAtRobot("release")
	testkit.EventuallyNoError(t, 2*time.Minute, "the first robot has the version", func() error { return f.checkVersion("r1", next.version) })
	f.awaitRollout("bad", v1alpha1.RolloutReverted)
	f.awaitVersions(good.version)
	f.areTasksUntouched()
	if u := f.robot("r1").Status.Agent.Update; u == nil || !u.IsRevert || u.State != v1alpha1.AgentUpdateSettled {
		t.Errorf("the first robot reports %+v", u)
	}
	if out := f.cli("rollout", "status", "bad"); !strings.Contains(out, "before it had passed its self-test") {
		t.Errorf("rollout status:\n%s", out)
	}
}

func newFleetFixture(t *testing.T) *fleetFixture {
	f := &fleetFixture{updateFixture: newUpdateFixture(t), robots: []string{"r1", "r2", "r3"}}
	files := httptest.NewServer(http.FileServer(http.Dir(f.dir)))
	t.Cleanup(files.Close)
	f.files = files.URL
	for _, id := range f.robots {
		agent(t, f.system, id, "--heartbeat", "1s", "--policy", f.policy, "--label", "id="+id)
		f.awaitRobot(id, "Online", time.Minute)
		f.createMarker(id)
	}
	job := jobOf("steady", 1, shell("work", "echo $$ >> "+f.marker+".$K8S4R_ROBOT; exec sleep 3600"))
	job.Spec.Type, job.Spec.TaskGroups[0].Count = v1alpha1.JobTypeSystem, nil
	f.create(job)
	testkit.Eventually(t, time.Minute, "each robot runs its task", func() bool { return f.findDisturbedTask() == nil })
	return f
}

// createMarker creates a file that the task of a robot, which has another user, may write.
func (f *fleetFixture) createMarker(robot string) {
	f.t.Helper()
	path := f.marker + "." + robot
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		f.t.Fatal(err)
	}
}

// startRollout starts a Rollout with the robot r1 as its first wave.
func (f *fleetFixture) startRollout(name string, r release) {
	f.t.Helper()
	f.cli("rollout", "start", "--name", name, "--agent", r.file+"="+f.files+"/"+filepath.Base(r.program),
		"--wave", "label=id:r1,name=canary", "--abort-at", "1%", "--on-abort", "revert")
}

func (f *fleetFixture) awaitRollout(name, phase string) {
	f.t.Helper()
	testkit.EventuallyNoError(f.t, 3*time.Minute, "Rollout "+name+" becomes "+phase, func() error {
		r := &v1alpha1.Rollout{}
		err := f.Get(f.t.Context(), nameOf("default", name), r)
		if err == nil && r.Status.Phase != phase {
			err = fmt.Errorf("its status is %+v", r.Status)
		}
		return err
	})
}

func (f *fleetFixture) checkVersion(robot, version string) error {
	if info := f.robot(robot).Status.Agent; info == nil || info.Version != version {
		return fmt.Errorf("agent %+v", info)
	}
	return nil
}

func (f *fleetFixture) awaitVersions(version string) {
	f.t.Helper()
	for _, id := range f.robots {
		testkit.EventuallyNoError(f.t, time.Minute, id+" has version "+version, func() error { return f.checkVersion(id, version) })
	}
}

// findDisturbedTask returns an error for a robot whose task does not run, or was started more than once.
func (f *fleetFixture) findDisturbedTask() error {
	for _, id := range f.robots {
		path := f.marker + "." + id
		b, err := os.ReadFile(path)
		if err != nil || strings.Count(string(b), "\n") != 1 || !processIn(path) {
			return fmt.Errorf("the task of %s was started as %q and must run: %w", id, b, err)
		}
	}
	return nil
}

func (f *fleetFixture) areTasksUntouched() {
	f.t.Helper()
	if err := f.findDisturbedTask(); err != nil {
		f.t.Error(err)
	}
}
