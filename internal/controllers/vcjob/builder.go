package vcjob

import (
	"cmp"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// builder builds the Pods of a Job and the objects that they need.
type builder struct {
	job *batchv1.Job
	// spec has its defaults.
	spec    *batchv1.JobSpec
	plugins []loadedPlugin
	// hosts are the host names of the replicas of each task. Nil if no plugin needs them, or if they
	// are too long.
	hosts map[string][]string
}

// newBuilder returns a builder without host names. A plugin whose arguments are not valid, which
// validateSpec reports, has its other arguments.
func newBuilder(j *batchv1.Job, spec *batchv1.JobSpec) *builder {
	all, _ := loadPlugins(spec)
	return &builder{job: j, spec: spec, plugins: all}
}

// prepareBuild sets the host names, and returns a message about what keeps the plugins from working.
func (b *builder) prepareBuild() string {
	if !b.setHosts() {
		return "spec.plugins: the lists of hosts are longer than a ConfigMap or a Secret can be, 1 MiB; use fewer replicas, or omit svc and ssh"
	}
	for i := range b.plugins {
		p := &b.plugins[i]
		if p.validate == nil {
			continue
		}
		if why := p.validate(b); why != "" {
			return "spec.plugins." + p.name + ": " + why
		}
	}
	return ""
}

// maxHostsBytes is the size of the data that a ConfigMap or a Secret can hold.
const maxHostsBytes = 1 << 20

// setHosts sets the host names of the replicas of each task if a plugin needs them. It reports
// false, and stops, if two lists of them are too long for one object.
func (b *builder) setHosts() bool {
	_, svc := b.spec.Plugins[pluginSvc]
	_, ssh := b.spec.Plugins[pluginSSH]
	if !svc && !ssh {
		return true
	}
	hosts, left := map[string][]string{}, maxHostsBytes
	for i := range b.spec.Tasks {
		t := &b.spec.Tasks[i]
		for index := range int(t.Replicas) {
			name := b.hostName(t, index)
			if left -= 2 * len(name+","); left < 0 {
				return false
			}
			hosts[t.Name] = append(hosts[t.Name], name)
			if t.Template.Spec.Hostname != "" {
				break // all replicas share the name
			}
		}
	}
	b.hosts = hosts
	return true
}

// hostName returns the name by which other Pods of the Job reach a replica.
func (b *builder) hostName(t *batchv1.TaskSpec, index int) string {
	return b.shortHostName(t, index) + "." + b.subdomain(t)
}

// subdomain returns the domain of the host names of a task.
func (b *builder) subdomain(t *batchv1.TaskSpec) string {
	return cmp.Or(t.Template.Spec.Subdomain, svcName(b.job))
}

// shortHostName returns the host name of a replica, a DNS label.
func (b *builder) shortHostName(t *batchv1.TaskSpec, index int) string {
	return cmp.Or(t.Template.Spec.Hostname, naming.LabelValue(podName(b.job.Name, t.Name, index)))
}

// replicasOf returns the number of replicas of a task. 0 if there is no such task.
func (b *builder) replicasOf(task string) int {
	for i := range b.spec.Tasks {
		if b.spec.Tasks[i].Name == task {
			return int(b.spec.Tasks[i].Replicas)
		}
	}
	return 0
}

// newObjects returns the objects that the Pods need.
func (b *builder) newObjects() []client.Object {
	all := b.pluginObjects(func(string) bool { return true })
	for _, claim := range newClaims(b.job) {
		all = append(all, claim)
	}
	return all
}

// pluginObjects returns the objects of the chosen plugins.
func (b *builder) pluginObjects(chosen func(plugin string) bool) (all []client.Object) {
	for i := range b.plugins {
		if p := &b.plugins[i]; p.objects != nil && chosen(p.name) {
			all = append(all, p.objects(b)...)
		}
	}
	return all
}

// newVolumeName returns the name of a volume that a plugin adds to the Pods. The name of a Job may
// have dots, that of a volume may not.
func newVolumeName(j *batchv1.Job, suffix string) string {
	return naming.ChildName(naming.MaxLabel, strings.ReplaceAll(j.Name, ".", "-"), suffix)
}
