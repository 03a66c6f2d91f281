package build

import (
	"fmt"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// checkNetworkPolicy checks that each rule has an effect, and that each group has one entry.
func (f *findings) checkNetworkPolicy(c *rayv1.RayCluster) {
	spec := c.Spec.NetworkPolicy
	if spec == nil {
		return
	}
	const at = "spec.networkPolicy"
	f.checkPolicyRules(spec.Mode, rulesOrNone(spec.Head), at+".head")
	f.checkPolicyRules(spec.Mode, rulesOrNone(spec.Worker), at+".worker")
	names := map[string]bool{}
	for i := range spec.WorkerGroups {
		g := &spec.WorkerGroups[i]
		f.addIf(names[g.GroupName], "%s.workerGroups: several entries are for group %s; merge them into one", at, g.GroupName)
		names[g.GroupName] = true
		f.checkPolicyRules(spec.Mode, g.NetworkPolicyRules, fmt.Sprintf("%s.workerGroups[%.64s]", at, g.GroupName))
	}
}

func (f *findings) checkPolicyRules(mode rayv1.NetworkPolicyMode, rules rayv1.NetworkPolicyRules, at string) {
	f.addIf(!restrictsIngress(mode) && len(rules.IngressRules) > 0, "%s.ingressRules: mode DenyAllEgress allows all ingress; omit the rules, or use mode DenyAll", at)
	f.addIf(!restrictsEgress(mode) && len(rules.EgressRules) > 0, "%s.egressRules: mode DenyAllIngress allows all egress; omit the rules, or use mode DenyAll", at)
}
