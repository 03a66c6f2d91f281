package doctor

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/definition"
)

// policies looks for those of ours that judge a kind which is somebody else's, and
// has admission of its own, and for those of another version.
func policies(ctx context.Context, c Cluster) []Finding {
	const check = "admission policies"
	var all admissionv1.ValidatingAdmissionPolicyList
	if err := c.List(ctx, &all); err != nil {
		return unknown(check, err)
	}
	whose, err := foreign(ctx, c)
	if err != nil {
		return unknown(check, err)
	}
	ours, err := definition.Policies(config.FS)
	if err != nil {
		return unknown(check, err)
	}
	var found []Finding
	for i := range all.Items {
		p := &all.Items[i]
		if definition.Outlived(ours, p) {
			found = append(found, bad(Warn, check, fmt.Sprintf("%s is of another version of K8s4r than this program, and may refuse what this version allows", p.Name),
				"if no other version is meant to be here, kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy "+p.Name)...)
		}
		if kind := p.Annotations[definition.AnnotationOnlyWith]; whose[kind] {
			found = append(found, bad(Warn, check, fmt.Sprintf("%s of K8s4r judges the objects of %s, which is somebody else's", p.Name, kind),
				"kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding "+p.Name)...)
		}
	}
	if len(found) > 0 {
		return found
	}
	return good(check, "none of K8s4r's judges somebody else's kind, or is of another version")
}

// foreign are the definitions of the cluster that are somebody else's.
func foreign(ctx context.Context, c Cluster) (map[string]bool, error) {
	ours, err := definition.All(config.FS)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, crd := range ours {
		is, err := definitionNamed(ctx, c, crd.GetName())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[crd.GetName()] = definition.Foreign(crd, is)
	}
	return all, nil
}
