package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/beacon"
	"k8s4r.io/k8s4r/internal/logclient"
	"k8s4r.io/k8s4r/internal/logquery"
)

// logsOf returns how logs are read: from k8s4r-server, with the credentials for
// the API server, which says whose they are.
func logsOf(config *rest.Config) func(ctx context.Context, server, namespace, task string, q logquery.Query) (io.ReadCloser, error) {
	return func(ctx context.Context, server, namespace, task string, q logquery.Query) (io.ReadCloser, error) {
		// Found anew each time: a server that was started again may be elsewhere.
		at, err := findServer(ctx, config)
		if err != nil && server == "" {
			return nil, err
		}
		if server != "" {
			at.URL = strings.TrimSuffix(server, "/")
		}
		if _, err := url.Parse(at.URL); err != nil {
			return nil, fmt.Errorf("--logs-server: %w", err)
		}
		log, err := logclient.Open(ctx, config, at, namespace, task, q)
		if away, ok := errors.AsType[*logclient.UnreachableError](err); ok {
			return nil, &logsUnreachableError{server: at.URL, cause: networkCause(away.Err)}
		}
		return log, err
	}
}

func findServer(ctx context.Context, config *rest.Config) (beacon.Address, error) {
	scheme := runtime.NewScheme()
	kind := schema.GroupVersion{Version: "v1"}
	scheme.AddKnownTypes(kind, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
	metav1.AddToGroupVersion(scheme, kind)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind})
	mapper.Add(kind.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return beacon.Address{}, fmt.Errorf("make client: %w", err)
	}
	a, err := beacon.Find(ctx, c)
	switch {
	case apierrors.IsNotFound(err):
		return a, fmt.Errorf("no server has said where it serves logs (ConfigMap %s in namespace %s is missing): is k8s4r-server running, and not with --api-bind-address=0?", beacon.Name, beacon.Namespace)
	case err != nil:
		return a, fmt.Errorf("find the server: %w", err)
	}
	return a, nil
}

// logsUnreachableError: nobody answered where the logs should be. It wraps
// nothing, for it is not the API server that is away.
type logsUnreachableError struct{ server, cause string }

func (e *logsUnreachableError) Error() string {
	return fmt.Sprintf("cannot reach k8s4r-server at %s (%s): if it runs in a cluster that is closed to this machine, try\n"+
		"  kubectl -n %s port-forward deploy/k8s4r-server 8443\nin another terminal, and --logs-server https://127.0.0.1:8443", e.server, e.cause, beacon.Namespace)
}
