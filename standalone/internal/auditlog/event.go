package auditlog

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/core/actions"
)

// event is the part of an audit event of the API server that makes an action.
type event struct {
	AuditID                  string
	Stage                    string
	Verb                     string
	RequestURI               string
	User                     struct{ Username string }
	ImpersonatedUser         *struct{ Username string }
	ObjectRef                *objectRef
	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp time.Time
	Annotations              map[string]string
}

type objectRef struct {
	Resource, APIGroup, Subresource string
	Namespace, Name, UID            string
}

// Annotations of the policy k8s4r-actions in config/admission/actions.yaml.
const (
	annotationObject    = "k8s4r-actions/object"    // name and UID
	annotationNamespace = "k8s4r-actions/namespace" // UID
	annotationChanges   = "k8s4r-actions/changes"
	annotationDryRun    = "k8s4r-actions/dryRun" // "true" or "false"
	changeCommand       = "command="
)

// ownUsers are our programs. What they do follows from what users did.
var ownUsers = []string{
	ProcessUser,
	"system:serviceaccount:k8s4r-system:k8s4r-manager",
	"system:serviceaccount:k8s4r-system:k8s4r-server",
	"system:serviceaccount:k8s4r-system:k8s4r-console",
	"system:serviceaccount:k8s4r-system:k8s4r-node",
}

var recordedVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// commands is the resource of requests to Jobs of batch.volcano.sh.
var commands = schema.GroupResource{Group: "bus.volcano.sh", Resource: "commands"}

// beginning of each event. After a kill, a line may begin with the incomplete event before it.
var beginning = []byte(`{"kind":"Event"`)

// parseAction returns the action of a line of the log. ok is false if the line holds none, or is no event.
func parseAction(line []byte) (a archive.Action, ok bool) {
	if i := bytes.LastIndex(line, beginning); i > 0 {
		line = line[i:]
	}
	var e event
	if json.Unmarshal(line, &e) != nil || e.AuditID == "" || e.Stage != "ResponseComplete" && e.Stage != "Panic" {
		return a, false
	}
	if e.ObjectRef == nil || !slices.Contains(recordedVerbs, e.Verb) || slices.Contains(ownUsers, e.effectiveUser()) || e.isDryRun() {
		return a, false
	}
	return e.toAction()
}

// effectiveUser returns the user as whom the request was authorized.
func (e *event) effectiveUser() string {
	if e.ImpersonatedUser != nil {
		return e.ImpersonatedUser.Username
	}
	return e.User.Username
}

// changes returns what the request changes, if admission has seen it.
func (e *event) changes() []string {
	text := e.Annotations[annotationChanges]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// isDryRun reports whether the request changed nothing because it asked for that. For a deletion its URL does
// not show it: the API server ignores it if the request has a body.
func (e *event) isDryRun() bool {
	if e.Annotations[annotationDryRun] == "true" {
		return true
	}
	u, err := url.ParseRequestURI(e.RequestURI)
	return err == nil && !strings.HasPrefix(e.Verb, "delete") && u.Query().Get("dryRun") != ""
}

func (e *event) toAction() (a archive.Action, ok bool) {
	o := e.ObjectRef
	resource := schema.GroupResource{Group: o.APIGroup, Resource: o.Resource}
	all := e.changes()
	a = archive.Action{
		ID: e.AuditID, At: e.RequestReceivedTimestamp, User: e.effectiveUser(), Verb: e.Verb, Namespace: o.Namespace,
		NamespaceUID: e.Annotations[annotationNamespace], Name: o.Name, UID: o.UID, Did: actions.Describe(e.Verb, all), Code: e.ResponseStatus.Code,
	}
	if e.ImpersonatedUser != nil && e.User.Username != ProcessUser {
		a.Impersonator = e.User.Username
	}
	if name, uid, found := strings.Cut(e.Annotations[annotationObject], " "); found && e.Verb != "deletecollection" {
		a.Name, a.UID = name, uid
	}
	switch {
	case o.Subresource != "":
		a.Did = e.Verb + " " + o.Subresource
	case a.Code == http.StatusCreated:
		a.Did = "create" // also by a patch
	}
	if resource == commands {
		return a, describeCommand(&a, all)
	}
	a.Kind, ok = archive.ActionKind(resource)
	return a, ok
}

// describeCommand makes the creation of a Command an action on its Job. It returns false if admission has
// not seen the Command.
func describeCommand(a *archive.Action, changes []string) bool {
	for _, c := range changes {
		if action, found := strings.CutPrefix(c, changeCommand); found && a.Verb == "create" {
			a.Kind, a.Did = archive.VCJob, actions.DescribeCommand(action)
			return true
		}
	}
	return false
}
