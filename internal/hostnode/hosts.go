package hostnode

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// listOptions are the options of an informer's requests.
type listOptions = metav1.ListOptions

var everything = labels.Everything()

const (
	hostsPath     = "/etc/hosts"
	clusterDomain = "cluster.local"
)

// services provides the Services that the /etc/hosts of pods contain.
type services struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

// watchServices updates the /etc/hosts of pods when Services change.
func (n *Node) watchServices(ctx context.Context) error {
	if n.network == nil {
		return nil
	}
	factory := informers.NewSharedInformerFactory(n.client, 0)
	svc, eps := factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()
	n.services = services{svc.Lister(), eps.Lister()}
	for _, informer := range []cache.SharedIndexInformer{svc.Informer(), eps.Informer()} {
		renew := func(any) { n.updateHosts() }
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: renew, UpdateFunc: func(_, o any) { renew(o) }, DeleteFunc: renew,
		})
		if err != nil {
			return err
		}
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	return nil
}

// updateHosts has all pods rewrite their /etc/hosts: each contains the names of all namespaces.
func (n *Node) updateHosts() {
	if n.network == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.workers {
		if w.hostsUpdatePending.CompareAndSwap(false, true) {
			w.enqueue(func(context.Context) {
				w.hostsUpdatePending.Store(false)
				if err := w.writeHosts(); err != nil {
					n.log.Warn("cannot write the /etc/hosts of a pod", "pod", w.key, "error", err)
				}
			})
		}
	}
}

// writeHosts writes the pod's /etc/hosts. It does not replace the file, since the mount refers to
// the file and not to its name.
func (w *worker) writeHosts() error {
	if !w.ownsHosts() || w.podIP == "" {
		return nil
	}
	text := formatHosts(w.pod, w.podIP, w.node.clusterNames(w.pod.Namespace))
	if have, err := os.ReadFile(w.paths.hostsFile()); err == nil && bytes.Equal(have, text) {
		return nil
	}
	return os.WriteFile(w.paths.hostsFile(), text, 0o644)
}

// hostsEntry is a line of /etc/hosts.
type hostsEntry struct {
	address string
	names   []string
}

// formatHosts returns the /etc/hosts of a pod.
func formatHosts(pod *corev1.Pod, address string, others []hostsEntry) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "# Written by hostnode. The address of a Service is that of one of its ready pods.")
	fmt.Fprintln(&b, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback")
	own := podHostname(pod)
	if pod.Spec.Subdomain != "" {
		own = strings.Join([]string{own, pod.Spec.Subdomain, pod.Namespace, "svc", clusterDomain}, ".") + "\t" + own
	}
	fmt.Fprintf(&b, "%s\t%s\n", address, own)
	for _, a := range pod.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	for _, n := range others {
		fmt.Fprintf(&b, "%s\t%s\n", n.address, strings.Join(n.names, "\t"))
	}
	return b.Bytes()
}

// clusterNames returns the names of the cluster as seen from a namespace, sorted.
func (n *Node) clusterNames(namespace string) []hostsEntry {
	var all []hostsEntry
	if n.services.services == nil {
		return nil
	}
	found, _ := n.services.services.List(everything)
	slices.SortFunc(found, func(a, b *corev1.Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range found {
		if address := n.addressOf(s); address != "" {
			all = append(all, hostsEntry{address, serviceNames(s.Name, s.Namespace, namespace)})
		}
	}
	return append(all, n.podNames(namespace)...)
}

// serviceNames returns the names of a service, or of a pod below one, as seen from a namespace.
func serviceNames(service, namespace, from string) []string {
	names := []string{service + "." + namespace, service + "." + namespace + ".svc", service + "." + namespace + ".svc." + clusterDomain}
	if namespace == from {
		names = append([]string{service}, names...)
	}
	return names
}

// addressOf returns the first ready address of a service. It is empty if there is none.
func (n *Node) addressOf(s *corev1.Service) string {
	if s.Name == "kubernetes" && s.Namespace == corev1.NamespaceDefault {
		return n.api.host
	}
	found, _ := n.services.slices.EndpointSlices(s.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: s.Name}))
	var ready []string
	for _, slice := range found {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready = append(ready, e.Addresses...)
			}
		}
	}
	if len(ready) == 0 {
		return ""
	}
	return slices.Min(ready)
}

// podNames returns the names of pods that have a hostname below a headless service.
func (n *Node) podNames(namespace string) []hostsEntry {
	var all []hostsEntry
	pods, _ := n.pods.List(everything)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range pods {
		if p.Spec.Hostname == "" || p.Spec.Subdomain == "" || p.Status.PodIP == "" || isTerminal(p) {
			continue
		}
		if _, err := n.services.services.Services(p.Namespace).Get(p.Spec.Subdomain); err != nil {
			continue
		}
		all = append(all, hostsEntry{p.Status.PodIP, serviceNames(p.Spec.Hostname+"."+p.Spec.Subdomain, p.Namespace, namespace)})
	}
	return all
}
