package e2e

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestPrefetch_StartsFromTheCache lets a robot fetch the new revision while its Rollout waits for an approval.
// Then the server of the files stops, and the robot is changed without it.
func TestPrefetch_StartsFromTheCache(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node,console")
	s.robotWith("r1", nil)
	agent(t, s, "r1", "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)

	var downloads atomic.Int32
	model := []byte("weights of release 2")
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		downloads.Add(1)
		_, _ = w.Write(model)
	}))
	defer files.Close()
	job := jobOf("demo", 1, shell("work", "exec sleep 600"))
	job.Spec.Type, job.Spec.Update = v1alpha1.JobTypeSystem, &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout}
	job.Spec.TaskGroups[0].Count = nil
	s.create(job)
	s.awaitOutput(`running`, "get", "tasks")

	seen := s.file("seen")
	task := shell("work", "cat model > "+seen+"; exec sleep 600")
	task.Artifacts = []v1alpha1.Artifact{{
		GetterSource: files.URL + "/model", GetterOptions: map[string]string{"checksum": fmt.Sprintf("sha256:%x", sha256.Sum256(model))},
	}}
	testkit.EventuallyNoError(t, 20*time.Second, "change the job", func() error {
		now := &v1alpha1.Job{}
		if err := s.Get(t.Context(), nameOf("default", "demo"), now); err != nil {
			return err
		}
		now.Spec.TaskGroups[0].Tasks[0] = task
		return s.Update(t.Context(), now)
	})
	s.awaitOutput(`(?m)^2 +update`, "job", "history", "demo")
	s.cli("rollout", "start", "demo", "--name", "demo-2", "--wave", "100%,name=all,approval", "--prefetch", "--prefetch-rate", "1Mi")
	s.awaitOutput(`1 robot has prefetched the revision`, "rollout", "status", "demo-2")
	if robot := s.robot("r1"); len(robot.Status.Prefetch) != 1 || robot.Status.Prefetch[0].Bytes != int64(len(model)) || downloads.Load() != 1 {
		t.Errorf("%d downloads, the robot reports %+v", downloads.Load(), robot.Status.Prefetch)
	}
	testkit.Eventually(t, 20*time.Second, "the robot's turn to end", func() bool { return s.robot("r1").Status.PrefetchOrder == nil })
	files.Close()

	s.cli("rollout", "approve", "demo-2", "all")
	testkit.EventuallyNoError(t, 30*time.Second, "the new task to read its artifact", func() error {
		b, err := os.ReadFile(seen)
		if err == nil && string(b) != string(model) {
			err = fmt.Errorf("it has read %q", b)
		}
		return err
	})
	out, err := s.RunProgram("k8s4r-agent", "status", "--config", os.DevNull, "--state-dir", stateDir(s, "r1"))
	if err != nil || !strings.Contains(out, "1 file of artifacts") {
		t.Errorf("k8s4r-agent status: %v\n%s", err, out)
	}
}
