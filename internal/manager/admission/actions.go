package admission

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionapi "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/core/actions"
)

// The paths of the registrations in config/webhook/actions.yaml.
const (
	pathChange   = "/actions/change"
	pathDeletion = "/actions/deletion"
)

// recordTimeout bounds how long a deletion waits for the archive.
const recordTimeout = 2 * time.Second

// ActionRecorder stores what users did.
type ActionRecorder interface {
	RecordActions(ctx context.Context, all []archive.Action, position *archive.AuditPosition) error
}

// actionHandler records who changes and deletes objects. It refuses nothing.
type actionHandler struct {
	archive    ActionRecorder // nil without an archive
	namespaces client.Reader
	now        func() time.Time
	log        logr.Logger
}

// handleChange records a create or update in the annotation of the object, whatever the client has written
// into it. The record becomes part of the object, and so exists exactly if the request succeeds.
func (h *actionHandler) handleChange(_ context.Context, r admission.Request) admission.Response {
	after, err := decodeObject(r.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	before, err := decodeObject(r.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	records := before.GetAnnotations()[actions.AnnotationRecords]
	changes := []string{}
	if r.Operation == admissionapi.Update {
		changes = actions.ListChanges(before.Object, after.Object, actions.AnnotationRecords)
	}
	if r.Operation == admissionapi.Create || len(changes) > 0 {
		records = actions.AppendRecord(records, actions.Record{
			At: h.now(), ID: string(r.UID), Verb: strings.ToLower(string(r.Operation)), Changes: changes, User: r.UserInfo.Username,
		})
	}
	if after.GetAnnotations()[actions.AnnotationRecords] == records {
		return admission.Allowed("")
	}
	setRecords(after, records)
	changed, err := after.MarshalJSON()
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(r.Object.Raw, changed)
}

// setRecords sets the annotation. If records is empty, it removes it.
func setRecords(o *unstructured.Unstructured, records string) {
	all := o.GetAnnotations()
	switch {
	case records != "" && all == nil:
		all = map[string]string{actions.AnnotationRecords: records}
	case records != "":
		all[actions.AnnotationRecords] = records
	case len(all) == 1:
		all = nil
	default:
		delete(all, actions.AnnotationRecords)
	}
	o.SetAnnotations(all)
}

// decodeObject returns an empty object for no text.
func decodeObject(raw []byte) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	if len(raw) == 0 {
		return o, nil
	}
	return o, o.UnmarshalJSON(raw)
}

// handleDeletion records the deletion of an object, or the creation of a Command, in the archive: neither
// leaves an object with an annotation. The request may still fail after that.
func (h *actionHandler) handleDeletion(ctx context.Context, r admission.Request) admission.Response {
	if h.archive == nil || r.DryRun != nil && *r.DryRun {
		return admission.Allowed("")
	}
	a, ok, err := h.newAction(r)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !ok {
		return admission.Allowed("")
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := h.namespaces.Get(ctx, client.ObjectKey{Name: r.Namespace}, ns); err == nil {
		a.NamespaceUID = string(ns.UID) // otherwise only users of all namespaces see the action
	}
	if err := h.archive.RecordActions(ctx, []archive.Action{a}, nil); err != nil {
		h.log.Error(err, "cannot record an action of a user", "user", a.User, "action", a.Did, "kind", a.Kind, "namespace", a.Namespace, "name", a.Name)
	}
	return admission.Allowed("")
}

// newAction returns the action of a request. ok is false for a kind that is not recorded.
func (h *actionHandler) newAction(r admission.Request) (a archive.Action, ok bool, err error) {
	a = archive.Action{ID: string(r.UID), At: h.now(), User: r.UserInfo.Username, Verb: strings.ToLower(string(r.Operation)), Namespace: r.Namespace}
	resource := schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
	if resource == commands {
		var c busv1.Command
		if err := json.Unmarshal(r.Object.Raw, &c); err != nil || c.TargetObject == nil {
			return a, false, err
		}
		a.Kind, a.Name, a.UID, a.Did = archive.VCJob, c.TargetObject.Name, string(c.TargetObject.UID), actions.DescribeCommand(c.Action)
		return a, true, nil
	}
	old, err := decodeObject(r.OldObject.Raw)
	if err != nil {
		return a, false, err
	}
	a.Name, a.UID, a.Did = r.Name, string(old.GetUID()), a.Verb
	// The API server asks again, with another UID, if the object changes before it is deleted.
	a.ID = strings.Join([]string{a.Verb, a.UID, a.User}, " ")
	a.Kind, ok = archive.ActionKind(resource)
	return a, ok, nil
}

// commands is the resource of requests to Jobs of batch.volcano.sh.
var commands = busv1.GroupVersion.WithResource("commands").GroupResource()
