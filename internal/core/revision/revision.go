// Package revision computes hashes of task definitions, by which Tasks with the current
// definition of their TaskGroup are distinguished from outdated ones.
package revision

import (
	"encoding/json"
	"hash/fnv"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
)

// content holds everything that a Task takes from its group.
type content struct {
	*v1alpha1.TaskDefinition
	Constraints    []v1alpha1.Constraint   `json:"constraints,omitempty"`
	RestartPolicy  *v1alpha1.RestartPolicy `json:"restartPolicy,omitempty"`
	ExtraResources *v1alpha1.Resources     `json:"holds,omitempty"` // the old name of the field, so that hashes stay the same
	// After is the revision of the preceding init task, whose result the Task uses.
	After string                  `json:"after,omitempty"`
	Disk  *v1alpha1.EphemeralDisk `json:"ephemeralDisk,omitempty"`
}

// TaskRevisions returns the revisions of a group's Tasks, by task name.
func TaskRevisions(g *v1alpha1.TaskGroupTemplate) map[string]string {
	all := make(map[string]string, g.TasksPerReplica())
	extra, after := apiconv.ExtraResources(g), ""
	for i, def := range g.TaskDefinitions() {
		all[def.Name] = content{def, g.Constraints, g.RestartPolicy, extra[def.Name], after, g.EphemeralDisk}.hashLabel()
		if i < len(g.InitTasks) {
			after = all[def.Name]
		}
	}
	return all
}

// TaskRevision returns the revision of an existing Task: the value of its label, or the hash of
// its spec if it was created before there was a label.
func TaskRevision(t *v1alpha1.Task) string {
	if r := t.Labels[v1alpha1.LabelRevision]; r != "" {
		return r
	}
	return content{TaskDefinition: &t.Spec.TaskDefinition, Constraints: t.Spec.Constraints, RestartPolicy: t.Spec.RestartPolicy}.hashLabel()
}

// hashLabel returns the hash as a label value.
func (c content) hashLabel() string {
	h := fnv.New64a()
	b, err := json.Marshal(c)
	if err != nil {
		// Cannot happen for API types. The error text still makes a stable hash.
		b = []byte(err.Error())
	}
	h.Write(b)
	return rand.SafeEncodeString(strconv.FormatUint(h.Sum64(), 10))
}

// RevisedAt returns when a Task got its revision.
func RevisedAt(t *v1alpha1.Task) time.Time {
	if at, err := time.Parse(time.RFC3339, t.Annotations[v1alpha1.AnnotationRevisedAt]); err == nil {
		return at
	}
	return t.CreationTimestamp.Time
}
