package vcjob

import (
	"strings"
	"testing"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

func TestPlan_RefusesFrameworks(t *testing.T) {
	for _, c := range []struct {
		name     string
		replicas map[string]int32
		plugin   string
		args     []string
		want     string
	}{
		{"ray without a head", map[string]int32{"worker": 1}, "ray", nil, "spec.plugins.ray: no task named head with a replica; add it, or name the task of Ray's head with --head"},
		{"ray with a head of no replicas", map[string]int32{"head": 0, "worker": 1}, "ray", nil, "spec.plugins.ray: no task named head with a replica; add it, or name the task of Ray's head with --head"},
		{"ray with a head of another name", map[string]int32{"head": 1}, "ray", []string{"--head=x"}, "spec.plugins.ray: no task named x with a replica; add it, or name the task of Ray's head with --head"},
		{"two equal ports of ray", map[string]int32{"head": 1}, "ray", []string{"--port=8265"}, "spec.plugins.ray: --port, --dashboardPort and --clientPort must differ"},
		{"port 0", map[string]int32{"a": 1}, "mpi", []string{"--port=0"}, "spec.plugins.mpi: --port is not a valid argument; allowed are --master=TASK, --port=PORT, --worker=TASK"},
		{"a port beyond the maximum", map[string]int32{"a": 1}, "tensorflow", []string{"--port=65536"}, "spec.plugins.tensorflow: --port is not a valid argument; allowed are --chief=TASK, --evaluator=TASK, --port=PORT, --ps=TASK, --worker=TASK"},
		{"a timeout of more than a day", map[string]int32{"a": 1}, "pytorch", []string{"--wait-master-timeout=86401"}, "spec.plugins.pytorch: --wait-master-timeout is not a valid argument; allowed are " +
			"--master=TASK, --port=PORT, --wait-master-enabled, --wait-master-image=IMAGE, --wait-master-timeout=SECONDS, --worker=TASK"},
		{"hosts too long for TF_CONFIG", map[string]int32{"worker": 6000}, "tensorflow", nil, "spec.plugins.tensorflow: TF_CONFIG would be longer than 127 KiB, with which no process can start; use fewer replicas"},
		{"hosts too long for MPI_HOST", map[string]int32{"master": 1, "worker": 8500}, "mpi", nil, "spec.plugins.mpi: MPI_HOST would be longer than 127 KiB, with which no process can start; use fewer workers"},
	} {
		t.Run(c.name, func(t *testing.T) { requireFailed(t, pluginJob(c.replicas, c.plugin, c.args...), c.want) })
	}
}

// A plugin that needs another one gets it, and both are in the status.
func TestPlan_ImpliedPlugins(t *testing.T) {
	for plugin, implied := range map[string]string{
		"env": "", "svc": "", "ssh": "", "tensorflow": "svc", "pytorch": "svc", "mpi": "svc ssh", "ray": "svc", "hcclrank": "",
	} {
		j := pluginJob(map[string]int32{"head": 1}, plugin)
		records := Plan(t0, 0, newInput(j)).Status.ControlledResources
		all := append(strings.Fields(implied), plugin)
		for _, name := range all {
			if records["plugin-"+name] != name {
				t.Errorf("%s: no record of %s in %v", plugin, name, records)
			}
		}
		if len(records) != len(all) {
			t.Errorf("%s: %v, want %v", plugin, records, all)
		}
	}
}

// Objects of plugins go with the Pods, also if the spec has got a problem meanwhile.
func TestPlan_DeletesObjectsOfPlugins(t *testing.T) {
	for _, phase := range []batchv1.JobPhase{"Completed", "Aborted"} {
		j := pluginJob(map[string]int32{"head": 1}, "ray")
		j.Spec.Plugins["ssh"] = nil
		j.Spec.Tasks[0].Replicas = 0
		j.Status.State.Phase = phase
		j.Status.ControlledResources = map[string]string{"plugin-ray": "ray", "plugin-svc": "svc", "plugin-ssh": "ssh"}
		var deleted []string
		for _, o := range Plan(t0, 0, newInput(j)).DeleteObjects {
			deleted = append(deleted, o.GetName())
		}
		if got := strings.Join(deleted, " "); got != "j j-svc j j-head-svc" {
			t.Errorf("%s: deletes %s", phase, got)
		}
	}
}
