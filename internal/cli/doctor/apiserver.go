package doctor

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// oldestVersion is the first version of Kubernetes that enables ValidatingAdmissionPolicy by default.
const oldestVersion = "1.30.0"

// checkAPIServer checks the version of the API server. It also reports whether the API server answers;
// if not, no other check is possible.
func checkAPIServer(ctx context.Context, c Cluster) (found []Finding, answers bool) {
	const check = "API server"
	text, err := c.Version(ctx)
	if err != nil {
		return newProblem(Fail, check, fmt.Sprintf("%s does not answer: %v", c.Server, err), "start it, or select another cluster with --kubeconfig or --context"), false
	}
	v, err := version.ParseGeneric(text)
	if err == nil && v.Major() == 0 {
		return checkUnstamped(ctx, c, check), true
	}
	switch {
	case err != nil:
		return newProblem(Warn, check, fmt.Sprintf("%s reports version %q, which is not a version of Kubernetes", c.Server, text), "use Kubernetes "+oldestVersion+" or newer"), true
	case v.LessThan(version.MustParseGeneric(oldestVersion)):
		return newProblem(Fail, check, fmt.Sprintf("%s has version %s, which does not serve ValidatingAdmissionPolicy: invalid objects are not rejected", c.Server, text),
			"use Kubernetes "+oldestVersion+" or newer"), true
	}
	return newOK(check, "%s has version %s", c.Server, text), true
}

// checkUnstamped checks an API server that was built without a version, as in k8s4r up, by the
// resources that it serves.
func checkUnstamped(ctx context.Context, c Cluster, check string) []Finding {
	err := c.List(ctx, &admissionv1.ValidatingAdmissionPolicyList{}, client.Limit(1))
	switch {
	case apierrors.IsNotFound(err):
		return newProblem(Fail, check, c.Server+" does not serve ValidatingAdmissionPolicy: invalid objects are not rejected", "use Kubernetes "+oldestVersion+" or newer")
	case err != nil:
		return newUnknown(check, err)
	}
	return newOK(check, "%s answers and serves all APIs that K8s4r needs", c.Server)
}
