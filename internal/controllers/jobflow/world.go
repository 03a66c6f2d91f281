package jobflow

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
)

// World is all that a decision about one flow depends on.
type World struct {
	Flow  *flowv1.JobFlow
	Graph *Graph
	// Jobs that exist and belong to the flow, by UID.
	Jobs map[types.UID]*Job
	// Gone are Jobs of the flow that were deleted, as they were seen last.
	Gone map[types.UID]*Job
	// Missing are Jobs that the status knows, that do not exist and of which no last
	// word has come, with the time since when.
	Missing map[types.UID]time.Time
	// Creating names the Jobs that were created and do not show yet.
	Creating map[string]bool
	// Taken names Jobs that belong to somebody else.
	Taken map[string]bool
	// Refused are the steps whose Job the API server did not take, and why.
	Refused map[string]string
	// Templates that exist.
	Templates map[TemplateKey]*Template
	// Outputs of Jobs that have ended, by UID. One that is not here has not been
	// read yet.
	Outputs map[types.UID]map[string]string
	// Probes are the last results, by step.
	Probes map[string]probe.Result
	// Stopped is when each Job was last asked to stop.
	Stopped map[types.UID]time.Time
	// LastStatus is when the status was last written.
	LastStatus time.Time
	// Archives: the manager keeps an archive, and a flow that has ended stays with its
	// Jobs until it is in there.
	Archives bool
}

// Kind of a step's Job.
type Kind string

// The kinds of Jobs, by the group of their templates.
const (
	Pods   Kind = flowv1.TemplateGroupPods
	Robots Kind = flowv1.TemplateGroupRobots
)

// TemplateKey names a template in the flow's namespace.
type TemplateKey struct {
	Kind Kind
	Name string
}

// Template is one of both kinds.
type Template struct {
	Pods   *flowv1.JobTemplate
	Robots *robotv1.JobTemplate
}

// Job is what a flow sees of a Job, in the words of a vcjob.
type Job struct {
	Kind     Kind
	Name     string
	UID      types.UID
	Phase    batchv1.JobPhase
	Created  metav1.Time
	Duration *metav1.Duration
	Restarts int32
	Counts   map[string]batchv1.TaskState
	// Tasks are the names of the tasks of a Job of pods.
	Tasks []string
	// Deleting: it goes as soon as what belongs to it has gone.
	Deleting bool
}

// ended tells whether the Job does nothing more.
func (j *Job) ended() bool { return flowv1.Ended(j.Phase) }

// Steps is what to do, and when to look again.
type Steps struct {
	// Create are the Jobs to make.
	Create []Create
	// Delete are the Jobs to delete.
	Delete []Delete
	// Stop are the Jobs to call off.
	Stop []*Job
	// Probe is what to ask for which steps, from now on.
	Probe map[string]probe.Target
	// Status to write. Nil: as it is.
	Status *flowv1.JobFlowStatus
	// Remove the flow, because its time to live is over.
	Remove bool
	// WakeAt is when to look again. Zero: a watch will wake us.
	WakeAt time.Time
	// Events to report once the status is written.
	Events []Event
	// Ended is the phase that the flow has come to with this status, to be counted.
	// Empty: none.
	Ended flowv1.Phase
	// Why has one line for each decision.
	Why []string
}

// Create is a Job to make for a step.
type Create struct {
	Step string
	// One of them is set.
	Pods   *batchv1.Job
	Robots *robotv1.Job
}

// Delete is a Job to delete.
type Delete struct {
	*Job
	// Whole waits until what belongs to the Job has gone, so that the next of its
	// name does not run beside it.
	Whole bool
}

// Event for people.
type Event struct {
	Warning      bool
	Reason, Note string
	// Job of the step that it is about. Empty: it is about the flow.
	Job string
}
