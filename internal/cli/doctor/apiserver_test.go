package doctor

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestCheckAPIServer_ChecksVersion(t *testing.T) {
	const lacksPolicies = ", which does not serve ValidatingAdmissionPolicy: invalid objects are not rejected"
	for _, c := range []struct {
		name, version string
		want          Finding
	}{
		{"a current version", "v1.36.3", Finding{OK, "API server", server + " has version v1.36.3", ""}},
		{"the oldest supported version", "v1.30.0", Finding{OK, "API server", server + " has version v1.30.0", ""}},
		{"a distribution's suffix", "v1.30.1+k3s1", Finding{OK, "API server", server + " has version v1.30.1+k3s1", ""}},
		{"an older minor version", "v1.29.15", Finding{Fail, "API server", server + " has version v1.29.15" + lacksPolicies, "use Kubernetes 1.30.0 or newer"}},
		{"an older version with suffix", "v1.29.4-gke.100", Finding{Fail, "API server", server + " has version v1.29.4-gke.100" + lacksPolicies, "use Kubernetes 1.30.0 or newer"}},
		{"no version at all", "latest", Finding{Warn, "API server", server + ` reports version "latest", which is not a version of Kubernetes`, "use Kubernetes 1.30.0 or newer"}},
		{"a build without a version", "v0.0.0-master+$Format:%H$", Finding{OK, "API server", server + " answers and serves all APIs that K8s4r needs", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := newCluster(t, interceptor.Funcs{})
			cluster.Version = func(context.Context) (string, error) { return c.version, nil }
			got, answers := checkAPIServer(t.Context(), cluster)
			if !answers {
				t.Error("the API server answers, but other checks are skipped")
			}
			equalFindings(t, got, c.want)
		})
	}
}

func TestCheckAPIServer_ChecksResourcesOfUnstampedBuild(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}, "")
	for _, c := range []struct {
		name string
		err  error
		want Finding
	}{
		{"policies are not served", missing, Finding{
			Fail, "API server", server + " does not serve ValidatingAdmissionPolicy: invalid objects are not rejected", "use Kubernetes 1.30.0 or newer",
		}},
		{"policies cannot be listed", errForbidden, unknownFor("API server")},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := newCluster(t, failLists(c.err))
			cluster.Version = func(context.Context) (string, error) { return "v0.0.0-master+$Format:%H$", nil }
			got, answers := checkAPIServer(t.Context(), cluster)
			if !answers {
				t.Error("the API server answers, but other checks are skipped")
			}
			equalFindings(t, got, c.want)
		})
	}
}
