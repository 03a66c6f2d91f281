// Package fakeapi creates clients of a fake API server for unit tests.
package fakeapi

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// NewBuilder returns a builder of a client without server-side apply, which keeps managed fields as
// they are written. Otherwise each client would register the types of all of Kubernetes and compute
// the fields with each write: both take longer than most tests.
func NewBuilder(scheme *runtime.Scheme) *fake.ClientBuilder {
	decoder := serializer.NewCodecFactory(scheme).UniversalDecoder()
	return fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(testing.NewObjectTracker(scheme, decoder))
}
