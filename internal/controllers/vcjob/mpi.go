package vcjob

import (
	"flag"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// pluginMPI gives masters the list of workers, which they reach by ssh.
const pluginMPI = "mpi"

// mpiOptions are the arguments of the plugin.
type mpiOptions struct {
	master, worker string // names of tasks
	port           int32
}

func defineMPI(f *flag.FlagSet) effects {
	var o mpiOptions
	f.StringVar(&o.master, "master", "master", "=TASK")
	f.StringVar(&o.worker, "worker", "worker", "=TASK")
	definePort(f, &o.port, "port", defaultSSHPort)
	return effects{validate: o.validateOptions, changePod: o.addWorkers}
}

func (o *mpiOptions) validateOptions(b *builder) string {
	if len(o.formatHosts(b)) > maxVariableBytes {
		return "MPI_HOST would be longer than 127 KiB, with which no process can start; use fewer workers"
	}
	return ""
}

func (o *mpiOptions) formatHosts(b *builder) string { return strings.Join(b.hosts[o.worker], ",") }

// addWorkers opens the port in all containers and init containers, and sets MPI_HOST in those of
// masters.
func (o *mpiOptions) addWorkers(b *builder, r replica, pod *corev1.Pod) {
	var vars []corev1.EnvVar
	if r.task.Name == o.master {
		vars = []corev1.EnvVar{{Name: "MPI_HOST", Value: o.formatHosts(b)}}
	}
	eachContainer(pod, func(c *corev1.Container) {
		addPort(c, "mpijob-port", o.port)
		setEnv(c, vars)
	})
}
