package build

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// NetworkPolicies returns the policies of a cluster: that of the head, and one of each worker group
// in the order of the spec. It returns nil if the spec does not restrict connections.
func NetworkPolicies(c *rayv1.RayCluster) []*networkingv1.NetworkPolicy {
	spec := c.Spec.NetworkPolicy
	if spec == nil {
		return nil
	}
	head := newNetworkPolicy(c, c.Name+"-head", headNode(c))
	allowConnections(c, head, submitterRules(c), rulesOrNone(spec.Head))
	all := []*networkingv1.NetworkPolicy{head}
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		policy := newNetworkPolicy(c, c.Name+"-workers-"+policySuffix(g.GroupName), workerNode(g))
		policy.Spec.PodSelector.MatchLabels[rayv1.LabelGroup] = g.GroupName
		allowConnections(c, policy, nil, groupRules(spec, g.GroupName))
		all = append(all, policy)
	}
	return all
}

// policySuffix returns the name of a group as a part of an object's name. Groups whose names differ
// only in the case of letters get different ones.
func policySuffix(group string) string {
	lower := strings.ToLower(group)
	if lower == group {
		return group
	}
	h := fnv.New32a()
	h.Write([]byte(group))
	return fmt.Sprintf("%s-%08x", lower, h.Sum32())
}

func newNetworkPolicy(c *rayv1.RayCluster, name string, n *node) *networkingv1.NetworkPolicy {
	labels := ofCluster(c)
	labels[rayv1.LabelGroup] = n.group
	policy := &networkingv1.NetworkPolicy{ObjectMeta: ownedMeta(c, name, labels)}
	policy.Spec.PodSelector.MatchLabels = map[string]string{rayv1.LabelCluster: c.Name, rayv1.LabelNodeType: n.kind}
	mode := c.Spec.NetworkPolicy.Mode
	if restrictsIngress(mode) {
		policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	}
	if restrictsEgress(mode) {
		policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
	return policy
}

func restrictsIngress(mode rayv1.NetworkPolicyMode) bool { return mode != rayv1.DenyAllEgress }
func restrictsEgress(mode rayv1.NetworkPolicyMode) bool  { return mode != rayv1.DenyAllIngress }

// allowConnections sets the rules for the directions that the policy restricts: connections between
// the Pods of the cluster, those in more, and those of the user.
func allowConnections(c *rayv1.RayCluster, policy *networkingv1.NetworkPolicy, more []networkingv1.NetworkPolicyIngressRule, rules rayv1.NetworkPolicyRules) {
	cluster := []networkingv1.NetworkPolicyPeer{podsWith(map[string]string{rayv1.LabelCluster: c.Name})}
	if slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		policy.Spec.Ingress = append([]networkingv1.NetworkPolicyIngressRule{{From: cluster}}, more...)
		for i := range rules.IngressRules {
			rule := rules.IngressRules[i].DeepCopy()
			setProtocols(rule.Ports)
			policy.Spec.Ingress = append(policy.Spec.Ingress, *rule)
		}
	}
	if slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: cluster}}
		for i := range rules.EgressRules {
			rule := rules.EgressRules[i].DeepCopy()
			setProtocols(rule.Ports)
			policy.Spec.Egress = append(policy.Spec.Egress, *rule)
		}
	}
}

func podsWith(labels map[string]string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: labels}}
}

// setProtocols sets the default of the API server, with which the policy is compared later.
func setProtocols(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			tcp := corev1.ProtocolTCP
			ports[i].Protocol = &tcp
		}
	}
}

// submitterRules allows the Pods that submit the work of a RayJob to connect to the dashboard.
func submitterRules(c *rayv1.RayCluster) []networkingv1.NetworkPolicyIngressRule {
	owner := metav1.GetControllerOf(c)
	if owner == nil || owner.Kind != "RayJob" || c.Labels[rayv1.LabelSubmissionMode] != rayv1.SubmittedByJob {
		return nil
	}
	port := intstr.FromInt32(portNumber(dashboardPort(c)))
	ports := []networkingv1.NetworkPolicyPort{{Port: &port}}
	setProtocols(ports)
	return []networkingv1.NetworkPolicyIngressRule{{
		From:  []networkingv1.NetworkPolicyPeer{podsWith(map[string]string{rayv1.LabelOriginatedFromKind: owner.Kind, rayv1.LabelOriginatedFromName: owner.Name})},
		Ports: ports,
	}}
}

// groupRules returns the user's rules of a worker group: its own entry, or else those of all
// workers.
func groupRules(spec *rayv1.NetworkPolicySpec, group string) rayv1.NetworkPolicyRules {
	for i := range spec.WorkerGroups {
		if spec.WorkerGroups[i].GroupName == group {
			return spec.WorkerGroups[i].NetworkPolicyRules
		}
	}
	return rulesOrNone(spec.Worker)
}

func rulesOrNone(rules *rayv1.NetworkPolicyRules) rayv1.NetworkPolicyRules {
	if rules == nil {
		return rayv1.NetworkPolicyRules{}
	}
	return *rules
}
