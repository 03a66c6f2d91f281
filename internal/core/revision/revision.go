// Package revision tells Tasks that are what their TaskGroup asks for from those
// of an older definition.
package revision

import (
	"encoding/json"
	"hash/fnv"
	"strconv"

	"k8s.io/apimachinery/pkg/util/rand"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
)

// content is what a Task takes from its group.
type content struct {
	*v1alpha1.TaskDefinition
	Constraints   []v1alpha1.Constraint   `json:"constraints,omitempty"`
	RestartPolicy *v1alpha1.RestartPolicy `json:"restartPolicy,omitempty"`
	Holds         *v1alpha1.Resources     `json:"holds,omitempty"`
	// After is the revision of the init task before it: what that has prepared is for
	// nobody else.
	After string                  `json:"after,omitempty"`
	Disk  *v1alpha1.EphemeralDisk `json:"ephemeralDisk,omitempty"`
}

// Wanted are the revisions of a group's Tasks, by the name of the task.
func Wanted(g *v1alpha1.TaskGroupTemplate) map[string]string {
	all := make(map[string]string, g.Size())
	holds, after := demand.Holds(g), ""
	for i, def := range g.Definitions() {
		all[def.Name] = content{def, g.Constraints, g.RestartPolicy, holds[def.Name], after, g.EphemeralDisk}.hash()
		if i < len(g.InitTasks) {
			after = all[def.Name]
		}
	}
	return all
}

// Of a Task that exists. One that carries none was made before there were
// revisions: what it says tells.
func Of(t *v1alpha1.Task) string {
	if r := t.Labels[v1alpha1.LabelRevision]; r != "" {
		return r
	}
	return content{TaskDefinition: &t.Spec.TaskDefinition, Constraints: t.Spec.Constraints, RestartPolicy: t.Spec.RestartPolicy}.hash()
}

// hash is fit for a label.
func (c content) hash() string {
	h := fnv.New64a()
	b, err := json.Marshal(c)
	if err != nil {
		// What came as JSON goes as JSON; and if not, it is equal only to itself.
		b = []byte(err.Error())
	}
	h.Write(b)
	return rand.SafeEncodeString(strconv.FormatUint(h.Sum64(), 10))
}
