package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// annotationHash is the hash of the manifest that was applied last.
const annotationHash = "k8s4r.io/manifest-hash"

// stampHash writes the hash of a manifest into its annotations.
func stampHash(manifest *unstructured.Unstructured) error {
	text, err := manifest.MarshalJSON()
	if err != nil {
		return err
	}
	hash := sha256.Sum256(text)
	annotations := manifest.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationHash] = hex.EncodeToString(hash[:16])
	manifest.SetAnnotations(annotations)
	// The numbers of a manifest become those of an object in the cluster.
	if text, err = manifest.MarshalJSON(); err != nil {
		return err
	}
	return manifest.UnmarshalJSON(text)
}

// isApplied reports whether the object is in the cluster as applying its manifest would leave it.
// Reading it is cheaper than applying: the API server compiles every rule of what is applied.
func (m *Manifests) isApplied(ctx context.Context, manifest *unstructured.Unstructured) (bool, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(manifest.GroupVersionKind())
	err := m.client.Get(ctx, client.ObjectKeyFromObject(manifest), live)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %s %s: %w", manifest.GetKind(), manifest.GetName(), err)
	}
	return contains(live.Object, manifest.Object), nil
}

// contains reports whether a value of the cluster has every field of a manifest's, with equal
// values. As the manifest includes its hash, the cluster has no field of an older manifest either.
func contains(live, manifest any) bool {
	switch want := manifest.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		for key, value := range want {
			ok = ok && contains(have[key], value)
		}
		return ok
	case []any:
		have, ok := live.([]any)
		if ok = ok && len(have) == len(want); !ok {
			return false
		}
		for i, value := range want {
			ok = ok && contains(have[i], value)
		}
		return ok
	default:
		return live == manifest
	}
}
