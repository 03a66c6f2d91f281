package vcjob

import (
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
)

// pluginSvc gives each Pod a name in the DNS and a list of the others.
const pluginSvc = "svc"

// hostsPath is where the containers find the lists as files.
const hostsPath = "/etc/volcano"

// svcOptions are the arguments of the plugin.
type svcOptions struct {
	publishNotReady bool
	noNetworkPolicy bool
	hostsEnv        bool
	// wrong is a sentence about arguments that are none.
	wrong string
}

// svcFlags reads the arguments of the plugin.
func svcFlags(args []string) svcOptions {
	var o svcOptions
	f := pflag.NewFlagSet(pluginSvc, pflag.ContinueOnError)
	f.Usage = func() {}
	f.BoolVar(&o.publishNotReady, "publish-not-ready-addresses", false, "")
	f.BoolVar(&o.noNetworkPolicy, "disable-network-policy", false, "")
	f.BoolVar(&o.hostsEnv, "inject-hosts-env", true, "")
	if err := f.Parse(args); err != nil {
		o.wrong = fmt.Sprintf("spec.plugins.svc: %v; it takes --publish-not-ready-addresses, --disable-network-policy and --inject-hosts-env", err)
	}
	return o
}

// svcName names the Service, and is the subdomain of the Pods.
func svcName(j *batchv1.Job) string { return child.Label(j.Name) }

// hostName of a replica. It is a label of the DNS, so it is no longer than one.
func hostName(pod string) string { return child.Label(pod) }

func hostsName(j *batchv1.Job) string { return child.Name(child.MaxName, j.Name, "svc") }

// svcObjects are what the plugin makes, if the Job has it.
func svcObjects(j *batchv1.Job, spec *batchv1.JobSpec) []client.Object {
	args, on := spec.Plugins[pluginSvc]
	if !on {
		return nil
	}
	o := svcFlags(args)
	all := []client.Object{service(j, o), hosts(j, spec)}
	if !o.noNetworkPolicy {
		all = append(all, networkPolicy(j))
	}
	return all
}

func podsOf(j *batchv1.Job) map[string]string {
	return map[string]string{batchv1.KeyJobName: child.Label(j.Name), batchv1.KeyJobNamespace: j.Namespace}
}

// service is headless: it stands for the Pods' addresses, not for one of its own.
func service(j *batchv1.Job, o svcOptions) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: owned(j, svcName(j)),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			Selector:                 podsOf(j),
			PublishNotReadyAddresses: o.publishNotReady,
			// Some clusters publish no address for a Service without a port.
			Ports: []corev1.ServicePort{{Name: "placeholder-volcano", Port: 1, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// hosts lists the host names of each task's replicas.
func hosts(j *batchv1.Job, spec *batchv1.JobSpec) *corev1.ConfigMap {
	data := map[string]string{}
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		names := make([]string, t.Replicas)
		for n := range names {
			names[n] = hostName(podName(j.Name, t.Name, n)) + "." + svcName(j)
		}
		maps.Copy(data, map[string]string{
			t.Name + ".host": strings.Join(names, "\n"),
			hostsVar(t.Name): strings.Join(names, ","),
			numVar(t.Name):   fmt.Sprint(t.Replicas),
		})
	}
	return &corev1.ConfigMap{ObjectMeta: owned(j, hostsName(j)), Data: data}
}

func hostsVar(task string) string { return "VC_" + variable(task) + "_HOSTS" }

func numVar(task string) string { return "VC_" + variable(task) + "_NUM" }

func variable(task string) string { return strings.ToUpper(strings.ReplaceAll(task, "-", "_")) }

// networkPolicy lets the Job's Pods be reached by each other, and by no others.
func networkPolicy(j *batchv1.Job) *networkingv1.NetworkPolicy {
	mine := metav1.LabelSelector{MatchLabels: podsOf(j)}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: owned(j, svcName(j)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: mine,
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &mine}}}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
}

// addHosts gives a Pod its name in the DNS and the lists of names.
func addHosts(j *batchv1.Job, spec *batchv1.JobSpec, pod *corev1.Pod, o svcOptions) {
	pod.Spec.Hostname = or(pod.Spec.Hostname, hostName(pod.Name))
	pod.Spec.Subdomain = or(pod.Spec.Subdomain, svcName(j))
	name := hostsName(j)
	from := corev1.LocalObjectReference{Name: name}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name:         "vcjob-hosts",
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: from}},
	})
	eachContainer(pod, func(c *corev1.Container) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "vcjob-hosts", MountPath: hostsPath, ReadOnly: true})
		if !o.hostsEnv {
			return
		}
		for i := range spec.Tasks {
			for _, v := range []string{hostsVar(spec.Tasks[i].Name), numVar(spec.Tasks[i].Name)} {
				ref := &corev1.ConfigMapKeySelector{LocalObjectReference: from, Key: v}
				setEnv(c, corev1.EnvVar{Name: v, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: ref}})
			}
		}
	})
}
