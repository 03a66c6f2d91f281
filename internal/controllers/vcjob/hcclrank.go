package vcjob

import (
	"flag"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// pluginHCCLRank gives each Pod its rank for Huawei's collective communication library.
const pluginHCCLRank = "hcclrank"

// keyRankIndex is the annotation with the rank.
const keyRankIndex = "hccl/rankIndex"

// hcclRankOptions are the arguments of the plugin, names of tasks.
type hcclRankOptions struct{ master, worker string }

func defineHCCLRank(f *flag.FlagSet) effects {
	var o hcclRankOptions
	f.StringVar(&o.master, "master", "master", "=TASK")
	f.StringVar(&o.worker, "worker", "worker", "=TASK")
	return effects{changePod: o.addRank}
}

// addRank sets the annotation. That of the template, and the RANK of a container, take precedence.
func (o *hcclRankOptions) addRank(b *builder, r replica, pod *corev1.Pod) {
	if _, has := pod.Annotations[keyRankIndex]; has {
		return
	}
	rank := findVariable(pod, "RANK")
	if rank == "" {
		switch r.task.Name {
		case o.master:
			rank = strconv.Itoa(r.index)
		case o.worker:
			rank = strconv.Itoa(b.replicasOf(o.master) + r.index)
		default:
			return
		}
	}
	pod.Annotations[keyRankIndex] = rank
}

// findVariable returns the value that the first container with this variable has. Empty if none has
// it, or if it refers to another object.
func findVariable(pod *corev1.Pod, name string) string {
	for i := range pod.Spec.Containers {
		for _, v := range pod.Spec.Containers[i].Env {
			if v.Name == name {
				return v.Value
			}
		}
	}
	return ""
}
