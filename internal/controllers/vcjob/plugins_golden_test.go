package vcjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// pluginCases are Jobs whose objects and Pods are in testdata/plugin-NAME.golden.
var pluginCases = []struct {
	name string
	job  func() *batchv1.Job
}{
	{"env", func() *batchv1.Job { return pluginJob(map[string]int32{"a": 2}, "env") }},
	{"svc", func() *batchv1.Job { return pluginJob(map[string]int32{"a": 2, "b-c": 1}, "svc") }},
	{"svc-with-arguments", func() *batchv1.Job {
		return pluginJob(map[string]int32{"a": 1}, "svc", "--publish-not-ready-addresses", "--disable-network-policy=true", "--inject-hosts-env=false")
	}},
	{"ssh", func() *batchv1.Job {
		return pluginJob(map[string]int32{"a": 2, "b": 1}, "ssh")
	}},
	{"ssh-with-arguments", func() *batchv1.Job {
		return pluginJob(map[string]int32{"a": 1}, "ssh", "--ssh-key-file-path=/home/user/.ssh", "--ssh-port", "2222", "--ssh-private-key=PRIVATE", "--ssh-public-key=PUBLIC")
	}},
	{"tensorflow", func() *batchv1.Job {
		return frameworkJob(map[string]int32{"chief": 1, "other": 1, "ps": 2, "worker": 2}, "tensorflow")
	}},
	{"tensorflow-with-arguments", func() *batchv1.Job {
		return frameworkJob(map[string]int32{"a": 1, "b": 1, "c": 1, "d": 1}, "tensorflow", "--ps=a", "--evaluator=b", "--chief=c", "--worker=d", "--port=5000")
	}},
	{"tensorflow-alone", func() *batchv1.Job { return frameworkJob(map[string]int32{"worker": 1}, "tensorflow") }},
	{"pytorch", func() *batchv1.Job {
		j := frameworkJob(map[string]int32{"master": 1, "other": 1, "worker": 2}, "pytorch")
		j.Spec.Tasks[0].Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "mine", ContainerPort: 23456}}
		return j
	}},
	{"pytorch-with-arguments", func() *batchv1.Job {
		return frameworkJob(map[string]int32{"a": 1, "b": 1}, "pytorch", "--master=a", "--worker=b", "--port=5000",
			"--wait-master-enabled", "--wait-master-timeout=60", "--wait-master-image=example.com/nc:1")
	}},
	{"pytorch-without-master", func() *batchv1.Job {
		return frameworkJob(map[string]int32{"worker": 1}, "pytorch", "--wait-master-enabled")
	}},
	{"mpi", func() *batchv1.Job { return frameworkJob(map[string]int32{"master": 1, "worker": 2}, "mpi") }},
	{"mpi-with-arguments", func() *batchv1.Job {
		return frameworkJob(map[string]int32{"a": 1, "b": 1}, "mpi", "--master=a", "--worker=b", "--port=5000")
	}},
	{"ray", func() *batchv1.Job { return frameworkJob(map[string]int32{"head": 1, "other": 1, "worker": 2}, "ray") }},
	{"ray-with-arguments", func() *batchv1.Job {
		return frameworkJob(map[string]int32{"a": 1, "b": 1}, "ray", "--head=a", "--headContainer=a", "--worker=b", "--workerContainer=b",
			"--port=5001", "--dashboardPort=5002", "--clientPort=5003")
	}},
	{"hcclrank", func() *batchv1.Job {
		j := pluginJob(map[string]int32{"ma": 2, "mine": 1, "other": 1, "ranked": 1, "worker": 2}, "hcclrank", "--master=ma")
		j.Spec.Tasks[1].Template.Annotations = map[string]string{"hccl/rankIndex": "7"}
		j.Spec.Tasks[3].Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "RANK", Value: "5"}}
		return j
	}},
	{"hcclrank-with-pytorch", func() *batchv1.Job {
		j := frameworkJob(map[string]int32{"master": 1, "worker": 1}, "pytorch")
		j.Spec.Plugins["hcclrank"] = nil
		return j
	}},
}

// pluginJob returns a Job with tasks in the order of their names and one plugin. Its Pods have an
// init container.
func pluginJob(replicas map[string]int32, plugin string, args ...string) *batchv1.Job {
	j := job("Pending")
	for _, name := range slices.Sorted(maps.Keys(replicas)) {
		t := batchv1.TaskSpec{Name: name, Replicas: replicas[name]}
		t.Template.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "image"}}
		t.Template.Spec.Containers = []corev1.Container{{Name: name, Image: "image"}}
		j.Spec.Tasks = append(j.Spec.Tasks, t)
	}
	j.Spec.Plugins = map[string][]string{plugin: args}
	return j
}

// frameworkJob returns a pluginJob without the variables and the NetworkPolicy of svc.
func frameworkJob(replicas map[string]int32, plugin string, args ...string) *batchv1.Job {
	j := pluginJob(replicas, plugin, args...)
	j.Spec.Plugins[pluginSvc] = []string{"--inject-hosts-env=false", "--disable-network-policy"}
	return j
}

func TestPlan_Plugins(t *testing.T) {
	for _, c := range pluginCases {
		t.Run(c.name, func(t *testing.T) { golden.Equal(t, "plugin-"+c.name, describePlan(t, c.job())) })
	}
}

// describePlan returns the objects and Pods of a plan as YAML, without what all Pods have.
func describePlan(t *testing.T, j *batchv1.Job) string {
	t.Helper()
	var b strings.Builder
	for _, o := range planPlugins(t, j) {
		describeObject(t, &b, o)
	}
	return b.String()
}

// planPlugins returns the objects of the plan without what all Pods have.
func planPlugins(t *testing.T, j *batchv1.Job) []client.Object {
	t.Helper()
	actions := Plan(t0, 0, newInput(j))
	if len(actions.CreatePods) == 0 {
		t.Fatalf("no Pods: %+v", actions.Change)
	}
	objects := slices.Clone(actions.EnsureObjects)
	for _, pod := range actions.CreatePods {
		pod.Labels, pod.Spec.SchedulerName = nil, ""
		maps.DeleteFunc(pod.Annotations, func(key, _ string) bool {
			return strings.HasPrefix(key, "volcano.sh/") || key == batchv1.KeyGroupName
		})
		objects = append(objects, pod)
	}
	return objects
}

func describeObject(t *testing.T, b *strings.Builder, o client.Object) {
	t.Helper()
	if !strings.HasPrefix(o.GetName(), "j") || o.GetNamespace() != "ns" || len(o.GetOwnerReferences()) != 1 || !*o.GetOwnerReferences()[0].Controller {
		t.Errorf("%s/%s of %v", o.GetNamespace(), o.GetName(), o.GetOwnerReferences())
	}
	o.SetOwnerReferences(nil)
	o.SetNamespace("")
	if secret, ok := o.(*corev1.Secret); ok {
		secret.StringData = map[string]string{}
		for key, value := range secret.Data {
			secret.StringData[key] = string(value)
		}
		secret.Data = nil
	}
	text, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "--- %s\n%s", strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."), text)
}
