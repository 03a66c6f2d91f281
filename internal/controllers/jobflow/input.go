package jobflow

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
)

// Input is everything that a plan for one flow depends on.
type Input struct {
	Flow  *flowv1.JobFlow
	Graph *Graph
	// Jobs are the existing Jobs that the flow controls, by UID.
	Jobs map[types.UID]*Job
	// DeletedJobs are deleted Jobs of the flow with their last seen state.
	DeletedJobs map[types.UID]*Job
	// MissingSince holds since when Jobs of the status are missing on the API server
	// without a delete event, by recordedJob.key.
	MissingSince map[types.UID]time.Time
	// Creating names the Jobs that were created and that the cache does not show yet.
	Creating map[string]bool
	// TakenNames are names of Jobs that belong to other owners.
	TakenNames map[string]bool
	// Rejected holds the API server's message for each step whose Job it rejected.
	Rejected map[string]string
	// Templates are the templates that exist, of those in RequiredTemplates.
	Templates map[TemplateKey]*Template
	// Outputs of ended Jobs, by UID. Jobs that are not in here were not read yet.
	Outputs map[types.UID]stepjob.Outputs
	// Probes are the latest results of probes, by step.
	Probes map[string]probe.Result
	// StopRequestedAt holds when each Job was last asked to stop.
	StopRequestedAt map[types.UID]time.Time
	// LastStatusWrite is the time of the last status write.
	LastStatusWrite time.Time
	// Archives keeps an ended flow and its Jobs until the archive has it.
	Archives bool
}

// Kind is the kind of a step's Job, named by the API group of its template.
type Kind string

// Kinds of Jobs.
const (
	Pods   Kind = flowv1.TemplateGroupPods
	Robots Kind = flowv1.TemplateGroupRobots
)

// TemplateKey names a template in the flow's namespace.
type TemplateKey struct {
	Kind Kind
	Name string
}

// Template is a template of either kind; one field is set.
type Template struct {
	Pods   *flowv1.JobTemplate
	Robots *robotv1.JobTemplate
}

// Job is the state of a Job of either kind, in terms of a pod job.
type Job struct {
	Kind     Kind
	Name     string
	UID      types.UID
	Phase    batchv1.JobPhase
	Created  metav1.Time
	Duration *metav1.Duration
	Restarts int32
	Counts   map[string]batchv1.TaskState
	// Tasks are the task names of a pod job.
	Tasks []string
	// Deleting reports whether the Job has a deletion timestamp.
	Deleting bool
}

// hasEnded reports whether the Job has ended.
func (j *Job) hasEnded() bool { return flowv1.HasEnded(j.Phase) }

// Actions is what apply writes after one Plan.
type Actions struct {
	Create []Create
	Delete []Delete
	Stop   []*Job
	// ProbeTargets are the probes to run from now on, by step.
	ProbeTargets map[string]probe.Target
	// Status to write. Nil if unchanged.
	Status *flowv1.JobFlowStatus
	// DeleteFlow deletes the flow, because its time to live has passed.
	DeleteFlow bool
	// RequeueAt is the time to reconcile again. Zero: wait for the next watch event.
	RequeueAt time.Time
	// Events to record once the status is written.
	Events []Event
	// EndedPhase is Succeed or Failed if this status is to be counted in the metrics, else
	// empty.
	EndedPhase flowv1.Phase
	// Reasons has one line per decision, for the log.
	Reasons []string
}

// Create is a Job to create for a step; either Pods or Robots is set.
type Create struct {
	Step   string
	Pods   *batchv1.Job
	Robots *robotv1.Job
}

// Delete is a Job to delete.
type Delete struct {
	*Job
	// Foreground waits until the Job's dependents are deleted, so that the next Job of its
	// name does not run beside them.
	Foreground bool
}

// Event is recorded on the flow.
type Event struct {
	Warning         bool
	Reason, Message string
	// Job of the step that the event is about. Empty if it is about the flow.
	Job string
}
