package vcjob

import (
	"errors"
	"flag"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// pluginPyTorch sets the variables of torch.distributed.
const pluginPyTorch = "pytorch"

// maxWaitSeconds bounds how long a worker waits for the master: a day.
const maxWaitSeconds = 24 * 60 * 60

var errNoWaitSeconds = errors.New("must be a number of seconds from 1 to 86400")

// pyTorchOptions are the arguments of the plugin.
type pyTorchOptions struct {
	master, worker string // names of tasks
	port           int32
	waits          bool // workers wait until the master's port is open
	waitSeconds    int
	waitImage      string
}

func definePyTorch(f *flag.FlagSet) effects {
	o := pyTorchOptions{waitSeconds: 300}
	f.StringVar(&o.master, "master", "master", "=TASK")
	f.StringVar(&o.worker, "worker", "worker", "=TASK")
	definePort(f, &o.port, "port", 23456)
	f.BoolVar(&o.waits, "wait-master-enabled", false, "")
	f.StringVar(&o.waitImage, "wait-master-image", "busybox:1.36.1", "=IMAGE")
	f.Func("wait-master-timeout", "=SECONDS", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxWaitSeconds {
			return errNoWaitSeconds
		}
		o.waitSeconds = n
		return nil
	})
	return effects{changePod: o.addRank}
}

// addRank sets the variables and opens the port in all containers. Without a master there is
// nothing to connect to; admission warns.
func (o *pyTorchOptions) addRank(b *builder, r replica, pod *corev1.Pod) {
	masters := b.hosts[o.master]
	if len(masters) == 0 {
		return
	}
	vars := []corev1.EnvVar{
		{Name: "MASTER_ADDR", Value: masters[0]},
		{Name: "MASTER_PORT", Value: strconv.Itoa(int(o.port))},
		{Name: "WORLD_SIZE", Value: strconv.Itoa(b.replicasOf(o.master) + b.replicasOf(o.worker))},
	}
	switch r.task.Name {
	case o.master:
		vars = append(vars, corev1.EnvVar{Name: "RANK", Value: "0"})
	case o.worker:
		vars = append(vars, corev1.EnvVar{Name: "RANK", Value: strconv.Itoa(r.index + 1)})
		if o.waits {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, o.waitContainer(masters[0]))
		}
	}
	for i := range pod.Spec.Containers {
		addPort(&pod.Spec.Containers[i], "pytorchjob-port", o.port)
		setEnv(&pod.Spec.Containers[i], vars)
	}
}

// waitContainer returns an init container that ends when the master's port is open, or fails after
// the timeout.
func (o *pyTorchOptions) waitContainer(master string) corev1.Container {
	const script = `end=$(($(date +%%s) + %d))
until nc -z -w 2 %s %d; do
  if [ $(date +%%s) -ge $end ]; then echo "the master's port did not open within %ds" >&2; exit 1; fi
  sleep 2
done`
	return corev1.Container{
		Name: "wait-for-master", Image: o.waitImage,
		Command: []string{"sh", "-c", fmt.Sprintf(script, o.waitSeconds, master, o.port, o.waitSeconds)},
	}
}
