package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/plan"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// planFile is a Job without defaults.
const planFile = `apiVersion: robot.k8s4r.io/v1alpha1
kind: Job
metadata:
  name: demo
spec:
  type: service
  taskGroups:
    - name: line
      count: 3
      tasks:
        - {name: main, driver: exec, config: {exec: {command: /opt/survey}}}
`

// servePlans makes the manager answer with plans, by the name of the Job, and records the objects that it was sent.
func (b *bench) servePlans(sent *[]robotv1.Job, plans map[string]plan.Plan) {
	connect := b.deps.connect
	b.deps.connect = func(conn *connection) (*cluster, error) {
		c, err := connect(conn)
		c.plan = func(_ context.Context, _ string, object []byte) (plan.Plan, error) {
			var j robotv1.Job
			if err := json.Unmarshal(object, &j); err != nil {
				return plan.Plan{}, err
			}
			*sent = append(*sent, j)
			p, ok := plans[j.Name]
			if !ok {
				return p, apierrors.NewForbidden(robotv1.GroupVersion.WithResource("jobs").GroupResource(), j.Name, errors.New("user \"anna\" may not create Jobs in namespace \"default\""))
			}
			p.Kind, p.Namespace, p.Name = "Job", j.Namespace, j.Name
			return p, nil
		}
		return c, err
	}
}

// writeFile returns the path of a file with the text.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// examplePlans are plans with all that a plan can have.
func examplePlans() map[string]plan.Plan {
	task := func(name, robot string) plan.Task { return plan.Task{Name: name, Robot: robot} }
	return map[string]plan.Plan{
		"demo": {Action: plan.Update, Revision: 4, HiddenRobots: 2, Notes: []string{"priority changes from 50 to 90: it counts for tasks that wait"}, TaskGroups: []plan.Group{
			{
				Name: "line", Action: plan.Update,
				Create:        &plan.List{Total: 3, Tasks: []plan.Task{task("demo-line-3-main", "r7"), {Name: "demo-line-4-main", RobotHidden: true}, {Name: "demo-line-5-main"}}},
				CreateLater:   40,
				NoRoom:        []plan.NoRoom{{Tasks: 1, Reason: "0 of 7 robots: 6: task limit reached; 1: phase is Offline", Preempts: []string{"low-0-main"}, PreemptsTotal: 1}, {Tasks: 2, Reason: "0 of 7 robots", PreemptsTotal: 2}},
				ChangeInPlace: &plan.List{Total: 1, Tasks: []plan.Task{task("demo-line-2-main", "")}},
				Restart: &plan.Restart{Total: 5, MaxParallel: 2, MinHealthySeconds: 90, Steps: []plan.List{
					{Total: 2, Tasks: []plan.Task{task("demo-line-0-main", "r1"), task("demo-line-1-main", "r2")}}, {Total: 1, Tasks: []plan.Task{task("demo-line-6-main", "r3")}},
				}},
				OutOfReach: &plan.List{Total: 1, Tasks: []plan.Task{task("demo-line-8-main", "r9")}},
			},
			{Name: "scan", Action: plan.None},
			{Name: "hidden", Action: plan.Update, Stop: &plan.List{Total: 12}},
			{Name: "arrays", Action: plan.Create, Create: &plan.List{Total: 300, Tasks: manyTasks(25)}},
			{Name: "broken", Action: plan.Update, Defect: "task main: its definition has 600 KiB, at most 512 KiB are allowed"},
		}},
		"same": {Action: plan.None},
	}
}

func manyTasks(n int) (all []plan.Task) {
	for range n {
		all = append(all, plan.Task{Name: "demo-arrays-0-main", Robot: "r1", Indexes: "0-99"})
	}
	return all
}

func TestPlan_PrintsResult(t *testing.T) {
	same := strings.Replace(planFile, "name: demo", "name: same", 1)
	for _, c := range []struct {
		golden, file string
		args         []string
		status       int
	}{
		{"plan-changes", planFile, nil, 2},
		{"plan-same", same, nil, 0},
		{"plan-two", same + "---\n" + planFile, nil, 2},
		{"plan-json", same, []string{"-o", "json"}, 0},
		{"plan-forbidden", strings.Replace(planFile, "name: demo", "name: other", 1), nil, 1},
		{"plan-other-kind", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", nil, 1},
		{"plan-no-name", strings.Replace(planFile, "name: demo", "generateName: demo-", 1), nil, 1},
		{"plan-empty", "---\n", nil, 1},
	} {
		t.Run(c.golden, func(t *testing.T) {
			var sent []robotv1.Job
			b := newBench(t)
			b.servePlans(&sent, examplePlans())
			path := writeFile(t, c.file)
			status := b.run(append([]string{"plan", "-f", path}, c.args...)...)
			if status != c.status {
				t.Errorf("exit status %d, want %d", status, c.status)
			}
			golden.Equal(t, c.golden, strings.ReplaceAll(b.transcript(status), path, "job.yaml"))
			var jobs robotv1.JobList
			if err := b.client.List(t.Context(), &jobs); err != nil || len(jobs.Items) > 0 {
				t.Errorf("a plan created %d jobs, %v", len(jobs.Items), err)
			}
		})
	}
}

func TestPlan_FailsWithOne(t *testing.T) {
	for _, args := range [][]string{{"plan"}, {"plan", "-f", "/no/such/file"}, {"plan", "--no-such-flag"}, {"plan", "-f", "-", "-o", "wide"}, {"plan", "-f", "-", "argument"}} {
		if status := newBench(t).run(args...); status != exitPlanFailed {
			t.Errorf("%v exits with %d", args, status)
		}
	}
}

// TestPlan_ComparesAsKubectlApplyDoes checks the patch that the API server gets for a Job that exists.
func TestPlan_ComparesAsKubectlApplyDoes(t *testing.T) {
	for _, c := range []struct {
		name     string
		last     string // the file that was applied last; empty: the Job was not applied
		removes  bool   // a label of the last file
		hasAfter bool   // the annotation with the file
	}{
		{"a field that the last file had is removed", `{"metadata":{"labels":{"old":"x"}}}`, true, true},
		{"fields of others stay", `{"metadata":{}}`, false, true},
		{"without a last file nothing is removed", "", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			live := job("demo")
			live.Labels = map[string]string{"old": "x", "own": "y"}
			if c.last != "" {
				live.Annotations = map[string]string{lastApplied: c.last}
			}
			var sent []robotv1.Job
			b := newBench(t, live)
			b.servePlans(&sent, examplePlans())
			patch := ""
			b.hooks.Patch = func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				data, err := p.Data(o)
				var set client.PatchOptions
				set.ApplyOptions(opts)
				if patch = string(data); !slices.Contains(set.DryRun, "All") {
					t.Error("the patch is no dry run")
				}
				return err
			}
			if status := b.run("plan", "-f", writeFile(t, planFile)); status != exitPlanChanges || len(sent) != 1 {
				t.Fatal(b.transcript(status))
			}
			for part, want := range map[string]bool{`"count":3`: true, `"labels":null`: c.removes, `"own":null`: false, lastApplied: c.hasAfter} {
				if strings.Contains(patch, part) != want {
					t.Errorf("patch has %s: %t\n%s", part, !want, patch)
				}
			}
		})
	}
}
