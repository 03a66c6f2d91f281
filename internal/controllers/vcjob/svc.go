package vcjob

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// pluginSvc gives each Pod a DNS name and a list of the other Pods.
const pluginSvc = "svc"

// hostsPath is the directory in the containers that holds the lists of hosts.
const hostsPath = "/etc/volcano"

// svcOptions are the arguments of the plugin.
type svcOptions struct {
	publishNotReady bool
	noNetworkPolicy bool
	hostsEnv        bool
}

func defineSvc(f *flag.FlagSet) effects {
	var o svcOptions
	f.BoolVar(&o.publishNotReady, "publish-not-ready-addresses", false, "")
	f.BoolVar(&o.noNetworkPolicy, "disable-network-policy", false, "")
	f.BoolVar(&o.hostsEnv, "inject-hosts-env", true, "=BOOL")
	return effects{objects: o.newObjects, changePod: o.addHosts, countReferences: o.countReferences}
}

// countReferences returns the number of variables with hosts and their number.
func (o *svcOptions) countReferences(s *batchv1.JobSpec) int {
	if !o.hostsEnv {
		return 0
	}
	return 2 * len(s.Tasks)
}

// svcName returns the name of the Service, which is also the subdomain of the Pods.
func svcName(j *batchv1.Job) string { return naming.LabelValue(j.Name) }

func hostsName(j *batchv1.Job) string { return naming.ChildName(naming.MaxName, j.Name, "svc") }

func (o *svcOptions) newObjects(b *builder) []client.Object {
	all := []client.Object{newService(b.job, o), &corev1.ConfigMap{ObjectMeta: ownedMeta(b.job, hostsName(b.job)), Data: b.hostsData()}}
	if !o.noNetworkPolicy {
		all = append(all, newNetworkPolicy(b.job))
	}
	return all
}

func podSelector(j *batchv1.Job) map[string]string {
	return map[string]string{batchv1.KeyJobName: naming.LabelValue(j.Name), batchv1.KeyJobNamespace: j.Namespace}
}

// newService returns a headless Service for the Pods' addresses.
func newService(j *batchv1.Job, o *svcOptions) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: ownedMeta(j, svcName(j)),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			Selector:                 podSelector(j),
			PublishNotReadyAddresses: o.publishNotReady,
			// Some clusters publish no address for a Service without a port.
			Ports: []corev1.ServicePort{{Name: "placeholder-volcano", Port: 1, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// hostsData returns the host names of each task's replicas, as the data of a ConfigMap.
func (b *builder) hostsData() map[string]string {
	data := map[string]string{}
	for i := range b.spec.Tasks {
		t := &b.spec.Tasks[i]
		maps.Copy(data, map[string]string{
			t.Name + ".host": strings.Join(b.hosts[t.Name], "\n"),
			hostsVar(t.Name): strings.Join(b.hosts[t.Name], ","),
			numVar(t.Name):   fmt.Sprint(t.Replicas),
		})
	}
	return data
}

func hostsVar(task string) string { return "VC_" + envName(task) + "_HOSTS" }

func numVar(task string) string { return "VC_" + envName(task) + "_NUM" }

func envName(task string) string { return strings.ToUpper(strings.ReplaceAll(task, "-", "_")) }

// newNetworkPolicy returns a policy that lets only the Job's own Pods connect to each
// other.
func newNetworkPolicy(j *batchv1.Job) *networkingv1.NetworkPolicy {
	mine := metav1.LabelSelector{MatchLabels: podSelector(j)}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: ownedMeta(j, svcName(j)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: mine,
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &mine}}}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
}

// addHosts gives a Pod its DNS name and the lists of hosts.
func (o *svcOptions) addHosts(b *builder, r replica, pod *corev1.Pod) {
	pod.Spec.Hostname = b.shortHostName(r.task, r.index)
	pod.Spec.Subdomain = cmp.Or(pod.Spec.Subdomain, svcName(b.job))
	from := corev1.LocalObjectReference{Name: hostsName(b.job)}
	volume := newVolumeName(b.job, "svc")
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name:         volume,
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: from}},
	})
	var vars []corev1.EnvVar
	if o.hostsEnv {
		vars = hostsEnv(b.spec, from)
	}
	eachContainer(pod, func(c *corev1.Container) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: hostsPath})
		setEnv(c, vars)
	})
}

// hostsEnv returns the variables with the hosts of each task, and their number.
func hostsEnv(spec *batchv1.JobSpec, from corev1.LocalObjectReference) []corev1.EnvVar {
	var vars []corev1.EnvVar
	for i := range spec.Tasks {
		for _, v := range []string{hostsVar(spec.Tasks[i].Name), numVar(spec.Tasks[i].Name)} {
			ref := &corev1.ConfigMapKeySelector{LocalObjectReference: from, Key: v}
			vars = append(vars, corev1.EnvVar{Name: v, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: ref}})
		}
	}
	return vars
}
