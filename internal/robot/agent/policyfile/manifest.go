package policyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// defaultNamespace is the namespace of objects that name none.
const defaultNamespace = "default"

// ManifestTask is a task in a manifest.
type ManifestTask struct {
	// Object is the kind and name of the object, such as Job/arm-test.
	Object string
	// Path of the task's definition in the object, such as spec.taskGroups[0].tasks[1].
	Path    string
	Subject policy.Subject
}

// Manifest is what a file with objects contains.
type Manifest struct {
	Tasks []ManifestTask
	// Skipped are the objects of kinds that define no tasks of robots.
	Skipped []string
}

// object is the part of a Job, JobTemplate, TaskGroup or Task that a policy evaluates.
type object struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Metadata   wire.TaskMeta `json:"metadata"`
	Spec       struct {
		group
		wire.TaskSpec
		TaskGroups []group `json:"taskGroups"`
	} `json:"spec"`
}

// group is a task group, in a Job or as an object.
type group struct {
	InitTasks []wire.TaskSpec `json:"initTasks"`
	Tasks     []wire.TaskSpec `json:"tasks"`
}

// ParseManifest returns the tasks of a file with one or more objects. Objects without a namespace are
// in the given one; if it is empty, in the namespace default.
func ParseManifest(content []byte, namespace string) (m Manifest, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for i := 0; ; i++ {
		var any any
		if err := decoder.Decode(&any); errors.Is(err, io.EOF) {
			return m, nil
		} else if err != nil {
			return m, err
		}
		if any == nil { // between two separators
			continue
		}
		o, err := decodeObject(any)
		if err != nil {
			return m, fmt.Errorf("document %d: %w", i+1, err)
		}
		m.addObject(o, namespace)
	}
}

func decodeObject(value any) (o object, err error) {
	b, err := json.Marshal(value)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return o, err
	}
	if o.APIVersion == "" || o.Kind == "" {
		return o, errors.New("has no apiVersion and kind")
	}
	return o, nil
}

func (m *Manifest) addObject(o object, namespace string) {
	name := o.Kind + "/" + o.Metadata.Name
	if !strings.HasPrefix(o.APIVersion, "robot.k8s4r.io/") {
		m.Skipped = append(m.Skipped, name)
		return
	}
	for _, n := range []string{namespace, defaultNamespace} {
		if o.Metadata.Namespace == "" {
			o.Metadata.Namespace = n
		}
	}
	add := func(path string, specs []wire.TaskSpec) {
		for i, spec := range specs {
			task := wire.Task{Metadata: wire.TaskMeta{Namespace: o.Metadata.Namespace}, Spec: spec}
			m.Tasks = append(m.Tasks, ManifestTask{name, fmt.Sprintf("%s[%d]", path, i), task.PolicySubject()})
		}
	}
	switch o.Kind {
	case "Job", "JobTemplate":
		for i, g := range o.Spec.TaskGroups {
			path := fmt.Sprintf("spec.taskGroups[%d].", i)
			add(path+"initTasks", g.InitTasks)
			add(path+"tasks", g.Tasks)
		}
	case "TaskGroup":
		add("spec.initTasks", o.Spec.InitTasks)
		add("spec.tasks", o.Spec.Tasks)
	case "Task":
		task := wire.Task{Metadata: o.Metadata, Spec: o.Spec.TaskSpec}
		m.Tasks = append(m.Tasks, ManifestTask{name, "spec", task.PolicySubject()})
	default:
		m.Skipped = append(m.Skipped, name)
	}
}
