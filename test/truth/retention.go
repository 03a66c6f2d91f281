package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/testkit"
)

const (
	retentionJobs = 40
	// retentionCount is the limit of the namespace default, whose objects do not reach their age.
	retentionCount = 5
	// retentionPatience is how long to wait until the objects beyond a limit are gone.
	retentionPatience = 2 * time.Minute
)

// agedNamespace is a namespace whose objects are deleted by their age. No robot is in it, so its jobs
// are canceled from the beginning.
const agedNamespace = `
apiVersion: v1
kind: Namespace
metadata:
  name: aged
  annotations: {robot.k8s4r.io/finished-retention: 5s, robot.k8s4r.io/finished-max-objects: "0"}
---`

// keptJobs are jobs that the retention must not delete, with the metadata or spec that keeps them.
var keptJobs = map[string]struct{ metadata, spec string }{
	"kept":     {metadata: `annotations: {robot.k8s4r.io/keep: "true"}`},
	"own-ttl":  {spec: "ttlSecondsAfterFinished: 86400"},
	"deployed": {metadata: `annotations: {argocd.argoproj.io/tracking-id: "fleet:robot.k8s4r.io/Job:default/deployed"}`},
}

// finishedObjectsAfterRetention runs jobs and a flow to their end, and counts those that are left
// beyond the limits: in one namespace beyond the number, in another beyond the age.
func finishedObjectsAfterRetention(t testing.TB, figures map[string]float64) {
	up := testkit.StartUp(t, "--robots=2", fmt.Sprintf("--finished-max-objects=%d", retentionCount))
	c := testkit.NewClient(t, up.RESTConfig())
	names := applyFinishingJobs(t, up, max(2*retentionCount, countTries(retentionJobs)))
	awaitArchived(t, up, names)
	left := leftAbove(t, c, "default", retentionCount) + leftAbove(t, c, "aged", 0)
	figures["finished_objects_after_retention"] = float64(left)
	if left > 0 {
		t.Errorf("%d finished objects are left beyond the limits", left)
	}
	if n := countFinished(t, c, "default"); n < min(retentionCount, len(names)) {
		t.Errorf("%d finished objects are left of the %d within the limit", n, retentionCount)
	}
	for name := range keptJobs {
		if err := c.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, &v1alpha1.Job{}); err != nil {
			t.Errorf("job %s is not kept: %v", name, err)
		}
	}
}

// applyFinishingJobs creates n jobs in each of two namespaces, and in default the kept ones and a
// flow, all of which end at once. It returns the names of the jobs in default.
func applyFinishingJobs(t testing.TB, up *testkit.Up, n int) (names []string) {
	const job = `
apiVersion: robot.k8s4r.io/v1alpha1
kind: %s
metadata: {name: %s, namespace: %s, %s}
spec:
  taskGroups: [{name: main, tasks: [{name: main, driver: exec, config: {execConfig: {command: "true"}}}]}]
  %s
---`
	all := &strings.Builder{}
	all.WriteString(agedNamespace)
	for i := range n {
		names = append(names, fmt.Sprintf("finishing-%d", i))
		fmt.Fprintf(all, job, "Job", names[i], "default", "", "")
		fmt.Fprintf(all, job, "Job", names[i], "aged", "", "desiredState: canceled")
	}
	for name, kept := range keptJobs {
		names = append(names, name)
		fmt.Fprintf(all, job, "Job", name, "default", kept.metadata, kept.spec)
	}
	fmt.Fprintf(all, job, "JobTemplate", "finishing", "default", "", "")
	all.WriteString(`
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata: {name: finishing, namespace: default}
spec: {flows: [{name: step, templateRef: {apiGroup: robot.k8s4r.io, name: finishing}}]}
`)
	file := filepath.Join(t.TempDir(), "finishing.yaml")
	if err := os.WriteFile(file, []byte(all.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := up.RunProgram("k8s4r", "kubectl", "apply", "-f", file); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	return names
}

// awaitArchived waits until the archive has the end of all jobs in default. Those that have been
// deleted meanwhile are only there.
func awaitArchived(t testing.TB, up *testkit.Up, names []string) {
	store, err := archive.Open("sqlite:" + filepath.Join(up.DataDir, "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, name := range names {
		testkit.EventuallyNoError(t, 2*time.Minute, "the end of job "+name+" is archived", func() error {
			o, err := store.FindByName(context.Background(), nil, archive.Job, "default", name)
			if err == nil && o.Finished.IsZero() {
				err = fmt.Errorf("it is %q", o.Phase)
			}
			return err
		})
	}
}

// leftAbove waits until at most so many finished objects are left that the retention may delete,
// and returns how many there are above that number.
func leftAbove(t testing.TB, c client.Client, namespace string, most int) int {
	for deadline := time.Now().Add(retentionPatience); ; time.Sleep(time.Second) {
		left := max(0, countFinished(t, c, namespace)-most)
		if left == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// countFinished returns the number of jobs and flows without a controller, except the kept ones.
func countFinished(t testing.TB, c client.Client, namespace string) int {
	var jobs v1alpha1.JobList
	var flows flowv1.JobFlowList
	for _, list := range []client.ObjectList{&jobs, &flows} {
		if err := c.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	n := len(flows.Items)
	for i := range jobs.Items {
		if _, kept := keptJobs[jobs.Items[i].Name]; !kept && len(jobs.Items[i].OwnerReferences) == 0 {
			n++
		}
	}
	return n
}
