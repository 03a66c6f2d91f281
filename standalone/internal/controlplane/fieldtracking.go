package controlplane

import (
	"context"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/server/options"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// fieldTrackingPlugin is the name of an admission plugin that ends the tracking of fields for the
// objects that only controllers write. The API server maintains metadata.managedFields for each
// write of an object that has some. In a Task they are almost half of it, and take a third of
// the time of a write. In other clusters the policy config/defaults/fieldtracking.yaml does the same.
const fieldTrackingPlugin = "K8s4rFieldTracking"

var (
	// untracked are the resources without tracking. Users apply the others.
	untracked = []schema.GroupResource{
		{Group: v1alpha1.GroupVersion.Group, Resource: "tasks"},
		{Group: v1alpha1.GroupVersion.Group, Resource: "taskgroups"},
	}
	// untrackedIfOwned are those without tracking if a workflow created the object.
	untrackedIfOwned = []schema.GroupResource{
		{Group: v1alpha1.GroupVersion.Group, Resource: "jobs"},
		{Group: batchv1.GroupVersion.Group, Resource: "jobs"},
	}
)

// addFieldTracking adds the plugin before all others, so that none of them copies what it removes.
func addFieldTracking(o *options.AdmissionOptions) {
	o.Plugins.Register(fieldTrackingPlugin, func(io.Reader) (admission.Interface, error) {
		return fieldTracking{admission.NewHandler(admission.Create)}, nil
	})
	o.RecommendedPluginOrder = append([]string{fieldTrackingPlugin}, o.RecommendedPluginOrder...)
}

type fieldTracking struct{ *admission.Handler }

var _ admission.MutationInterface = fieldTracking{}

// Admit implements admission.MutationInterface. An object that is created by server-side apply keeps
// its managedFields: the next apply needs them to remove fields.
func (fieldTracking) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	mustBeOwned := slices.Contains(untrackedIfOwned, resource)
	if a.GetSubresource() != "" || !mustBeOwned && !slices.Contains(untracked, resource) {
		return nil
	}
	o, err := meta.Accessor(a.GetObject())
	if err != nil {
		return fmt.Errorf("metadata of %s: %w", a.GetResource().Resource, err)
	}
	isApplied := func(f metav1.ManagedFieldsEntry) bool { return f.Operation == metav1.ManagedFieldsOperationApply }
	isOwned := metav1.GetControllerOfNoCopy(o) != nil
	if (isOwned || !mustBeOwned) && !slices.ContainsFunc(o.GetManagedFields(), isApplied) {
		o.SetManagedFields(nil)
	}
	return nil
}
