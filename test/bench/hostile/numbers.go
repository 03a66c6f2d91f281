package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/testkit"
)

// bases are objects that admission accepts, by the file of their definition. Each number in their
// spec is set to the largest one in turn.
var bases = map[string]string{
	"robot.k8s4r.io_jobs.yaml":               `{kind: Job, spec: {taskGroups: [{name: g, tasks: [` + robotTask + `]}]}}`,
	"robot.k8s4r.io_taskgroups.yaml":         `{kind: TaskGroup, spec: {jobName: j, groupName: g, tasks: [` + robotTask + `]}}`,
	"robot.k8s4r.io_tasks.yaml":              `{kind: Task, spec: ` + robotTask + `}`,
	"robot.k8s4r.io_jobtemplates.yaml":       `{kind: JobTemplate, spec: {taskGroups: [{name: g, tasks: [` + robotTask + `]}]}}`,
	"robot.k8s4r.io_rollouts.yaml":           `{kind: Rollout, spec: {target: {name: j}, waves: [{name: all, percent: 100}], rate: {perMinute: 1}, abortAt: {percent: 1}}}`,
	"robot.k8s4r.io_maintenancewindows.yaml": `{kind: MaintenanceWindow, spec: {schedule: "0 2 * * *", duration: 1h}}`,
	"batch.volcano.sh_jobs.yaml":             `{kind: Job, spec: {tasks: [{name: t, replicas: 1, template: ` + pod + `}]}}`,
	"flow.volcano.sh_jobflows.yaml":          `{kind: JobFlow, spec: {flows: [{name: a}]}}`,
	"flow.k8s4r.io_cronjobflows.yaml":        `{kind: CronJobFlow, spec: {schedule: "* * * * *", jobFlowTemplate: {spec: {flows: [{name: a}]}}}}`,
	"ray.io_rayclusters.yaml": `{kind: RayCluster, spec: {headGroupSpec: {rayStartParams: {}, template: ` + pod + `}, workerGroupSpecs: [
		{groupName: g, replicas: 1, minReplicas: 0, maxReplicas: 1, rayStartParams: {}, template: ` + pod + `}]}}`,
}

const (
	robotTask = `{name: t, driver: exec, config: {execConfig: {command: /bin/true}}}`
	pod       = `{spec: {containers: [{name: c, image: x}]}}`
)

// settleTime is how long the manager works on what was accepted before it is checked.
const settleTime = 10 * time.Second

// fuzzNumbers writes objects with the largest numbers while a manager runs, and returns how many
// numbers it has tried, how many were accepted, and how often the manager has exited.
func fuzzNumbers(t testing.TB) (tried, accepted, restarts int) {
	up := testkit.StartUp(t, "--without", "manager,server,broker,robots,node,console")
	manager := testkit.NewProcess(t, testkit.BinaryPath(t, "k8s4r-manager"), "--kubeconfig", up.KubeconfigOf("k8s4r-manager"), "--leader-elect=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--api-bind-address=127.0.0.1:0")
	manager.Start()
	c := testkit.NewClient(t, up.RESTConfig())
	restart := func() {
		if manager.HasExited() {
			restarts++
			manager.Stop()
			manager.Start()
		}
	}
	for _, file := range slices.Sorted(maps.Keys(bases)) {
		before := accepted
		objects := extremeObjects(t, file)
		for i, o := range objects {
			o.SetName(fmt.Sprintf("extreme-%d", i))
			if err := c.Create(context.Background(), o); err == nil {
				accepted++
			}
			restart()
		}
		tried += len(objects)
		fmt.Printf("%s: %d numbers, %d accepted\n", file, len(objects), accepted-before)
	}
	for end := time.Now().Add(settleTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		restart()
	}
	return tried, accepted, restarts
}

// extremeObjects returns an object for each number in the spec of a definition.
func extremeObjects(t testing.TB, file string) (all []*unstructured.Unstructured) {
	text, err := config.FS.ReadFile("crd/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensions.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	version := definition.Spec.Versions[0]
	spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
	for _, path := range numberPaths(spec, nil) {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(bases[file]), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetAPIVersion(definition.Spec.Group + "/" + version.Name)
		o.SetNamespace(namespace)
		o.Object["spec"] = setNumber(o.Object["spec"], path)
		all = append(all, &o)
	}
	return all
}

// firstItem in a path is the first item of a list, anyKey a key of a map.
const (
	firstItem = "[0]"
	anyKey    = "key"
)

// numberPaths returns the paths of all numbers in a schema.
func numberPaths(s apiextensions.JSONSchemaProps, path []string) (all [][]string) {
	if s.Type == "integer" || s.Type == "number" || s.XIntOrString {
		return [][]string{slices.Clone(path)}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		all = append(all, numberPaths(s.Properties[name], append(path, name))...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		all = append(all, numberPaths(*s.Items.Schema, append(path, firstItem))...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		all = append(all, numberPaths(*s.AdditionalProperties.Schema, append(path, anyKey))...)
	}
	return all
}

// setNumber sets the number at a path of a JSON value, with lists and maps on the way, and returns
// the value.
func setNumber(v any, path []string) any {
	if len(path) == 0 {
		return int64(math.MaxInt32)
	}
	if path[0] == firstItem {
		list, _ := v.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		list[0] = setNumber(list[0], path[1:])
		return list
	}
	object, _ := v.(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	object[path[0]] = setNumber(object[path[0]], path[1:])
	return object
}
