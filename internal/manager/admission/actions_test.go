package admission

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionapi "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// memory is an archive of actions.
type memory struct {
	all  []archive.Action
	down bool
}

func (m *memory) RecordActions(_ context.Context, all []archive.Action, _ *archive.AuditPosition) error {
	if m.down {
		return errors.New("down")
	}
	m.all = append(m.all, all...)
	return nil
}

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func newActionHandler(m *memory) *actionHandler {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "nu"}}
	return &actionHandler{archive: m, namespaces: fakeapi.NewBuilder(clientgoscheme.Scheme).WithObjects(ns).Build(), now: func() time.Time { return noon }, log: logr.Discard()}
}

func newRequest(operation admissionapi.Operation, group, resource, before, after string) admission.Request {
	return admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{
		UID: "id", Operation: operation, Namespace: "n", Name: "j", UserInfo: authenticationv1.UserInfo{Username: "anna"},
		Resource:  metav1.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: resource},
		OldObject: runtime.RawExtension{Raw: []byte(before)}, Object: runtime.RawExtension{Raw: []byte(after)},
	}}
}

// printPatches returns the patches of a response as text.
func printPatches(t *testing.T, r admission.Response) (text string) {
	t.Helper()
	for _, p := range r.Patches {
		value, err := json.Marshal(p.Value)
		if err != nil {
			t.Fatal(err)
		}
		text += p.Operation + " " + p.Path + " " + string(value)
	}
	return text
}

func TestActions_RecordsChangesWhateverTheClientWrites(t *testing.T) {
	const (
		gvk = `"apiVersion":"robot.k8s4r.io/v1alpha1","kind":"Job"`
		old = "2026-11-24T11:00:00Z 1 create - bob"
	)
	line := func(verb, changes string) string { return `2026-11-24T12:00:00Z id ` + verb + ` ` + changes + ` anna` }
	for _, c := range []struct {
		name, before, after string
		want                string // the patch
	}{
		{"a create", "", `{` + gvk + `,"metadata":{"name":"j"}}`, `add /metadata/annotations {"k8s4r.io/actions":"` + line("create", "-") + `"}`},
		{"a create with a forged record", "", `{` + gvk + `,"metadata":{"annotations":{"k8s4r.io/actions":"` + old + `"}}}`,
			`replace /metadata/annotations/k8s4r.io~1actions "` + line("create", "-") + `"`},
		{"a pause", `{` + gvk + `,"metadata":{"annotations":{"k8s4r.io/actions":"` + old + `"}},"spec":{}}`,
			`{` + gvk + `,"metadata":{"annotations":{"k8s4r.io/actions":"` + old + `"}},"spec":{"desiredState":"paused"}}`,
			`replace /metadata/annotations/k8s4r.io~1actions "` + old + `\n` + line("update", "desiredState=paused") + `"`},
		{"a removed record", `{` + gvk + `,"metadata":{"annotations":{"k8s4r.io/actions":"` + old + `"}},"spec":{}}`, `{` + gvk + `,"metadata":{},"spec":{}}`,
			`add /metadata/annotations {"k8s4r.io/actions":"` + old + `"}`},
		{"a forged record in an update", `{` + gvk + `,"metadata":{},"spec":{}}`, `{` + gvk + `,"metadata":{"annotations":{"k8s4r.io/actions":"` + old + `"}},"spec":{}}`,
			`remove /metadata/annotations null`},
		{"nothing", `{` + gvk + `,"metadata":{},"spec":{}}`, `{` + gvk + `,"metadata":{"managedFields":[]},"spec":{}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			operation := admissionapi.Update
			if c.before == "" {
				operation = admissionapi.Create
			}
			got := newActionHandler(&memory{}).handleChange(t.Context(), newRequest(operation, "robot.k8s4r.io", "jobs", c.before, c.after))
			if text := printPatches(t, got); !got.Allowed || text != c.want {
				t.Errorf("allowed %v\n%s\nwant\n%s", got.Allowed, text, c.want)
			}
		})
	}
	if got := newActionHandler(&memory{}).handleChange(t.Context(), newRequest(admissionapi.Create, "robot.k8s4r.io", "jobs", "", "{")); got.Allowed {
		t.Error("an object that cannot be decoded was allowed")
	}
}

func TestActions_RecordsDeletionsInTheArchive(t *testing.T) {
	m := &memory{}
	h := newActionHandler(m)
	deletion := newRequest(admissionapi.Delete, "robot.k8s4r.io", "jobs", `{"apiVersion":"robot.k8s4r.io/v1alpha1","kind":"Job","metadata":{"uid":"u"}}`, "")
	command := newRequest(admissionapi.Create, "bus.volcano.sh", "commands", "", `{"action":"AbortJob","target":{"name":"vj","uid":"vu"}}`)
	dry := deletion
	dry.DryRun = ptr.To(true)
	for _, r := range []admission.Request{deletion, command, dry, newRequest(admissionapi.Delete, "", "pods", "", "")} {
		if got := h.handleDeletion(t.Context(), r); !got.Allowed {
			t.Errorf("%+v", got)
		}
	}
	want := []archive.Action{
		{ID: "delete u anna", At: noon, User: "anna", Verb: "delete", Kind: archive.Job, Namespace: "n", NamespaceUID: "nu", Name: "j", UID: "u", Did: "delete"},
		{ID: "id", At: noon, User: "anna", Verb: "create", Kind: archive.VCJob, Namespace: "n", NamespaceUID: "nu", Name: "vj", UID: "vu", Did: "abort"},
	}
	if len(m.all) != 2 || m.all[0] != want[0] || m.all[1] != want[1] {
		t.Errorf("%+v\nwant %+v", m.all, want)
	}
	m.down = true
	if got := h.handleDeletion(t.Context(), deletion); !got.Allowed {
		t.Error("a deletion was refused because the archive is down")
	}
	if got := (&actionHandler{}).handleDeletion(t.Context(), deletion); !got.Allowed {
		t.Error("a deletion was refused because there is no archive")
	}
}
