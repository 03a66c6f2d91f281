package doctor

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"k8s4r.io/k8s4r/internal/platform/crds"
)

const vcjobs = "jobs.batch.volcano.sh"

// policy returns an admission policy. If onlyWith is not empty, it belongs to that definition.
func policy(name, onlyWith string, by ...metav1.ManagedFieldsEntry) client.Object {
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: by}}
	if onlyWith != "" {
		p.Annotations = map[string]string{crds.AnnotationOnlyWith: onlyWith}
	}
	return p
}

// writtenBy returns the managed fields of an object that manager wrote.
func writtenBy(manager string, how metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
	at := metav1.NewTime(noon)
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: how, APIVersion: "admissionregistration.k8s.io/v1", Time: &at, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{}}}`),
	}
}

func TestCheckPolicies_ReportsForeignAndObsoletePolicies(t *testing.T) {
	ours, theirs := definition(t, vcjobs), definition(t, vcjobs, removeLabels)
	fine := Finding{OK, "admission policies", "no policy of K8s4r validates a kind of another operator, and none is from another version", ""}
	foreign := Finding{Warn, "admission policies", "k8s4r-vcjobs of K8s4r validates objects of " + vcjobs + ", whose CRD was not installed by K8s4r",
		"kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding k8s4r-vcjobs"}
	obsolete := func(name string) Finding {
		return Finding{Warn, "admission policies", name + " is from another version of K8s4r and may reject objects that this version allows",
			"if no other version is in use: kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy " + name}
	}
	for _, c := range []struct {
		name    string
		objects []client.Object
		want    []Finding
	}{
		{"no policies", []client.Object{ours}, []Finding{fine}},
		{"a policy for our kind", []client.Object{ours, policy("k8s4r-vcjobs", vcjobs)}, []Finding{fine}},
		{"a policy for another operator's kind", []client.Object{theirs, policy("k8s4r-vcjobs", vcjobs)}, []Finding{foreign}},
		{"a policy for a missing kind", []client.Object{policy("k8s4r-vcjobs", vcjobs)}, []Finding{fine}},
		{"another operator's own policy", []client.Object{theirs, policy("volcano-jobs", "")}, []Finding{fine}},
		{"a policy of another version", []client.Object{ours, policy("k8s4r-gone", "", writtenBy("k8s4r", metav1.ManagedFieldsOperationApply))}, []Finding{obsolete("k8s4r-gone")}},
		{"a policy that another program applied", []client.Object{ours, policy("gone", "", writtenBy("helm", metav1.ManagedFieldsOperationApply))}, []Finding{fine}},
		{"a policy that was updated, not applied", []client.Object{ours, policy("gone", "", writtenBy("k8s4r", metav1.ManagedFieldsOperationUpdate))}, []Finding{fine}},
		{"both problems in one policy", []client.Object{theirs, policy("k8s4r-old", vcjobs, writtenBy("k8s4r", metav1.ManagedFieldsOperationApply))}, []Finding{
			obsolete("k8s4r-old"),
			{Warn, "admission policies", "k8s4r-old of K8s4r validates objects of " + vcjobs + ", whose CRD was not installed by K8s4r",
				"kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding k8s4r-old"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			equalFindings(t, checkPolicies(t.Context(), newCluster(t, interceptor.Funcs{}, c.objects...)), c.want...)
		})
	}
}

func TestCheckPolicies_ReportsMissingPermissions(t *testing.T) {
	equalFindings(t, checkPolicies(t.Context(), newCluster(t, failLists(errForbidden))), unknownFor("admission policies"))
	hooks := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errForbidden
	}}
	equalFindings(t, checkPolicies(t.Context(), newCluster(t, hooks)), unknownFor("admission policies"))
}
