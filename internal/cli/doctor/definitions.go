package doctor

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/platform/crds"
)

// installCommand is the command that installs the CRDs. The API server rejects it for CRDs that have
// another owner.
const installCommand = "kubectl apply --server-side --field-manager=k8s4r -k config"

// OurDefinitions returns the CRDs of this version, which callers must not change. They are parsed
// once, because that is slow.
var OurDefinitions = sync.OnceValues(func() ([]*unstructured.Unstructured, error) { return crds.ReadCRDs(config.FS) })

// checkDefinitions checks that the CRDs of K8s4r exist, and whether another operator installed them.
func checkDefinitions(ctx context.Context, c Cluster) []Finding {
	ours, err := OurDefinitions()
	if err != nil {
		return newUnknown("definitions", err)
	}
	var found []Finding
	for _, crd := range ours {
		is, err := getDefinition(ctx, c, crd.GetName())
		found = append(found, compareDefinition(crd, is, err)...)
	}
	return found
}

func getDefinition(ctx context.Context, c Cluster, name string) (*unstructured.Unstructured, error) {
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(crdVersion.WithKind("CustomResourceDefinition"))
	return is, c.Get(ctx, client.ObjectKey{Name: name}, is)
}

// compareDefinition compares our CRD with the one in the cluster. err is the error of reading the
// latter.
func compareDefinition(ours, is *unstructured.Unstructured, err error) []Finding {
	check := "CRD " + ours.GetName()
	if apierrors.IsNotFound(err) {
		return newProblem(Fail, check, "is not installed: the controllers of this kind do not start", installCommand)
	}
	if err != nil {
		return newUnknown(check, err)
	}
	lacks, foreign := crds.MissingFields(ours, is), crds.IsForeign(ours, is)
	switch {
	case !crds.IsEstablished(is):
		return newProblem(Fail, check, "is not established: the API server does not serve this kind", "see the conditions: kubectl describe crd "+ours.GetName())
	case foreign && len(lacks) > 0:
		return newProblem(Warn, check, "was not installed by K8s4r; "+crds.DescribeMissing(lacks), "leave these fields out, or have its owner delete the CRD, with all objects of the kind, and then "+installCommand)
	case foreign:
		return newOK(check, "was not installed by K8s4r; %s", crds.DescribeMissing(nil))
	case len(lacks) > 0:
		return newProblem(Warn, check, "is from another version of K8s4r; "+crds.DescribeMissing(lacks), installCommand)
	}
	return newOK(check, "is from K8s4r")
}
