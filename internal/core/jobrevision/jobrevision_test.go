package jobrevision

import (
	"encoding/json"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/extreme"
)

func template(changes ...func(*v1alpha1.TaskGroupTemplate)) *v1alpha1.TaskGroupTemplate {
	g := &v1alpha1.TaskGroupTemplate{Tasks: []v1alpha1.TaskDefinition{{Name: "a", Driver: "exec", Env: map[string]string{"X": "1"}}}}
	for _, f := range changes {
		f(g)
	}
	return g
}

// A group that gets its content back from a revision must equal the one that was stored: otherwise it would
// be updated again and again.
func TestJobContent_RestoresEachField(t *testing.T) {
	newSpec := func() *v1alpha1.JobSpec {
		return &v1alpha1.JobSpec{TaskGroups: []v1alpha1.TaskGroupDefinition{{Name: "g", TaskGroupTemplate: *template()}}}
	}
	for _, c := range extreme.Cases(newSpec, func(s *v1alpha1.JobSpec) any { return s }) {
		spec := newSpec()
		c.Set(spec)
		spec = readBack(t, spec)
		data, err := ContentOf(spec).Encode()
		if err != nil {
			t.Fatal(err)
		}
		content, err := Decode(&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: data}})
		if err != nil {
			t.Fatalf("%s: %v", c.Path, err)
		}
		want := &spec.TaskGroups[0]
		got := *want.DeepCopy()
		got.InitTasks, got.Tasks, got.Constraints, got.RestartPolicy, got.EphemeralDisk = nil, nil, nil, nil, nil
		content.FindGroup(want.Name).ApplyTo(&got.TaskGroupTemplate)
		if !equality.Semantic.DeepEqual(*want, got) {
			t.Errorf("%s is not restored", c.Path)
		}
	}
}

// readBack returns a spec as the manager reads it from the API server: some older forms become current ones.
func readBack(t *testing.T, spec *v1alpha1.JobSpec) *v1alpha1.JobSpec {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var is v1alpha1.JobSpec
	if err := json.Unmarshal(text, &is); err != nil {
		t.Fatal(err)
	}
	return &is
}

func TestJobContent_IsWhatTasksTakeFromTheirGroup(t *testing.T) {
	two := int32(2)
	encode := func(change func(*v1alpha1.TaskGroupTemplate)) string {
		data, err := ContentOf(&v1alpha1.JobSpec{TaskGroups: []v1alpha1.TaskGroupDefinition{{Name: "g", TaskGroupTemplate: *template(change)}}}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		return HashData(data)
	}
	was := encode(func(*v1alpha1.TaskGroupTemplate) {})
	for name, c := range map[string]struct {
		change func(*v1alpha1.TaskGroupTemplate)
		want   bool
	}{
		"a task":            {func(g *v1alpha1.TaskGroupTemplate) { g.Tasks[0].User = "u" }, true},
		"the init tasks":    {func(g *v1alpha1.TaskGroupTemplate) { g.InitTasks = []v1alpha1.TaskDefinition{{Name: "i"}} }, true},
		"the constraints":   {func(g *v1alpha1.TaskGroupTemplate) { g.Constraints = []v1alpha1.Constraint{{Operand: "="}} }, true},
		"the restartPolicy": {func(g *v1alpha1.TaskGroupTemplate) { g.RestartPolicy = &v1alpha1.RestartPolicy{Attempts: 1} }, true},
		"the disk":          {func(g *v1alpha1.TaskGroupTemplate) { g.EphemeralDisk = &v1alpha1.EphemeralDisk{SizeMB: 1} }, true},
		"the count":         {func(g *v1alpha1.TaskGroupTemplate) { g.Count = &two }, false},
		"the meta":          {func(g *v1alpha1.TaskGroupTemplate) { g.Meta = map[string]string{"k": "v"} }, true},
		"the placement":     {func(g *v1alpha1.TaskGroupTemplate) { g.Placement = &v1alpha1.Placement{Strategy: "pack"} }, false},
	} {
		if changes := encode(c.change) != was; changes != c.want {
			t.Errorf("%s changes the content: %v, want %v", name, changes, c.want)
		}
	}
}

func TestDecode_NamesTheRevision(t *testing.T) {
	r := &appsv1.ControllerRevision{}
	r.Name = "j-x"
	r.Data.Raw = []byte("[")
	if _, err := Decode(r); err == nil || err.Error() != "revision j-x: unexpected end of JSON input" {
		t.Error(err)
	}
}

// A user may write ControllerRevisions with owners of other kinds: only those of a Job are checked.
func TestIsOfJob_NeedsTheKind(t *testing.T) {
	j := &v1alpha1.Job{}
	j.Name, j.UID = "j", "uid"
	for name, change := range map[string]func(*metav1.OwnerReference){
		"its own":       func(*metav1.OwnerReference) {},
		"another kind":  func(o *metav1.OwnerReference) { o.Kind = "Bar" },
		"another group": func(o *metav1.OwnerReference) { o.APIVersion = "x/v1" },
		"another UID":   func(o *metav1.OwnerReference) { o.UID = "other" },
		"no controller": func(o *metav1.OwnerReference) { o.Controller = nil },
	} {
		owner := *metav1.NewControllerRef(j, v1alpha1.GroupVersion.WithKind("Job"))
		change(&owner)
		r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner}}}
		if got := IsOfJob(r, j); got != (name == "its own") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A command contains meta, so both must be those that admission has checked together.
func TestJobContent_HasTheMetaOfItsTime(t *testing.T) {
	spec := &v1alpha1.JobSpec{Meta: map[string]string{"a": "job", "b": "job"}, TaskGroups: []v1alpha1.TaskGroupDefinition{{Name: "g"}}}
	spec.TaskGroups[0].Meta = map[string]string{"b": "group"}
	c := ContentOf(spec)
	is := v1alpha1.TaskGroupTemplate{Meta: map[string]string{"a": "later", "c": "later"}}
	c.FindGroup("g").ApplyTo(&is)
	if want := map[string]string{"a": "job", "b": "group"}; !maps.Equal(is.Meta, want) {
		t.Errorf("%v, want %v", is.Meta, want)
	}
}

func TestKeepsRevisions_AllTypesButBatch(t *testing.T) {
	for kind, want := range map[string]bool{"": false, "batch": false, "service": true, "system": true, "sysbatch": true, "other": false} {
		if KeepsRevisions(kind) != want {
			t.Errorf("type %q: %v", kind, !want)
		}
	}
}
