package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/events"
	"k8s4r.io/k8s4r/internal/events/row"
	"k8s4r.io/k8s4r/internal/logquery"
)

// nameIn names one object.
type nameIn struct {
	Kind      row.Kind `path:"kind"`
	Namespace string   `path:"namespace"`
	Name      string   `path:"name"`
	UID       string   `query:"uid" doc:"Of the object that is meant; empty: the one that bears the name, or bore it last"`
}

// details of one object.
type details struct {
	Row *row.Row `json:"row"`
	// Object is the whole manifest, without managedFields.
	Object     any         `json:"object"`
	Archived   bool        `json:"archived"`
	Conditions []condition `json:"conditions"`
	// Attempts of a task.
	Attempts []attempt `json:"attempts,omitempty"`
	// Children by kind.
	Children []children `json:"children"`
	// Why it waits, or how it ended, in sentences.
	Why []string `json:"why"`
	// Actions that make sense now.
	Actions []action `json:"actions"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Time since which it is so. Nil: unknown.
	Time *metav1.MicroTime `json:"time,omitempty"`
}

type children struct {
	Kind  row.Kind         `json:"kind"`
	Count int              `json:"count"`
	Tones map[row.Tone]int `json:"tones"`
}

// attempt is one run of a task, or the try of one.
type attempt struct {
	Task      string            `json:"task"`
	Namespace string            `json:"namespace"`
	Job       string            `json:"job,omitempty"`
	Step      string            `json:"step,omitempty"`
	Number    int64             `json:"number"`
	Robot     string            `json:"robot,omitempty"`
	State     string            `json:"state"`
	Tone      row.Tone          `json:"tone"`
	Reason    string            `json:"reason,omitempty"`
	ExitCode  *int64            `json:"exitCode,omitempty"`
	Signal    int64             `json:"signal,omitempty"`
	Started   *metav1.MicroTime `json:"started,omitempty"`
	Finished  *metav1.MicroTime `json:"finished,omitempty"`
	// Log is the path of its log at the log API.
	Log string `json:"log,omitempty"`
}

func (s *Server) object(ctx context.Context, in *nameIn) (*details, error) {
	k := in.Kind
	if err := s.require(ctx, "get", k, in.Namespace, in.Name); err != nil {
		return nil, err
	}
	if i := s.world.Get(k, in.Namespace, in.Name); i != nil && (in.UID == "" || in.UID == i.Row.UID) {
		return s.liveDetails(i), nil
	}
	o, err := s.remembered(ctx, in)
	if err != nil {
		return nil, err
	}
	out := &details{Row: archivedRow(o), Object: o.Manifest, Archived: true, Children: []children{}, Actions: []action{}, Conditions: conditionsOf(o.Manifest)}
	out.Why = sentences(out.Row)
	for i := range o.Attempts {
		out.Attempts = append(out.Attempts, archivedAttempt(&o.Attempts[i]))
	}
	return out, nil
}

// remembered is what the archive has of an object.
func (s *Server) remembered(ctx context.Context, in *nameIn) (*archive.Object, error) {
	is := kinds[in.Kind]
	missing := apierrors.NewNotFound(is.version.WithResource(is.resource).GroupResource(), in.Name)
	if s.archive == nil || is.archived == "" {
		return nil, missing
	}
	var o archive.Object
	var err error
	if in.UID != "" {
		o, err = s.archive.Get(ctx, []string{in.Namespace}, in.UID)
	} else {
		o, err = s.archive.Find(ctx, is.archived, in.Namespace, in.Name)
	}
	if errors.Is(err, archive.ErrNotFound) || err == nil && (o.Name != in.Name || o.Kind != is.archived) {
		return nil, missing
	}
	return &o, err
}

func (s *Server) liveDetails(i *events.Item) *details {
	out := &details{Row: s.whole(i.Row), Object: s.manifest(i), Children: s.children(i), Actions: s.actions(i)}
	raw, err := json.Marshal(out.Object)
	if err != nil {
		s.log.Error(err, "encode an object")
	}
	out.Conditions, out.Why = conditionsOf(raw), sentences(out.Row)
	if t, ok := i.Object.(*v1alpha1.Task); ok {
		out.Attempts = s.attempts(t)
	}
	if i.Row.Kind == row.Robots {
		out.Row = s.withUse(out.Row)
	}
	return out
}

// manifest is an object as it would be written to a file.
func (s *Server) manifest(i *events.Item) client.Object {
	o := i.Object.DeepCopyObject().(client.Object)
	is := kinds[i.Row.Kind]
	o.GetObjectKind().SetGroupVersionKind(is.version.WithKind(is.kind))
	return o
}

// children counts what an object controls, and what those control.
func (s *Server) children(i *events.Item) []children {
	by := map[row.Kind]*children{}
	var count func(uid types.UID)
	count = func(uid types.UID) {
		for _, c := range s.world.Owned(uid) {
			have := by[c.Row.Kind]
			if have == nil {
				have = &children{Kind: c.Row.Kind, Tones: map[row.Tone]int{}}
				by[c.Row.Kind] = have
			}
			have.Count++
			have.Tones[c.Row.Tone]++
			count(c.Object.GetUID())
		}
	}
	count(i.Object.GetUID())
	out := []children{}
	for _, k := range row.Kinds {
		if by[k] != nil {
			out = append(out, *by[k])
		}
	}
	return out
}

// conditionsOf reads the conditions out of any object: kinds keep them in two places.
func conditionsOf(manifest []byte) []condition {
	var o struct {
		Status struct {
			Conditions     json.RawMessage    `json:"conditions"`
			FlowConditions []metav1.Condition `json:"flowConditions"`
		} `json:"status"`
	}
	out := []condition{}
	if json.Unmarshal(manifest, &o) != nil {
		return out
	}
	all := o.Status.FlowConditions
	var own []metav1.Condition
	if json.Unmarshal(o.Status.Conditions, &own) == nil {
		all = append(all, own...)
	}
	for _, c := range all {
		if c.Type == "" {
			continue // a VCJob's are a history of phases, which its transitions tell
		}
		out = append(out, condition{c.Type, string(c.Status), c.Reason, c.Message, stamp(c.LastTransitionTime.Time)})
	}
	slices.SortFunc(out, func(a, b condition) int { return cmp.Compare(a.Type, b.Type) })
	return out
}

// attempts of a task, the newest last.
func (s *Server) attempts(t *v1alpha1.Task) []attempt {
	out := []attempt{}
	for _, a := range t.Status.Attempts {
		one := attempt{
			Task: t.Name, Namespace: t.Namespace, Job: t.Spec.JobName, Number: int64(a.Attempt), Robot: a.Robot, State: a.State, Tone: row.TaskTone(a.State), Reason: a.Reason,
			Signal: int64(a.Signal), Started: a.StartedAt, Finished: a.FinishedAt, Log: logquery.Path(t.Namespace, t.Name),
		}
		if a.ExitCode != nil {
			n := int64(*a.ExitCode)
			one.ExitCode = &n
		}
		out = append(out, one)
	}
	return out
}

func archivedAttempt(a *archive.Attempt) attempt {
	return attempt{
		Task: a.Task, Namespace: a.Namespace, Job: a.Job, Step: a.Step, Number: a.Number, Robot: a.Robot, State: a.State, Tone: row.TaskTone(a.State), Reason: a.Reason,
		ExitCode: a.ExitCode, Signal: a.Signal, Started: stamp(a.Started), Finished: stamp(a.Finished), Log: a.Log,
	}
}

// sentences say what the row knows of an object's state.
func sentences(r *row.Row) []string {
	out := []string{}
	text := strings.TrimSpace(r.Message)
	switch {
	case r.Reason != "" && text != "":
		out = append(out, r.Reason+": "+text)
	case r.Reason != "" || text != "":
		out = append(out, r.Reason+text)
	}
	return out
}

// withUse adds up what the tasks of a robot take of it.
func (s *Server) withUse(r *row.Row) *row.Row {
	use := map[string]resource.Quantity{}
	add := func(name string, q *resource.Quantity) {
		if q != nil {
			sum := use[name]
			sum.Add(*q)
			use[name] = sum
		}
	}
	for _, i := range s.world.List(row.Tasks, "") {
		t, ok := i.Object.(*v1alpha1.Task)
		if !ok || i.Row.Robot != r.Name || i.Row.Tone != row.Running || t.RobotNamespace(t.Status.Attempt) != r.Namespace || t.Spec.Resources == nil {
			continue
		}
		add(v1alpha1.CapacityCPU, t.Spec.Resources.CPU)
		add(v1alpha1.CapacityMemory, t.Spec.Resources.Memory)
		add(v1alpha1.CapacityDisk, t.Spec.Resources.Disk)
		for name, n := range t.Spec.Resources.Devices {
			add(name, &n)
		}
	}
	out := *r
	out.Used = map[string]string{}
	for name, q := range use {
		out.Used[name] = q.String()
	}
	return &out
}
