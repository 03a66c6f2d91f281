package doctor

import (
	"context"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/platform/crds"
)

// ourPolicyNames returns the names of the policies and bindings of this version. They are parsed
// once, because that is slow.
var ourPolicyNames = sync.OnceValues(func() (map[string]bool, error) { return crds.ReadPolicyNames(config.FS) })

// checkPolicies reports our policies for kinds that have another owner and its admission, and
// policies of another version of K8s4r.
func checkPolicies(ctx context.Context, c Cluster) []Finding {
	const check = "admission policies"
	var all admissionv1.ValidatingAdmissionPolicyList
	if err := c.List(ctx, &all); err != nil {
		return newUnknown(check, err)
	}
	whose, err := listForeignDefinitions(ctx, c)
	if err != nil {
		return newUnknown(check, err)
	}
	ours, err := ourPolicyNames()
	if err != nil {
		return newUnknown(check, err)
	}
	var found []Finding
	for i := range all.Items {
		p := &all.Items[i]
		if crds.IsObsoletePolicy(ours, p) {
			found = append(found, newProblem(Warn, check, fmt.Sprintf("%s is from another version of K8s4r and may reject objects that this version allows", p.Name),
				"if no other version is in use: kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy "+p.Name)...)
		}
		if kind := p.Annotations[crds.AnnotationOnlyWith]; whose[kind] {
			found = append(found, newProblem(Warn, check, fmt.Sprintf("%s of K8s4r validates objects of %s, whose CRD was not installed by K8s4r", p.Name, kind),
				"kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding "+p.Name)...)
		}
	}
	if len(found) > 0 {
		return found
	}
	return newOK(check, "no policy of K8s4r validates a kind of another operator, and none is from another version")
}

// listForeignDefinitions returns the names of our CRDs that exist in the cluster, mapped to whether
// they have another owner.
func listForeignDefinitions(ctx context.Context, c Cluster) (map[string]bool, error) {
	ours, err := OurDefinitions()
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, crd := range ours {
		is, err := getDefinition(ctx, c, crd.GetName())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[crd.GetName()] = crds.IsForeign(crd, is)
	}
	return all, nil
}
