package doctor

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// oldest is the first version of Kubernetes whose API servers judge by policies in
// CEL without being asked to.
const oldest = "1.30.0"

// apiServer tells also whether there is one, without which nothing can be asked.
func apiServer(ctx context.Context, c Cluster) (found []Finding, answers bool) {
	const check = "API server"
	text, err := c.Version(ctx)
	if err != nil {
		return bad(Fail, check, fmt.Sprintf("%s does not answer: %v", c.Server, err), "start it, or name another with --kubeconfig or --context"), false
	}
	v, err := version.ParseGeneric(text)
	if err == nil && v.Major() == 0 {
		return unstamped(ctx, c, check), true
	}
	switch {
	case err != nil:
		return bad(Warn, check, fmt.Sprintf("%s has the version %q, which says nothing", c.Server, text), "use Kubernetes "+oldest+" or newer"), true
	case v.LessThan(version.MustParseGeneric(oldest)):
		return bad(Fail, check, fmt.Sprintf("%s has version %s, which lacks ValidatingAdmissionPolicy: what is wrong in an object is not refused", c.Server, text),
			"use Kubernetes "+oldest+" or newer"), true
	}
	return good(check, "%s has version %s", c.Server, text), true
}

// unstamped judges an API server that was built without a version, as that in k8s4r
// up is, by what it serves.
func unstamped(ctx context.Context, c Cluster, check string) []Finding {
	err := c.List(ctx, &admissionv1.ValidatingAdmissionPolicyList{}, client.Limit(1))
	switch {
	case apierrors.IsNotFound(err):
		return bad(Fail, check, c.Server+" does not serve ValidatingAdmissionPolicy: what is wrong in an object is not refused", "use Kubernetes "+oldest+" or newer")
	case err != nil:
		return unknown(check, err)
	}
	return good(check, "%s answers, and serves what K8s4r needs", c.Server)
}
