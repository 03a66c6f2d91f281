package doctor

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/definition"
)

// install is how definitions come into a cluster. The API server refuses it for those
// that are somebody else's.
const install = "kubectl apply --server-side --field-manager=k8s4r -k config"

// definitions looks for our kinds, and whose they are.
func definitions(ctx context.Context, c Cluster) []Finding {
	ours, err := definition.All(config.FS)
	if err != nil {
		return unknown("definitions", err)
	}
	var found []Finding
	for _, crd := range ours {
		is, err := definitionNamed(ctx, c, crd.GetName())
		found = append(found, judge(crd, is, err)...)
	}
	return found
}

func definitionNamed(ctx context.Context, c Cluster, name string) (*unstructured.Unstructured, error) {
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(definitionVersion.WithKind("CustomResourceDefinition"))
	return is, c.Get(ctx, client.ObjectKey{Name: name}, is)
}

// judge compares ours with what there is.
func judge(ours, is *unstructured.Unstructured, err error) []Finding {
	check := "definition " + ours.GetName()
	if apierrors.IsNotFound(err) {
		return bad(Fail, check, "is missing: the controllers of that kind do not start", install)
	}
	if err != nil {
		return unknown(check, err)
	}
	lacks, foreign := definition.Lacks(ours, is), definition.Foreign(ours, is)
	switch {
	case !definition.Established(is):
		return bad(Fail, check, "is not established: the API server does not serve it", "kubectl describe crd "+ours.GetName()+" says why")
	case foreign && len(lacks) > 0:
		return bad(Warn, check, "is somebody else's; "+definition.Dropped(lacks), "do without these fields, or have its owner remove it and then "+install)
	case foreign:
		return good(check, "is somebody else's; %s", definition.Dropped(nil))
	case len(lacks) > 0:
		return bad(Warn, check, "is that of another version of K8s4r; "+definition.Dropped(lacks), install)
	}
	return good(check, "is K8s4r's")
}
