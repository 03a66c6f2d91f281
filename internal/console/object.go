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
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/core/masking"
)

// nameIn identifies one object.
type nameIn struct {
	Kind      row.Kind `path:"kind"`
	Namespace string   `path:"namespace"`
	Name      string   `path:"name"`
	UID       string   `query:"uid" doc:"UID of the object. If empty, the live object with the name, or the last archived one"`
}

// details is the response about one object.
type details struct {
	Row *row.Row `json:"row"`
	// Object is the complete manifest without managedFields and private keys.
	Object     any         `json:"object"`
	Archived   bool        `json:"archived"`
	Conditions []condition `json:"conditions"`
	// Attempts is set for tasks only.
	Attempts []attempt `json:"attempts,omitempty"`
	// Array is set for tasks of arrays only.
	Array *taskIndexes `json:"array,omitempty"`
	// Arrays are those of the groups of a job, or of a group.
	Arrays []arraySummary `json:"arrays,omitempty"`
	// StoppedTasks is set for robots only: tasks that people at the robot have stopped.
	StoppedTasks []stoppedTask `json:"stoppedTasks,omitempty"`
	// Rollout is set for Rollouts only.
	Rollout *rolloutDetails `json:"rollout,omitempty"`
	// Children counts the objects that this one controls, by kind.
	Children []children `json:"children"`
	// Why explains in sentences what the object waits for, or how it ended.
	Why []string `json:"why"`
	// Actions are the actions that the object's state allows.
	Actions []action `json:"actions"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Time of the last transition. If nil, it is unknown.
	Time *metav1.MicroTime `json:"time,omitempty"`
}

type children struct {
	Kind       row.Kind             `json:"kind"`
	Count      int                  `json:"count"`
	Severities map[row.Severity]int `json:"severities"`
}

func (s *Server) getObject(ctx context.Context, in *nameIn) (*details, error) {
	k := in.Kind
	if err := s.requireAccess(ctx, "get", k, in.Namespace, in.Name); err != nil {
		return nil, err
	}
	if i := s.store.Get(k, in.Namespace, in.Name); i != nil && (in.UID == "" || in.UID == i.Row.UID) {
		return s.describeLive(i), nil
	}
	if v, ok := s.findIndex(in.Namespace, in.Name); ok && k == row.Tasks && in.UID == "" {
		return s.describeLive(s.renderIndex(v)), nil
	}
	return s.getArchived(ctx, in)
}

// getArchived returns an object from the archive, or a NotFound error.
func (s *Server) getArchived(ctx context.Context, in *nameIn) (*details, error) {
	o, err := s.readArchived(ctx, in)
	if apierrors.IsNotFound(err) && in.Kind == row.Tasks && s.archive != nil {
		if out, indexErr := s.findArchivedIndex(ctx, in); out != nil || indexErr != nil {
			return out, indexErr
		}
	}
	if err != nil {
		return nil, err
	}
	out := &details{Row: newArchivedRow(o), Object: o.Manifest, Archived: true, Children: []children{}, Actions: []action{}, Conditions: parseConditions(o.Manifest)}
	out.Why = describeState(out.Row)
	if in.Kind == row.Tasks {
		t := decodeTask(o.Manifest)
		out.Attempts = listArchivedAttempts(o, t)
		if t != nil && t.IsRange() {
			out.Array = describeRange(t)
		}
	}
	return out, nil
}

// readArchived returns an object from the archive, or a NotFound error.
func (s *Server) readArchived(ctx context.Context, in *nameIn) (*archive.Object, error) {
	is := kinds[in.Kind]
	missing := apierrors.NewNotFound(is.version.WithResource(is.resource).GroupResource(), in.Name)
	if s.archive == nil || is.archived == "" {
		return nil, missing
	}
	sees, err := s.findPastScope(ctx, "get", in.Kind, scope{names: []string{in.Namespace}})
	if err != nil {
		return nil, err
	}
	var o archive.Object
	if in.UID != "" {
		o, err = s.archive.GetByUID(ctx, sees, in.UID)
	} else {
		o, err = s.archive.FindByName(ctx, sees, is.archived, in.Namespace, in.Name)
	}
	if errors.Is(err, archive.ErrNotFound) || err == nil && (o.Namespace != in.Namespace || o.Name != in.Name || o.Kind != is.archived) {
		return nil, missing
	}
	return &o, err
}

func (s *Server) describeLive(i *watch.Item) *details {
	raw := s.encodeManifest(i)
	out := &details{Row: s.advanceHeartbeat(s.completeRow(i.Row)), Object: raw, Children: s.countChildren(i), Actions: s.listActions(i)}
	out.Conditions, out.Why = parseConditions(raw), describeState(out.Row)
	if t, ok := i.Object.(*v1alpha1.Task); ok {
		out.Attempts, out.Array = s.listAttempts(t), s.describeIndexes(t)
	}
	if text := unconfirmedText(i.Object); text != "" {
		out.Why = append(out.Why, text)
	}
	if i.Row.Kind == row.Jobs || i.Row.Kind == row.TaskGroups {
		out.Arrays = s.summarizeArrays(i)
	}
	if r, ok := i.Object.(*v1alpha1.Rollout); ok {
		out.Rollout = describeRollout(r)
	}
	if r, ok := i.Object.(*v1alpha1.Robot); ok {
		out.Row, out.StoppedTasks = s.addUsage(out.Row), listStoppedTasks(r)
		out.Why = append(out.Why, describeMaintenance(r, out.Why)...)
		out.Why = append(out.Why, describeHolds(r, out.Why)...)
	}
	return out
}

// encodeManifest returns the object with apiVersion and kind and without private keys.
func (s *Server) encodeManifest(i *watch.Item) json.RawMessage {
	o := i.Object.DeepCopyObject().(client.Object)
	is := kinds[i.Row.Kind]
	o.GetObjectKind().SetGroupVersionKind(is.version.WithKind(is.kind))
	raw, err := json.Marshal(o)
	if err != nil {
		s.log.Error(err, "Cannot encode object")
		return json.RawMessage("null")
	}
	return masking.MaskManifest(raw)
}

// countChildren counts the objects that an object controls, directly or indirectly.
func (s *Server) countChildren(i *watch.Item) []children {
	by := map[row.Kind]*children{}
	var count func(uid types.UID)
	count = func(uid types.UID) {
		for _, c := range s.store.Owned(uid) {
			have := by[c.Row.Kind]
			if have == nil {
				have = &children{Kind: c.Row.Kind, Severities: map[row.Severity]int{}}
				by[c.Row.Kind] = have
			}
			have.Count++
			have.Severities[c.Row.Severity]++
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

// parseConditions extracts the conditions from a manifest. Flows keep them in another field than
// other kinds.
func parseConditions(manifest []byte) []condition {
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
			continue // a VCJob lists its phases instead, which the transitions contain
		}
		out = append(out, condition{c.Type, string(c.Status), c.Reason, c.Message, toMicroTime(c.LastTransitionTime.Time)})
	}
	slices.SortFunc(out, func(a, b condition) int { return cmp.Compare(a.Type, b.Type) })
	return out
}

// describeState returns the reason and message of a row as sentences.
func describeState(r *row.Row) []string {
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

// unconfirmedText describes what may still be running of an object although it was ended. It is empty if
// nothing may.
func unconfirmedText(o client.Object) string {
	switch o := o.(type) {
	case *v1alpha1.Task:
		return explain.UnconfirmedStopText(o)
	case *v1alpha1.TaskGroup:
		return explain.UnconfirmedStopsText(&o.Status.TaskCounts)
	case *v1alpha1.Job:
		return explain.UnconfirmedStopsText(&o.Status.TaskCounts)
	}
	return ""
}

// addUsage returns a copy of a robot's row with the resources that its tasks use.
func (s *Server) addUsage(r *row.Row) *row.Row {
	use := map[string]resource.Quantity{}
	add := func(name string, q *resource.Quantity) {
		if q != nil {
			sum := use[name]
			sum.Add(*q)
			use[name] = sum
		}
	}
	for _, i := range s.store.List(row.Tasks, "") {
		t, ok := i.Object.(*v1alpha1.Task)
		if !ok || i.Row.Robot != r.Name || i.Row.Severity != row.Running || t.NamespaceOfRobot(t.Status.Attempt) != r.Namespace || t.Spec.Resources == nil {
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
