package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// listActions returns the actions of users on jobs, as "USER ACTION NAME", the first one first.
func (s *system) listActions() (all []string, err error) {
	out, err := s.RunProgram("k8s4r", "history", "--who", "job", "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var list struct {
		Items []struct {
			User, Action, Name string
			Code               int
		}
	}
	err = json.Unmarshal([]byte(out), &list)
	for _, a := range slices.Backward(list.Items) {
		line := a.User + " " + a.Action + " " + a.Name
		if a.Code >= 400 {
			line += " refused"
		}
		all = append(all, line)
	}
	return all, err
}

func (s *system) awaitActions(want ...string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, time.Minute, "the actions are in the archive", func() error {
		got, err := s.listActions()
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("there are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return err
	})
}

// TestAudit_RecordsWhoDidWhat has a tenant, whom the archive must name, also after `up` was killed. What our
// programs read and report is not in the audit log.
func TestAudit_RecordsWhoDidWhat(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node")
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "k8s4r-edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
	}
	s.create(binding)
	config := rest.CopyConfig(s.RESTConfig())
	config.Impersonate.UserName = "tenant"
	tenant := testkit.NewClient(t, config)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	patch := func(name, text string) error {
		j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		return tenant.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(text)))
	}
	newJob := func(name string) *v1alpha1.Job {
		j := jobOf(name, 1, shell("say", "echo hi"))
		t := &j.Spec.TaskGroups[0].Tasks[0]
		t.Driver, t.User = v1alpha1.DriverExec, "" // as a tenant may
		return j
	}
	job := newJob("j")
	s.awaitAuditPolicies(tenant, newJob("probe"))
	must(tenant.Create(t.Context(), job))
	must(patch("j", `{"spec":{"desiredState":"paused"}}`))
	if err := patch("j", `{"metadata":{"annotations":{"k8s4r.io/actions":"2026-01-01T00:00:00Z forged create - anna"}}}`); err == nil || !strings.Contains(err.Error(), "k8s4r.io/actions") {
		t.Errorf("a forged record: %v", err)
	}
	want := []string{"tenant create j", "tenant pause j", "tenant change metadata.annotations j refused"}
	s.awaitActions(want...)
	s.Kill()
	s.Start()
	s.awaitAuditPolicies(tenant, newJob("probe-after-kill"))
	must(patch("j", `{"spec":{"desiredState":"canceled"}}`))
	must(tenant.Delete(t.Context(), job, client.DryRunAll))
	must(tenant.Delete(t.Context(), job))
	s.awaitActions(append(want, "tenant cancel j", "tenant delete j")...)
	s.checkAuditLog()
}

// awaitAuditPolicies waits until the API server enforces the policies for records of actions, and the rights of
// the tenant. Its dry runs are no actions.
func (s *system) awaitAuditPolicies(tenant client.Client, probe *v1alpha1.Job) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, time.Minute, "the policies are in force", func() error {
		bad := probe.DeepCopy()
		bad.Annotations = map[string]string{"k8s4r.io/actions": "forged"}
		if err := tenant.Create(s.t.Context(), bad, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "k8s4r.io/actions") {
			return fmt.Errorf("a forged record: %w", err)
		}
		if err := tenant.Create(s.t.Context(), probe.DeepCopy(), client.DryRunAll); err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(s.DataDir, "audit", "audit.log"))
		if err == nil && !strings.Contains(string(text), `"k8s4r-actions/object":"`+probe.Name+" ") {
			err = errors.New("the audit log does not have what was changed")
		}
		return err
	})
}

// checkAuditLog checks who may read the log, and that it has no reads and reports of our programs.
func (s *system) checkAuditLog() {
	s.t.Helper()
	file := filepath.Join(s.DataDir, "audit", "audit.log")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		s.t.Errorf("%v, %v", info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Level, Verb string
			User        struct{ Username string }
			ObjectRef   struct{ Resource, Subresource string }
		}
		if json.Unmarshal([]byte(line), &e) != nil {
			continue // what the kill left
		}
		isOwn := e.User.Username == "k8s4r-up" || e.User.Username == "system:apiserver"
		if e.Level != "Metadata" || isOwn && (slices.Contains([]string{"get", "list", "watch"}, e.Verb) || e.ObjectRef.Subresource == "status") {
			s.t.Errorf("in the audit log: %s", line)
		}
	}
}
