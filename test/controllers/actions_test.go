package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/manager/admission"
	"k8s4r.io/k8s4r/internal/testkit"
)

const recordsAnnotation = "k8s4r.io/actions"

// forged is a record of another user.
const forged = "2026-01-01T00:00:00Z forged create - anna"

// awaitActions waits until the archive has these actions in the namespace, as "USER DID KIND/NAME", the first
// one first.
func (h *history) awaitActions(want ...string) []archive.Action {
	h.Helper()
	var page archive.Page[archive.Action]
	testkit.EventuallyNoError(h, waitTimeout, "the actions are in the archive", func() (err error) {
		page, err = h.store.ListActions(h.Context(), archive.ActionFilter{Namespaces: []string{h.name}})
		var got []string
		for _, a := range slices.Backward(page.Items) {
			got = append(got, fmt.Sprintf("%s %s %s/%s", a.User, a.Did, a.Kind, a.Name))
		}
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("there are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return err
	})
	return page.Items
}

func mergePatch(text string) client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(text))
}

// startWithWebhook starts an API server, and a manager of these namespaces that serves its webhook for
// all namespaces on this machine. It has the roles in config/webhook; the registrations are created
// by an administrator.
func startWithWebhook(t *testing.T, cfg manager.Config, namespaces ...string) *system {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t)
	s.namespaces = namespaces
	const role = "k8s4r-manager-webhook"
	programs := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:k8s4r-system"}}
	for _, o := range []client.Object{
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "k8s4r-system", Name: "test"}, Subjects: programs,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "test-webhook"}, Subjects: programs,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}},
	} {
		if err := s.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Webhook = admission.Config{Listener: listener, URL: "https://" + listener.Addr().String(), RecordActions: true, Registrar: s.WithWatch}
	s.manage(cfg)
	return s
}

// TestWebhook has an API server that calls the webhook of the manager.
func TestWebhook(t *testing.T) {
	t.Parallel()
	address := "sqlite:" + filepath.Join(t.TempDir(), "history.db")
	sys := startWithWebhook(t, manager.Config{OfflineAfter: time.Hour, Archive: address}, "actions")
	t.Run("invalid flows are refused", func(t *testing.T) { refusesInvalidFlows(t, sys) })
	t.Run("actions of users are recorded", func(t *testing.T) {
		recordsActions(&history{space: sys.namespace(t, "actions"), store: historyAt(t, address)})
	})
}

// recordsActions has a tenant who changes and deletes a job, and tries to act in another user's name
// and to remove the records. It stops the manager.
func recordsActions(h *history) {
	h.bind("edits", "tenant", "k8s4r-edit")
	tenant := h.as("tenant")
	awaitPolicies(h.T, h.space)
	h.awaitWebhook(tenant)

	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: "j", Annotations: map[string]string{recordsAnnotation: forged, "own": "x"}}}
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}
	h.must(tenant.Create(h.Context(), j))
	for _, patch := range []string{
		`{"spec":{"desiredState":"paused"}}`,
		`{"metadata":{"annotations":{"` + recordsAnnotation + `":null}}}`,
		`{"metadata":{"annotations":null}}`,
		`{"metadata":{"annotations":{"` + recordsAnnotation + `":"` + forged + `"}},"spec":{"priority":7}}`,
		`{"spec":{"desiredState":"canceled"}}`,
	} {
		h.must(tenant.Delete(h.Context(), j.DeepCopy(), client.DryRunAll))
		h.must(tenant.Patch(h.Context(), j.DeepCopy(), mergePatch(patch)))
	}
	before := []string{"tenant create Job/j", "tenant pause Job/j", "tenant change metadata.annotations Job/j", "tenant change priority=7 Job/j", "tenant cancel Job/j"}
	all := h.awaitActions(before...)
	for _, a := range all {
		if a.UID != string(j.UID) || a.NamespaceUID == "" || time.Since(a.At) > time.Hour {
			h.Errorf("%+v", a)
		}
	}
	h.must(tenant.Delete(h.Context(), j.DeepCopy()))
	h.awaitActions(append(before, "tenant delete Job/j")...)

	h.Run("while no manager answers", func(t *testing.T) {
		other := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: "other"}, Spec: j.Spec}
		h.must(tenant.Create(h.Context(), other))
		h.stop()
		refused := func(what string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "metadata.annotations["+recordsAnnotation+"]") {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused("removal", tenant.Patch(h.Context(), other.DeepCopy(), mergePatch(`{"metadata":{"annotations":{"`+recordsAnnotation+`":null}}}`)))
		refused("another user's name", tenant.Patch(h.Context(), other.DeepCopy(), mergePatch(`{"metadata":{"annotations":{"`+recordsAnnotation+`":"`+forged+`"}}}`)))
		bad := other.DeepCopy()
		bad.ObjectMeta = metav1.ObjectMeta{Namespace: h.name, Name: "bad", Annotations: map[string]string{recordsAnnotation: forged}}
		refused("a new object with another user's name", tenant.Create(h.Context(), bad))
		if err := tenant.Patch(h.Context(), other.DeepCopy(), mergePatch(`{"spec":{"priority":9}}`)); err != nil {
			t.Errorf("any other change: %v", err)
		}
	})
}

// awaitWebhook waits until the API server calls the webhook that records changes. The manager waits only for
// the one that refuses flows.
func (h *history) awaitWebhook(as client.Client) {
	h.Helper()
	testkit.EventuallyNoError(h, waitTimeout, "the webhook is called", func() error {
		r := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: "probe"}}
		r.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{group("g", 1, "t")}
		err := as.Create(context.WithoutCancel(h.Context()), r, client.DryRunAll)
		if err == nil && r.Annotations[recordsAnnotation] == "" {
			err = errors.New("no record")
		}
		return err
	})
}
