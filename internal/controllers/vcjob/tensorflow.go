package vcjob

import (
	"encoding/json"
	"flag"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// pluginTensorFlow describes the cluster to TensorFlow.
const pluginTensorFlow = "tensorflow"

// maxVariableBytes bounds the value of a variable: Linux starts no process with a longer one.
const maxVariableBytes = 127 << 10

// tensorFlowOptions are the arguments of the plugin: the names of the tasks of each role.
type tensorFlowOptions struct {
	ps, worker, chief, evaluator string
	port                         int32
}

// tensorFlowConfig is the variable TF_CONFIG.
type tensorFlowConfig struct {
	Cluster tensorFlowCluster `json:"cluster"`
	Task    tensorFlowTask    `json:"task"`
}

// tensorFlowCluster lists the addresses of each role.
type tensorFlowCluster struct {
	PS        []string `json:"ps,omitempty"`
	Worker    []string `json:"worker,omitempty"`
	Chief     []string `json:"chief,omitempty"`
	Evaluator []string `json:"evaluator,omitempty"`
}

// tensorFlowTask identifies a Pod.
type tensorFlowTask struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
}

func defineTensorFlow(f *flag.FlagSet) effects {
	var o tensorFlowOptions
	f.StringVar(&o.ps, "ps", "ps", "=TASK")
	f.StringVar(&o.worker, "worker", "worker", "=TASK")
	f.StringVar(&o.chief, "chief", "chief", "=TASK")
	f.StringVar(&o.evaluator, "evaluator", "evaluator", "=TASK")
	definePort(f, &o.port, "port", 2222)
	return effects{validate: o.validateOptions, changePod: o.addConfig}
}

func (o *tensorFlowOptions) validateOptions(b *builder) string {
	if len(o.formatConfig(b, tensorFlowTask{})) > maxVariableBytes {
		return "TF_CONFIG would be longer than 127 KiB, with which no process can start; use fewer replicas"
	}
	return ""
}

// addConfig sets TF_CONFIG in all containers. A Pod that is alone needs none.
func (o *tensorFlowOptions) addConfig(b *builder, r replica, pod *corev1.Pod) {
	if len(b.spec.Tasks) == 1 && b.spec.Tasks[0].Replicas == 1 {
		return
	}
	config := o.formatConfig(b, tensorFlowTask{Type: o.roleOf(r.task.Name), Index: r.index})
	for i := range pod.Spec.Containers {
		setEnv(&pod.Spec.Containers[i], []corev1.EnvVar{{Name: "TF_CONFIG", Value: config}})
	}
}

func (o *tensorFlowOptions) formatConfig(b *builder, task tensorFlowTask) string {
	text, err := json.Marshal(tensorFlowConfig{
		Cluster: tensorFlowCluster{
			PS: o.listAddresses(b, o.ps), Worker: o.listAddresses(b, o.worker), Chief: o.listAddresses(b, o.chief), Evaluator: o.listAddresses(b, o.evaluator),
		},
		Task: task,
	})
	if err != nil {
		panic(err) // texts and numbers can be encoded
	}
	return string(text)
}

// roleOf returns the role of a task. A task of another name is a role of its own.
func (o *tensorFlowOptions) roleOf(task string) string {
	switch task {
	case o.ps:
		return "ps"
	case o.worker:
		return "worker"
	case o.chief:
		return "chief"
	case o.evaluator:
		return "evaluator"
	}
	return task
}

func (o *tensorFlowOptions) listAddresses(b *builder, task string) (all []string) {
	for _, host := range b.hosts[task] {
		all = append(all, fmt.Sprintf("%s:%d", host, o.port))
	}
	return all
}
