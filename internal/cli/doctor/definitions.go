package doctor

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/platform/crds"
)

// install is the command that installs the CRDs. The API server rejects it for CRDs that have
// another owner.
const install = "kubectl apply --server-side --field-manager=k8s4r -k config"

// checkDefinitions checks that the CRDs of K8s4r exist, and to whom they belong.
func checkDefinitions(ctx context.Context, c Cluster) []Finding {
	ours, err := crds.ReadCRDs(config.FS)
	if err != nil {
		return newUnknown("definitions", err)
	}
	var found []Finding
	for _, crd := range ours {
		is, err := definitionNamed(ctx, c, crd.GetName())
		found = append(found, compareDefinition(crd, is, err)...)
	}
	return found
}

func definitionNamed(ctx context.Context, c Cluster, name string) (*unstructured.Unstructured, error) {
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(definitionVersion.WithKind("CustomResourceDefinition"))
	return is, c.Get(ctx, client.ObjectKey{Name: name}, is)
}

// compareDefinition compares our CRD with the one in the cluster. err is the error of reading the
// latter.
func compareDefinition(ours, is *unstructured.Unstructured, err error) []Finding {
	check := "definition " + ours.GetName()
	if apierrors.IsNotFound(err) {
		return newProblem(Fail, check, "is missing: the controllers of that kind do not start", install)
	}
	if err != nil {
		return newUnknown(check, err)
	}
	lacks, foreign := crds.MissingFields(ours, is), crds.IsForeign(ours, is)
	switch {
	case !crds.IsEstablished(is):
		return newProblem(Fail, check, "is not established: the API server does not serve it", "kubectl describe crd "+ours.GetName()+" says why")
	case foreign && len(lacks) > 0:
		return newProblem(Warn, check, "is somebody else's; "+crds.DescribeMissing(lacks), "do without these fields, or have its owner remove it and then "+install)
	case foreign:
		return newOK(check, "is somebody else's; %s", crds.DescribeMissing(nil))
	case len(lacks) > 0:
		return newProblem(Warn, check, "is that of another version of K8s4r; "+crds.DescribeMissing(lacks), install)
	}
	return newOK(check, "is K8s4r's")
}
