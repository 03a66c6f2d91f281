package actions

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
)

// valueFields are the fields of a spec whose new value says what a user wants. Other fields are named
// only, because their values may be long or confidential.
var valueFields = []string{"desiredState", "suspend", "cancel", "unschedulable", "drain", "priority"}

// metadataFields are the fields of an object's metadata that users change.
var metadataFields = []string{"labels", "annotations", "finalizers", "ownerReferences"}

// annotationApproved is the annotation of approved robots without a key.
const annotationApproved = "robot.k8s4r.io/approved"

// ListChanges returns what an update changes: names of fields of the spec, with the new values of some,
// and of the metadata. ignored are annotations that do not count. The admission policy in
// config/admission/actions.yaml computes the same for the audit log.
func ListChanges(before, after map[string]any, ignored ...string) []string {
	was, is := mapAt(before, "spec"), mapAt(after, "spec")
	var all []string
	for k, v := range is {
		if !reflect.DeepEqual(was[k], v) {
			all = append(all, changeOf(k, v))
		}
	}
	for k := range was {
		if _, has := is[k]; !has {
			all = append(all, changeOf(k, nil))
		}
	}
	wasMeta, isMeta := mapAt(before, "metadata"), mapAt(after, "metadata")
	for _, k := range metadataFields {
		if !reflect.DeepEqual(without(wasMeta[k], ignored), without(isMeta[k], ignored)) {
			all = append(all, "metadata."+k)
		}
	}
	if mapAt(wasMeta, "annotations")[annotationApproved] != mapAt(isMeta, "annotations")[annotationApproved] {
		all = append(all, "approved")
	}
	sort.Strings(all)
	return all
}

func mapAt(m map[string]any, field string) map[string]any {
	inner, _ := m[field].(map[string]any)
	return inner
}

// without returns a map without some keys. A map without any is nil. Other values stay as they are.
func without(v any, keys []string) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for k, v := range m {
		if !slices.Contains(keys, k) {
			out[k] = v
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// changeOf returns the change of a field to a value. nil: the field was removed.
func changeOf(field string, v any) string {
	switch {
	case field == "identity" && mapAt(map[string]any{field: v}, field)["revoked"] == true:
		return "identity=revoked"
	case field == "identity":
		return "identity=approved"
	case v != nil && slices.Contains(valueFields, field):
		return fmt.Sprintf("%s=%v", field, v)
	}
	return field
}

// meanings of changes, the most important first. An update is called by the first that it has.
var meanings = []struct{ change, meaning string }{
	{"identity=revoked", "revoke"},
	{"identity=approved", "approve"},
	{"approved", "approve"},
	{"unlockMaintenance", "unlock"},
	{"requeue", "requeue"},
	{"retry", "retry"},
	{"cancel=true", "cancel"},
	{"desiredState=canceled", "cancel"},
	{"desiredState=paused", "pause"},
	{"desiredState=running", "resume"},
	{"desiredState", "resume"},
	{"suspend=true", "suspend"},
	{"suspend=false", "resume"},
	{"suspend", "resume"},
	{"drain=true", "drain"},
	{"unschedulable=true", "cordon"},
	{"drain=false", "uncordon"},
	{"drain", "uncordon"},
	{"unschedulable=false", "uncordon"},
	{"unschedulable", "uncordon"},
}

// maxDescription bounds a description, in bytes.
const maxDescription = 200

// Describe returns what a request asked for: for an update the action of its most important change, such
// as pause, or the fields that it changes; for other requests the verb.
func Describe(verb string, changes []string) string {
	if verb != "update" && verb != "patch" {
		return verb
	}
	for _, m := range meanings {
		if slices.Contains(changes, m.change) {
			return m.meaning
		}
	}
	if len(changes) == 0 {
		return verb
	}
	text := "change " + strings.Join(changes, ", ")
	if len(text) > maxDescription {
		text = strings.ToValidUTF8(text[:maxDescription-3], "") + "..."
	}
	return text
}

// commands are the actions of Commands of bus.volcano.sh that have a plain name.
var commands = map[string]string{
	"AbortJob": "abort", "ResumeJob": "resume", "TerminateJob": "terminate", "RestartJob": "restart", "CompleteJob": "complete",
}

// DescribeCommand returns what a Command of bus.volcano.sh asks of its Job.
func DescribeCommand(action string) string {
	if plain, ok := commands[action]; ok {
		return plain
	}
	return "command " + action[:min(len(action), maxDescription)]
}
