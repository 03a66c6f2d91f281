// Package jobrevision stores the definitions of a Job in ControllerRevisions, and reads them.
package jobrevision

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// JobContent is what a revision of a Job stores: what its tasks run, with their meta, because commands contain
// it. Admission has checked both together. Counts, placement and everything else that can change while tasks
// run is not part of it.
type JobContent struct {
	TaskGroups []GroupContent `json:"taskGroups"`
}

// GroupContent is the part of a revision that is of one group. revision.TaskRevisions hashes the same fields, besides
// Meta: a change of meta alone changes no running task.
type GroupContent struct {
	Name          string                    `json:"name"`
	InitTasks     []v1alpha1.TaskDefinition `json:"initTasks,omitempty"`
	Tasks         []v1alpha1.TaskDefinition `json:"tasks"`
	Constraints   []v1alpha1.Constraint     `json:"constraints,omitempty"`
	RestartPolicy *v1alpha1.RestartPolicy   `json:"restartPolicy,omitempty"`
	EphemeralDisk *v1alpha1.EphemeralDisk   `json:"ephemeralDisk,omitempty"`
	// Meta is that of the Job, overridden by that of the group.
	Meta map[string]string `json:"meta,omitempty"`
}

// ContentOf returns the content of a Job's definition. It shares memory with spec.
func ContentOf(spec *v1alpha1.JobSpec) JobContent {
	c := JobContent{TaskGroups: make([]GroupContent, len(spec.TaskGroups))}
	for i := range spec.TaskGroups {
		g := &spec.TaskGroups[i]
		c.TaskGroups[i] = GroupContent{g.Name, g.InitTasks, g.Tasks, g.Constraints, g.RestartPolicy, g.EphemeralDisk, MergeMeta(spec.Meta, g.Meta)}
	}
	return c
}

// MergeMeta returns the meta of a Job, overridden by that of a group. Nil if both are empty.
func MergeMeta(job, group map[string]string) map[string]string {
	if len(job)+len(group) == 0 {
		return nil
	}
	all := make(map[string]string, len(job)+len(group))
	maps.Copy(all, job)
	maps.Copy(all, group)
	return all
}

// FindGroup returns the content of a group, and nil if the revision has none of this name.
func (c *JobContent) FindGroup(name string) *GroupContent {
	for i := range c.TaskGroups {
		if c.TaskGroups[i].Name == name {
			return &c.TaskGroups[i]
		}
	}
	return nil
}

// ApplyTo sets the content on a group, and leaves its other fields alone.
func (g *GroupContent) ApplyTo(t *v1alpha1.TaskGroupTemplate) {
	own := (&v1alpha1.TaskGroupTemplate{
		InitTasks: g.InitTasks, Tasks: g.Tasks, Constraints: g.Constraints, RestartPolicy: g.RestartPolicy, EphemeralDisk: g.EphemeralDisk,
		Meta: g.Meta,
	}).DeepCopy()
	t.InitTasks, t.Tasks, t.Constraints = own.InitTasks, own.Tasks, own.Constraints
	t.RestartPolicy, t.EphemeralDisk, t.Meta = own.RestartPolicy, own.EphemeralDisk, own.Meta
}

// IsOfJob reports whether an object is a revision of a Job. Its owner must be of that kind: only the manager
// may write such an owner (config/admission/jobs.yaml).
func IsOfJob(r metav1.Object, j *v1alpha1.Job) bool {
	owner := metav1.GetControllerOf(r)
	return owner != nil && owner.UID == j.UID && owner.Kind == "Job" && owner.APIVersion == v1alpha1.GroupVersion.String()
}

// Encode returns the content as the data of a ControllerRevision.
func (c JobContent) Encode() ([]byte, error) { return json.Marshal(c) }

// Decode returns the content that a ControllerRevision stores.
func Decode(r *appsv1.ControllerRevision) (JobContent, error) {
	var c JobContent
	if err := json.Unmarshal(r.Data.Raw, &c); err != nil {
		return JobContent{}, fmt.Errorf("revision %s: %w", r.Name, err)
	}
	return c, nil
}

// HashData returns the hash of encoded content, which may be part of a name.
func HashData(data []byte) string {
	h := fnv.New64a()
	h.Write(data)
	return rand.SafeEncodeString(strconv.FormatUint(h.Sum64(), 10))
}

// KeepsRevisions reports whether a Job of this type has revisions. The tasks of a batch Job are not changed
// in waves.
func KeepsRevisions(jobType string) bool {
	switch jobType {
	case v1alpha1.JobTypeService, v1alpha1.JobTypeSystem, v1alpha1.TaskTypeSysbatch:
		return true
	}
	return false
}
