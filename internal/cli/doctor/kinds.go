package doctor

import (
	"errors"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// crdVersion is the API version of CustomResourceDefinitions.
var crdVersion = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}

// AddToScheme registers the kinds that the checks read.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(admissionv1.AddToScheme(s), coordinationv1.AddToScheme(s))
}

// AddToMapper registers the resources of these kinds.
func AddToMapper(m *meta.DefaultRESTMapper) {
	add := func(v schema.GroupVersion, kind, plural, singular string, scope meta.RESTScope) {
		m.AddSpecific(v.WithKind(kind), v.WithResource(plural), v.WithResource(singular), scope)
	}
	add(crdVersion, "CustomResourceDefinition", "customresourcedefinitions", "customresourcedefinition", meta.RESTScopeRoot)
	add(admissionv1.SchemeGroupVersion, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "validatingadmissionpolicy", meta.RESTScopeRoot)
	add(coordinationv1.SchemeGroupVersion, "Lease", "leases", "lease", meta.RESTScopeNamespace)
}
