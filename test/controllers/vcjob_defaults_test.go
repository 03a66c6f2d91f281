package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// undefaulted returns a Job that relies on all defaults, with tasks of so many replicas.
func undefaulted(namespace string, replicas ...int32) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "d-"}}
	j.Spec.Plugins = map[string][]string{"pytorch": {}}
	for _, n := range replicas {
		t := vctask("", n)
		t.Template.Spec.HostNetwork = true
		j.Spec.Tasks = append(j.Spec.Tasks, t)
	}
	return j
}

// describeDefaults returns the fields of a spec that have defaults.
func describeDefaults(s *batchv1.JobSpec) string {
	text := fmt.Sprintf("%s %s %d %d", s.SchedulerName, s.Queue, s.MaxRetry, s.MinAvailable)
	for i := range s.Tasks {
		t := &s.Tasks[i]
		text += fmt.Sprintf("; %s %d %d %s", t.Name, *t.MinAvailable, t.MaxRetry, t.Template.Spec.DNSPolicy)
	}
	for _, name := range []string{"svc", "ssh"} {
		if _, on := s.Plugins[name]; on {
			text += "; " + name
		}
	}
	return text
}

// TestVCJob_DefaultsAreInObject reads what Volcano's webhook would write.
func TestVCJob_DefaultsAreInObject(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "defaults")
	testkit.EventuallyNoError(t, waitTimeout, "the policy is in force", func() error {
		j := undefaulted(s.name, 1)
		if err := s.Create(t.Context(), j, client.DryRunAll); err != nil {
			return err // policies that mutate learn of a new definition after a delay
		}
		return check(j.Spec.Tasks[0].Name != "", "the tasks have no names")
	})
	j := undefaulted(s.name, 2, 1)
	s.must(s.Create(t.Context(), j))
	const host = string(corev1.DNSClusterFirstWithHostNet)
	want := "volcano default 3 3; default0 2 3 " + host + "; default1 1 3 " + host + "; svc"
	if got := describeDefaults(&j.Spec); got != want {
		t.Errorf("created with %s, want %s", got, want)
	}
	t.Run("an update that replaces the tasks keeps them", func(t *testing.T) {
		testkit.EventuallyNoError(t, waitTimeout, "the update", func() error {
			s.must(s.Get(t.Context(), client.ObjectKeyFromObject(j), j))
			min := j.Spec.MinAvailable
			j.Spec = undefaulted(s.name, 4, 1).Spec
			j.Spec.SchedulerName, j.Spec.MinAvailable = "volcano", min // as kubectl apply leaves them
			return s.Update(t.Context(), j)
		})
		want := "volcano default 3 3; default0 4 3 " + host + "; default1 1 3 " + host + "; svc"
		if got := describeDefaults(&j.Spec); got != want {
			t.Errorf("updated to %s, want %s", got, want)
		}
	})
	t.Run("what is set stays", func(t *testing.T) {
		none := int32(0)
		j := undefaulted(s.name, 2)
		j.Spec.MinAvailable, j.Spec.Tasks[0].Name, j.Spec.Tasks[0].MinAvailable = 1, "own", &none
		j.Spec.SchedulerName, j.Spec.Tasks[0].MaxRetry, j.Spec.Tasks[0].Template.Spec.DNSPolicy = "own", 7, corev1.DNSDefault
		s.must(s.Create(t.Context(), j))
		if got, want := describeDefaults(&j.Spec), "own default 3 1; own 0 7 Default; svc"; got != want {
			t.Errorf("created with %s, want %s", got, want)
		}
	})
	t.Run("mpi implies two plugins", func(t *testing.T) {
		j := undefaulted(s.name, 1)
		j.Spec.Plugins = map[string][]string{"mpi": {}, "ssh": {"--ssh-port=2222"}}
		s.must(s.Create(t.Context(), j, client.DryRunAll))
		if got := j.Spec.Plugins["ssh"]; !slices.Equal(got, []string{"--ssh-port=2222"}) {
			t.Errorf("arguments of ssh %v, want those that were given", got)
		}
		delete(j.Spec.Plugins, "ssh")
		delete(j.Spec.Plugins, "svc")
		j.ResourceVersion = ""
		s.must(s.Create(t.Context(), j, client.DryRunAll))
		if got := describeDefaults(&j.Spec); !strings.HasSuffix(got, "; svc; ssh") {
			t.Errorf("created with %s, want svc and ssh", got)
		}
	})
	t.Run("a patch of a step has none", func(t *testing.T) {
		f := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "f"}}
		const patch = `{"tasks":[{"name":"main","replicas":2}]}`
		f.Spec.Flows = []flowv1.Flow{{Name: "a", Patch: &flowv1.Patch{JobSpec: &runtime.RawExtension{Raw: []byte(patch)}}}}
		s.must(s.Create(t.Context(), f, client.DryRunAll))
		if got := string(f.Spec.Flows[0].Patch.JobSpec.Raw); got != patch {
			t.Errorf("patch %s, want %s", got, patch)
		}
	})
}
