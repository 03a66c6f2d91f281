// Package plan has the request and the answer of the plan API of the manager: what would follow if an object was
// applied (docs/how-to/plan-a-change.md). It links no controller, so that the command line can use it.
package plan

// Path is the path of the API. A request is a POST of the object as JSON, as a dry run of the API server
// returned it.
const Path = "/v1/plan"

// The bounds of a request and of its answer.
const (
	// MaxRequestBytes is the size of the largest object. The API server stores none that is larger.
	MaxRequestBytes = 2 << 20
	// MaxListed is how many tasks a list names. Further ones are counted.
	MaxListed = 200
)

// Action is what applying does with an object.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	None   Action = "none"
)

// Plan is what would follow if an object was applied.
type Plan struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Action    Action `json:"action"`
	// Revision is the number of the revision that the change makes. 0: it makes none.
	Revision int64 `json:"revision,omitempty"`
	// TaskGroups are those of a Job, in the order of its spec. Groups for which nothing follows have the action none.
	TaskGroups []Group `json:"taskGroups,omitempty"`
	// HiddenRobots is how many robots of the plan the caller may not read. They have no name in it.
	HiddenRobots int `json:"hiddenRobots,omitempty"`
	// Notes are sentences for people.
	Notes []string `json:"notes,omitempty"`
}

// Group is what follows for a task group.
type Group struct {
	Name   string `json:"name"`
	Action Action `json:"action"`
	// Create are the tasks that are created. Those without a robot wait for one, or are given one when they exist.
	Create *List `json:"create,omitempty"`
	// CreateLater is how many more tasks are created once others have ended.
	CreateLater int `json:"createLater,omitempty"`
	// ChangeInPlace are waiting tasks that get the new definition.
	ChangeInPlace *List `json:"changeInPlace,omitempty"`
	// Restart are running tasks that are evicted, and start again with the new definition.
	Restart *Restart `json:"restart,omitempty"`
	// Stop are tasks that are no longer wanted.
	Stop *List `json:"stop,omitempty"`
	// OutOfReach are tasks that change or stop only when their robots are in contact again.
	OutOfReach *List `json:"outOfReach,omitempty"`
	// NoRoom is why tasks of Create have no robot.
	NoRoom []NoRoom `json:"noRoom,omitempty"`
	// Defect is why tasks of the definition cannot exist. Empty: they can.
	Defect string `json:"defect,omitempty"`
}

// List is a number of tasks, with the names of the first MaxListed ones.
type List struct {
	Total int `json:"total"`
	// Tasks is empty if the caller may not list tasks that exist.
	Tasks []Task `json:"tasks,omitempty"`
}

// Task is a task of a plan.
type Task struct {
	Name string `json:"name"`
	// Robot that runs the task, or would get it now. Empty: none, or the caller may not read it.
	Robot string `json:"robot,omitempty"`
	// RobotHidden is true if there is a robot which the caller may not read.
	RobotHidden bool `json:"robotHidden,omitempty"`
	// Indexes of an array that the task runs, such as 0-99.
	Indexes string `json:"indexes,omitempty"`
}

// Restart is how tasks are restarted.
type Restart struct {
	Total int `json:"total"`
	// MaxParallel is how many replicas are restarted at a time.
	MaxParallel int `json:"maxParallel"`
	// MinHealthySeconds is how long each replica must run before the next one is restarted.
	MinHealthySeconds int64 `json:"minHealthySeconds"`
	// Steps are the tasks in their order. Those of a step are restarted together.
	Steps []List `json:"steps,omitempty"`
}

// NoRoom is why tasks have no robot.
type NoRoom struct {
	Tasks int `json:"tasks"`
	// Reason is a text as `k8s4r why` prints it.
	Reason string `json:"reason"`
	// Preempts are the names of tasks of lower priority that would be evicted to make room. PreemptsTotal counts also
	// those that the caller may not read.
	Preempts      []string `json:"preempts,omitempty"`
	PreemptsTotal int      `json:"preemptsTotal,omitempty"`
}

// HasChanges reports whether applying the object changes anything.
func (p *Plan) HasChanges() bool { return p.Action != None }
