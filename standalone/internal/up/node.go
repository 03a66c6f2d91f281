package up

import (
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"k8s4r.io/k8s4r/internal/hostnode"
	"k8s4r.io/k8s4r/standalone/internal/component"
	"k8s4r.io/k8s4r/standalone/internal/robots"
)

// nodeName is the name of the only node.
const nodeName = "hostnode"

// nodeName returns the name of the node. If there is none in this process, it is empty.
func (o *options) nodeName() string {
	if !o.includesPart(partNode) {
		return ""
	}
	return nodeName
}

// addNode adds the node, whose pods are processes of this machine.
func (s *system) addNode() error {
	if !s.opts.includesPart(partNode) {
		return nil
	}
	agent, err := robots.FindAgent()
	if err != nil {
		return err
	}
	capacity, err := s.opts.parseCapacity()
	if err != nil {
		return err
	}
	pods, err := s.opts.parsePodRange()
	if err != nil {
		return err
	}
	node, err := hostnode.New(hostnode.Config{
		Name: nodeName, Client: actAs(nodeAccount, s.client), Dir: s.dir.Join("node"), Program: agent, Capacity: capacity, PodRange: pods,
		Listener: s.kubeletPort, Certificate: s.kubelet.Certificate, ClientCA: s.kubelet.ClientCA, ClientName: s.kubelet.ClientName,
		Log: s.terminal,
	})
	if err != nil {
		return err
	}
	s.group.Add("node", component.NewBackground(node.Run, node.Ready))
	return nil
}

func (o *options) validateNode() error {
	_, capacity := o.parseCapacity()
	_, pods := o.parsePodRange()
	return errors.Join(capacity, pods)
}

func (o *options) parseCapacity() (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for name, text := range o.nodeCapacity {
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 || name == "" {
			return nil, fmt.Errorf("--node-capacity=%s=%s: must be a resource and a quantity, such as memory=32Gi", name, text)
		}
		list[corev1.ResourceName(name)] = q
	}
	return list, nil
}

func (o *options) parsePodRange() (netip.Prefix, error) {
	p, err := netip.ParsePrefix(o.podRange)
	if err != nil || !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 30 {
		return netip.Prefix{}, fmt.Errorf("--pod-range=%s: must be an IPv4 range of /8 to /30, such as 10.244.77.0/24", o.podRange)
	}
	return p.Masked(), nil
}
