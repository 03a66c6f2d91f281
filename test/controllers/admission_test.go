package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// chain of steps, each depending on the next one named.
func chain(name string, steps ...string) *flowv1.JobFlow {
	f := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	for _, s := range steps {
		step, targets, depends := strings.Cut(s, ":")
		flow := flowv1.Flow{Name: step}
		if depends {
			flow.DependsOn = &flowv1.DependsOn{Targets: strings.Fields(targets)}
		}
		f.Spec.Flows = append(f.Spec.Flows, flow)
	}
	return f
}

const refused = `admission webhook "validatejobflow.volcano.sh" denied the request: `

// refusesInvalidFlows creates flows in a namespace that the manager does not reconcile.
func refusesInvalidFlows(t *testing.T, c client.Client) {
	cyclic := chain("cyclic", "a:a")
	testkit.EventuallyNoError(t, waitTimeout, "the webhook validates flows", func() error {
		err := c.Create(t.Context(), cyclic.DeepCopy())
		if err == nil {
			_ = c.Delete(t.Context(), cyclic.DeepCopy())
			return context.DeadlineExceeded
		}
		if !strings.HasPrefix(err.Error(), refused) {
			return err
		}
		return nil
	})
	accepted := chain("accepted", "a", "b:a")
	if err := c.Create(t.Context(), accepted); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name  string
		steps []string
		want  string // empty: it is let in
	}{
		{"undefined target", []string{"a", "b:nosuch"}, refused + "jobflow Flow is not DAG: vertex is not defined: nosuch"},
		{"self", []string{"a:a"}, refused + "jobflow Flow is not DAG"},
		{"cycle of 2", []string{"a:b", "b:a"}, refused + "jobflow Flow is not DAG"},
		{"cycle of 3", []string{"a:c", "b:a", "c:b"}, refused + "jobflow Flow is not DAG"},
		{"empty", nil, ""},
		{"duplicate names", []string{"a", "a", "b:a"}, ""},
		{"linear", []string{"a", "b:a", "c:b"}, ""},
		{"complex", []string{"a", "b:a", "c:b", "d:b", "e:c d a"}, ""},
		{"empty name", []string{""}, `JobFlow.flow.volcano.sh "NAME" is invalid: spec.flows[0].name`},
	} {
		t.Run(row.name, func(t *testing.T) {
			created := chain("created", row.steps...)
			changed := accepted.DeepCopy()
			changed.Spec = created.Spec
			for name, err := range map[string]error{
				"created": c.Create(t.Context(), created), "accepted": c.Update(t.Context(), changed, client.DryRunAll),
			} {
				want := strings.ReplaceAll(row.want, "NAME", name)
				switch {
				case want == "" && err != nil, want != "" && err == nil:
					t.Errorf("%s: %v, want %q", name, err, want)
				case strings.HasPrefix(want, refused) && err.Error() != want, want != "" && !strings.HasPrefix(err.Error(), want):
					t.Errorf("%s: %v, want %q", name, err, want)
				}
			}
			_ = client.IgnoreNotFound(c.Delete(t.Context(), created))
		})
	}
	for _, row := range []struct {
		name   string
		change func(*flowv1.Flow)
		want   string // after the step
	}{
		{"a when that does not compile", func(f *flowv1.Flow) { f.When = "params.x +" }, "when: does not compile"},
		{"a patch that does not fit", func(f *flowv1.Flow) {
			f.Patch = &flowv1.Patch{JobSpec: &runtime.RawExtension{Raw: []byte(`{"priority":3}`)}}
		}, "patch.jobSpec.priority: a Job of pods has no such field; correct the name"},
		{"a probe without targets", func(f *flowv1.Flow) {
			f.DependsOn = &flowv1.DependsOn{Probe: &flowv1.Probe{TCPSocketList: []flowv1.TCPSocket{{TaskName: "ps", Port: 80}}}}
		}, "dependsOn.probe: has no Pods to check; add the steps to dependsOn.targets"},
		{"a probe of a step on robots", func(f *flowv1.Flow) {
			f.DependsOn = &flowv1.DependsOn{Targets: []string{"r"}, Probe: &flowv1.Probe{TCPSocketList: []flowv1.TCPSocket{{TaskName: "ps", Port: 80}}}}
		}, "dependsOn.probe: all targets run on robots and have no Pods to check"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := chain("unfit", "r", "a")
			f.Spec.Flows[0].TemplateRef = &flowv1.TemplateReference{APIGroup: flowv1.TemplateGroupRobots}
			row.change(&f.Spec.Flows[1])
			if err := c.Create(t.Context(), f); err == nil || !strings.HasPrefix(err.Error(), refused+"spec.flows[a]."+row.want) {
				t.Errorf("%v, want %s", err, row.want)
			}
		})
	}
	t.Run("a thousand steps with names of 63 characters", func(t *testing.T) {
		f := chain(strings.Repeat("f", 63))
		for i := range 1000 {
			f.Spec.Flows = append(f.Spec.Flows, after(fmt.Sprintf("%063d", i)))
			if i > 0 {
				f.Spec.Flows[i].DependsOn = &flowv1.DependsOn{Targets: []string{fmt.Sprintf("%063d", i-1)}}
			}
		}
		if err := c.Create(t.Context(), f.DeepCopy()); err != nil {
			t.Error(err)
		}
		f.Name = "round"
		f.Spec.Flows[0].DependsOn = &flowv1.DependsOn{Targets: []string{fmt.Sprintf("%063d", 999)}}
		if err := c.Create(t.Context(), f); err == nil || err.Error() != refused+"jobflow Flow is not DAG" {
			t.Errorf("a cycle of a thousand: %v", err)
		}
	})
	t.Run("a schedule that cannot be read", func(t *testing.T) {
		odd := cron("default", "odd")
		odd.Spec.Schedule = "whenever"
		const want = `admission webhook "validatecronjobflow.k8s4r.io" denied the request: spec.schedule: invalid schedule "whenever"`
		if err := c.Create(t.Context(), odd); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	})
}
