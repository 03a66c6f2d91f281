// Package install installs K8s4r's CRDs, roles and admission policies into a cluster.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	definition "k8s4r.io/k8s4r/internal/platform/crds"
)

// order is the order of the installation. The workloads in deploy/ are left out, because the
// program that uses this package runs them itself.
var order = []string{"deploy/namespace.yaml", "crd/*.yaml", "rbac/*.yaml", "webhook/rbac.yaml", "admission/*.yaml", "defaults/vcjobs.yaml"}

// Manifests is a component.Component that installs manifests when it starts. It is ready once the
// API server serves the new kinds. Stop does not remove them.
type Manifests struct {
	files   fs.FS
	order   []string
	cluster *rest.Config
	report  func(string)
	client  client.Client // nil before Start
	crds    []*unstructured.Unstructured
}

// New returns the component for the manifests in files, which has the layout of the directory
// config/. The patterns in more select files besides those of every installation. It calls report
// for each CRD that it leaves unchanged.
func New(files fs.FS, cluster *rest.Config, report func(string), more ...string) *Manifests {
	return &Manifests{files: files, order: append(slices.Clone(order), more...), cluster: cluster, report: report}
}

// Start applies all manifests that are not in the cluster as they are. Fields that others have
// changed are set back; CRDs of other programs are not touched. It begins again when the client's
// certificate is renewed meanwhile.
func (m *Manifests) Start(ctx context.Context) error {
	return RepeatInterrupted(func() error { return m.applyAll(ctx) })
}

// RepeatInterrupted calls write again, a few times, after a connection of one of its requests was closed:
// the client closes all of them when its certificate is renewed, also during a long start.
func RepeatInterrupted(write func() error) error {
	return retry.OnError(retry.DefaultBackoff, isInterrupted, write)
}

// errForceClosed is the text of an error that the HTTP/2 client does not export. Requests get it that
// share their connection with the request that finds the connection closed.
const errForceClosed = "http2: client connection force closed"

// isInterrupted reports whether the connection of a request was closed, as a client does with all its
// connections when it has another certificate.
func isInterrupted(err error) bool {
	return errors.Is(err, net.ErrClosed) || err != nil && strings.Contains(err.Error(), errForceClosed) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsProbableEOF(err)
}

func (m *Manifests) applyAll(ctx context.Context) error {
	m.crds = nil
	objects, err := definition.ReadManifests(m.files, m.order...)
	if err != nil {
		return err
	}
	if m.client, err = client.New(m.cluster, client.Options{}); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	foreign, err := m.findForeign(ctx, objects)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if foreign[o.GetName()] && definition.IsCRD(o) || foreign[o.GetAnnotations()[definition.AnnotationOnlyWith]] {
			continue
		}
		err := m.apply(ctx, o)
		if meta.IsNoMatchError(err) && isOptional(o) {
			m.report(fmt.Sprintf("left out %s %s, which needs Kubernetes 1.36", o.GetKind(), o.GetName()))
			continue
		}
		if err != nil {
			return err
		}
		if definition.IsCRD(o) {
			m.crds = append(m.crds, o)
		}
	}
	return m.deleteObsolete(ctx)
}

// apply applies one manifest.
func (m *Manifests) apply(ctx context.Context, o *unstructured.Unstructured) error {
	if err := stampHash(o); err != nil {
		return fmt.Errorf("hash of %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	if done, err := m.isApplied(ctx, o); done || err != nil {
		return err
	}
	apply := client.ApplyConfigurationFromUnstructured(o)
	if err := m.client.Apply(ctx, apply, client.FieldOwner(definition.FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// FieldTracking is the pattern of the policy that the API server of this process does not need.
const FieldTracking = "defaults/fieldtracking.yaml"

// isOptional reports whether everything works without an object whose kind an older API server does
// not serve.
func isOptional(o *unstructured.Unstructured) bool {
	return o.GetKind() == "MutatingAdmissionPolicy" || o.GetKind() == "MutatingAdmissionPolicyBinding"
}

// Ready returns nil once all CRDs are established.
func (m *Manifests) Ready(ctx context.Context) error {
	for _, crd := range m.crds {
		if err := m.client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return fmt.Errorf("get %s: %w", crd.GetName(), err)
		}
		if !definition.IsEstablished(crd) {
			return fmt.Errorf("%s is not established yet", crd.GetName())
		}
	}
	return nil
}

// Stop does nothing.
func (m *Manifests) Stop(context.Context) error { return nil }
