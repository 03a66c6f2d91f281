package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"k8s4r.io/k8s4r/internal/testkit"
)

// kubeRayVariable is the environment variable with the path of KubeRay's operator.
const kubeRayVariable = "KUBERAY_OPERATOR"

// measureKubeRay measures KubeRay's operator. It returns nil if there is none.
func (s *bench) measureKubeRay(namespace string, clusters, workers int) *run {
	program := os.Getenv(kubeRayVariable)
	if program == "" {
		return nil
	}
	for _, kind := range []string{"RayJob", "RayService", "RayCronJob"} {
		s.createDefinition(kind)
	}
	r := s.measureRun(func(s *bench) *testkit.Process { return kubeRay(s, program) }, namespace, clusters, workers)
	return &r
}

// kubeRay runs KubeRay's operator with more concurrency and requests than by default, so that the
// API server limits it, as it limits ours.
func kubeRay(s *bench, program string) *testkit.Process {
	return testkit.NewProcess(s, "env", "KUBECONFIG="+s.up.Kubeconfig, program, "--enable-leader-election=false",
		"--metrics-addr=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", "--reconcile-concurrency=32", "--qps=1000", "--burst=2000")
}

// definitionFormat is a definition without a schema. Its parameters are the kind and its singular.
const definitionFormat = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]ss.ray.io}
spec:
  group: ray.io
  scope: Namespaced
  names: {kind: %[1]s, listKind: %[1]sList, singular: %[2]s, plural: %[2]ss}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// createDefinition creates the definition of a kind that KubeRay's operator watches and does not need
// here.
func (s *bench) createDefinition(kind string) {
	var definition unstructured.Unstructured
	if err := yaml.Unmarshal(fmt.Appendf(nil, definitionFormat, kind, strings.ToLower(kind)), &definition.Object); err != nil {
		s.Fatal(err)
	}
	if err := s.Create(context.Background(), &definition); err != nil && !apierrors.IsAlreadyExists(err) {
		s.Fatal(err)
	}
	time.Sleep(time.Second) // until the API server serves it
}
