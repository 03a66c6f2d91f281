package vcjob

import (
	"flag"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// pluginRay starts a Ray cluster in the Pods.
const pluginRay = "ray"

// rayOptions are the arguments of the plugin.
type rayOptions struct {
	head, worker                   string // names of tasks
	headContainer, workerContainer string
	port, dashboardPort            int32
	clientPort                     int32
}

func defineRay(f *flag.FlagSet) effects {
	var o rayOptions
	f.StringVar(&o.head, "head", "head", "=TASK")
	f.StringVar(&o.headContainer, "headContainer", "head", "=CONTAINER")
	f.StringVar(&o.worker, "worker", "worker", "=TASK")
	f.StringVar(&o.workerContainer, "workerContainer", "worker", "=CONTAINER")
	definePort(f, &o.port, "port", 6379)
	definePort(f, &o.dashboardPort, "dashboardPort", 8265)
	definePort(f, &o.clientPort, "clientPort", 10001)
	definePort(f, &o.clientPort, "clientServerPort", 10001) // the name in Volcano's user guide
	return effects{validate: o.validateOptions, objects: o.newObjects, changePod: o.startRay}
}

func (o *rayOptions) validateOptions(b *builder) string {
	switch {
	case len(b.hosts[o.head]) == 0:
		return fmt.Sprintf("no task named %s with a replica; add it, or name the task of Ray's head with --head", o.head)
	case o.port == o.dashboardPort || o.port == o.clientPort || o.dashboardPort == o.clientPort:
		return "--port, --dashboardPort and --clientPort must differ"
	}
	return ""
}

// rayPort is a port of the head.
type rayPort struct {
	name   string
	number int32
}

func (o *rayOptions) headPorts() []rayPort {
	return []rayPort{{"gcs", o.port}, {"dashboard", o.dashboardPort}, {"client-server", o.clientPort}}
}

// newObjects returns the Service of the head.
func (o *rayOptions) newObjects(b *builder) []client.Object {
	selector := podSelector(b.job)
	selector[batchv1.KeyTaskSpec] = o.head
	svc := &corev1.Service{
		ObjectMeta: ownedMeta(b.job, naming.ChildName(naming.MaxLabel, b.job.Name, "head-svc")),
		Spec:       corev1.ServiceSpec{Selector: selector},
	}
	for _, p := range o.headPorts() {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
			Name: p.name, Port: p.number, TargetPort: intstr.FromString(p.name), Protocol: corev1.ProtocolTCP,
		})
	}
	return []client.Object{svc}
}

// startRay replaces the command of the container that runs Ray. Containers of other names keep
// theirs.
func (o *rayOptions) startRay(b *builder, r replica, pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		switch {
		case r.task.Name == o.head && c.Name == o.headContainer:
			setShellCommand(c, fmt.Sprintf("ray start --head --block --dashboard-host=0.0.0.0 --port=%d --dashboard-port=%d --ray-client-server-port=%d",
				o.port, o.dashboardPort, o.clientPort))
			for _, p := range o.headPorts() {
				addNamedPort(c, p.name, p.number) // the Service refers to the name
			}
		case r.task.Name == o.worker && c.Name == o.workerContainer:
			setShellCommand(c, fmt.Sprintf("ray start --block --address=%s:%d", b.hosts[o.head][0], o.port))
		}
	}
}

func setShellCommand(c *corev1.Container, command string) {
	c.Command = []string{"sh", "-c", command}
}
