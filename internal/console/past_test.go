package console

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// TestArchive_HidesRowsOfEarlierNamespace has an archive with rows of two namespaces of one name, of
// which the second exists, and of one that is gone.
func TestArchive_HidesRowsOfEarlierNamespace(t *testing.T) {
	store, err := archive.Open("sqlite:" + filepath.Join(t.TempDir(), "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	for i, o := range []archive.Object{
		{Namespace: "hall", NamespaceUID: "hall-1", Name: "theirs", UID: "u-theirs"},
		{Namespace: "hall", NamespaceUID: "hall-2", Name: "mine", UID: "u-mine"},
		{Namespace: "yard", NamespaceUID: "yard-1", Name: "gone", UID: "u-gone"},
	} {
		o.Kind, o.Version, o.Created, o.Phase, o.Outcome, o.Robot = archive.Task, 1, noon.Add(time.Duration(i)*time.Second), "failed", archive.Failed, "r1"
		o.Template, o.Step, o.Started, o.Finished = o.Name, "s", noon, noon.Add(time.Minute)
		o.Manifest = json.RawMessage(`{"kind":"Task"}`)
		o.Attempts = []archive.Attempt{{Number: 1, Robot: "r1", State: "failed", Failed: true, Started: noon, Finished: noon.Add(time.Minute)}}
		if err := store.Record(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		admin bool
		want  map[string]bool // which tasks the caller sees
	}{
		{"the owner of the second", false, map[string]bool{"mine": true}},
		{"a caller who may see all namespaces", true, map[string]bool{"mine": true, "theirs": true, "gone": true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := newTestServer(&fakeGate{allow: func(_ string, do authorizationv1.ResourceAttributes) (bool, error) {
				return c.admin || do.Namespace == "hall" || do.Namespace == "yard", nil
			}})
			s.archive = store
			s.live = fakeapi.NewBuilder(clientgoscheme.Scheme).WithIndex(&corev1.Namespace{}, metav1.ObjectNameField, nameOf).
				WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hall", UID: types.UID("hall-2")}}).Build()
			for name, namespace := range map[string]string{"mine": "hall", "theirs": "hall", "gone": "yard"} {
				checkPast(t, s, namespace, name, c.want[name])
			}
		})
	}
}

// checkPast checks each way in which the console shows an archived task.
func checkPast(t *testing.T, s *Server, namespace, name string, want bool) {
	t.Helper()
	for _, path := range []string{
		"/api/v1/objects/tasks/" + namespace + "/" + name, "/api/v1/objects/tasks/" + namespace + "/" + name + "?uid=u-" + name, "/api/v1/history/transitions/u-" + name,
	} {
		if code := serve(t, s, "GET", path, "", nil); (code == 200) != want || code != 200 && code != 404 {
			t.Errorf("%s: %d", path, code)
		}
	}
	var lists struct {
		Items []struct{ Name, Task, Template string }
	}
	for _, path := range []string{
		"/api/v1/objects/tasks?scope=archived&sort=-created&namespace=" + namespace, "/api/v1/history/robots/r1?namespace=" + namespace,
		"/api/v1/history/failures?namespace=" + namespace,
	} {
		if code := serve(t, s, "GET", path, "", &lists); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
		found := false
		for _, item := range lists.Items {
			found = found || item.Name == name || item.Task == name || item.Template == name
		}
		if found != want {
			t.Errorf("%s: it has %s: %v", path, name, found)
		}
		lists.Items = nil
	}
}

// nameOf indexes objects by name, as the API server does.
func nameOf(o client.Object) []string { return []string{o.GetName()} }
