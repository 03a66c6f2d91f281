package vcjob

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/pflag"
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
	// problem describes invalid arguments. Empty if they are valid.
	problem string
}

// parseSvcFlags parses the arguments of the plugin.
func parseSvcFlags(args []string) svcOptions {
	var o svcOptions
	f := pflag.NewFlagSet(pluginSvc, pflag.ContinueOnError)
	f.Usage = func() {}
	f.BoolVar(&o.publishNotReady, "publish-not-ready-addresses", false, "")
	f.BoolVar(&o.noNetworkPolicy, "disable-network-policy", false, "")
	f.BoolVar(&o.hostsEnv, "inject-hosts-env", true, "")
	if err := f.Parse(args); err != nil {
		o.problem = fmt.Sprintf("spec.plugins.svc: %v; allowed are --publish-not-ready-addresses, --disable-network-policy and --inject-hosts-env", err)
	}
	return o
}

// svcName returns the name of the Service, which is also the subdomain of the Pods.
func svcName(j *batchv1.Job) string { return naming.LabelValue(j.Name) }

// hostName returns the host name of a replica, shortened to a DNS label.
func hostName(pod string) string { return naming.LabelValue(pod) }

func hostsName(j *batchv1.Job) string { return naming.ChildName(naming.MaxName, j.Name, "svc") }

// svcObjects returns the objects of the svc plugin, if the Job uses it. hosts is the data of the
// ConfigMap.
func svcObjects(j *batchv1.Job, spec *batchv1.JobSpec, hosts map[string]string) []client.Object {
	args, on := spec.Plugins[pluginSvc]
	if !on {
		return nil
	}
	o := parseSvcFlags(args)
	all := []client.Object{newService(j, o), &corev1.ConfigMap{ObjectMeta: ownedMeta(j, hostsName(j)), Data: hosts}}
	if !o.noNetworkPolicy {
		all = append(all, newNetworkPolicy(j))
	}
	return all
}

func podSelector(j *batchv1.Job) map[string]string {
	return map[string]string{batchv1.KeyJobName: naming.LabelValue(j.Name), batchv1.KeyJobNamespace: j.Namespace}
}

// newService returns a headless Service for the Pods' addresses.
func newService(j *batchv1.Job, o svcOptions) *corev1.Service {
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

// maxHostsBytes is the size of the data that a ConfigMap can hold.
const maxHostsBytes = 1 << 20

// listHosts returns the host names of each task's replicas, as the data of a ConfigMap. It reports
// false, and stops, if they are too long for one.
func listHosts(j *batchv1.Job, spec *batchv1.JobSpec) (data map[string]string, ok bool) {
	data = map[string]string{}
	left := maxHostsBytes
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		var names []string
		for index := range int(t.Replicas) {
			name := hostName(podName(j.Name, t.Name, index)) + "." + svcName(j)
			if left -= 2 * len(name+","); left < 0 { // each name is in two lists
				return nil, false
			}
			names = append(names, name)
		}
		maps.Copy(data, map[string]string{
			t.Name + ".host": strings.Join(names, "\n"),
			hostsVar(t.Name): strings.Join(names, ","),
			numVar(t.Name):   fmt.Sprint(t.Replicas),
		})
	}
	return data, true
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
func addHosts(j *batchv1.Job, spec *batchv1.JobSpec, pod *corev1.Pod, o svcOptions) {
	pod.Spec.Hostname = cmp.Or(pod.Spec.Hostname, hostName(pod.Name))
	pod.Spec.Subdomain = cmp.Or(pod.Spec.Subdomain, svcName(j))
	name := hostsName(j)
	from := corev1.LocalObjectReference{Name: name}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name:         "vcjob-hosts",
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: from}},
	})
	var vars []corev1.EnvVar
	if o.hostsEnv {
		vars = hostsEnv(spec, from)
	}
	eachContainer(pod, func(c *corev1.Container) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "vcjob-hosts", MountPath: hostsPath, ReadOnly: true})
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
