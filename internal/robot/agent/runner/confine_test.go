package runner

import (
	"os"
	"path/filepath"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// The engine isolates a container, but the agent fetches its artifacts: it must not do so as
// root, or a task could read each file of the robot.
func TestRunner_SetsUpContainersAsTheTaskUser(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.Chmod(filepath.Dir(secret), 0o755))
	must(t, os.Chmod(filepath.Dir(filepath.Dir(secret)), 0o711))
	must(t, os.WriteFile(secret, []byte("x"), 0o600))
	r := &Runner{dirs: StateDir(t.TempDir()), taskUser: "nobody", policy: noPolicy{}, host: isolation.ProbeHost("task-user-test", t.TempDir())}
	defer r.host.Tree.Remove()
	task := attempt{number: 1, task: wire.Task{Metadata: wire.TaskMeta{UID: "t1"}, Spec: wire.TaskSpec{
		Driver: driverDocker, User: "by-the-image", Config: wire.TaskConfig{Docker: &wire.DockerConfig{Image: "x"}},
		Artifacts: []wire.Artifact{{GetterSource: "file://" + secret}},
	}}}
	must(t, r.dirs.makeRunDirs("t1", 1, 1, true))
	spec, err := r.buildShimSpec(&task)
	must(t, err)
	if u := spec.Confinement.User; u == nil || u.Name != "nobody" || spec.Contained.User != "by-the-image" || spec.Confinement.Mounts == nil {
		t.Errorf("set up with %+v, contained %+v", spec.Confinement, spec.Contained)
	}
	task.task.Spec.Artifacts = nil
	if spec, err = r.buildShimSpec(&task); err != nil || spec.Confinement.User != nil {
		t.Errorf("nothing to set up: %+v, %v", spec.Confinement, err)
	}
}
