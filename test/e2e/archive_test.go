package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestArchive_KeepsHistoryOfEndedJobs queries the archive of a real system while it runs and after it was killed.
func TestArchive_KeepsHistoryOfEndedJobs(t *testing.T) {
	t.Parallel()
	up := testkit.StartUp(t, "--robots=1")
	began := time.Now()
	if out, err := up.RunProgram("k8s4r", "run", "--name=hello", "--count=3", "--", "/bin/sh", "-c", "echo hello from $K8S4R_ROBOT"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	store, err := archive.Open("sqlite:" + filepath.Join(up.DataDir, "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	ran := func() error {
		p, err := store.ListRobotAttempts(t.Context(), archive.RobotHistory{Robot: "robot-1", Since: began.Add(-time.Minute), Until: time.Now().Add(time.Minute)})
		if err != nil {
			return err
		}
		if len(p.Items) != 3 {
			return fmt.Errorf("%d attempts on robot-1", len(p.Items))
		}
		for _, a := range p.Items {
			if a.Job != "hello" || a.State != "completed" || a.Failed || a.ExitCode == nil || *a.ExitCode != 0 || a.Finished.Before(a.Started) {
				return fmt.Errorf("attempt %+v", a)
			}
		}
		return nil
	}
	testkit.EventuallyNoError(t, 30*time.Second, "the archive knows what ran on the robot", ran)
	testkit.EventuallyNoError(t, 30*time.Second, "the job has ended in the archive", func() error {
		o, err := store.FindByName(t.Context(), nil, archive.Job, "default", "hello")
		if err == nil && o.Outcome != archive.Succeeded {
			err = fmt.Errorf("it is %s", o.Phase)
		}
		return err
	})
	times, _, err := store.StepTimes(t.Context(), archive.Task, archive.Span{Template: "hello"})
	if err != nil || len(times) != 1 || times[0].Count != 3 || times[0].P50 <= 0 || times[0].P50 > times[0].P95 {
		t.Errorf("times %+v, %v", times, err)
	}
	up.Kill()
	if err := ran(); err != nil {
		t.Errorf("after a crash: %v", err)
	}
}
