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

	"k8s4r.io/k8s4r/internal/platform/logclient"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/protocol/actionlog"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/protocol/plan"
)

// newLogReader returns a function that reads logs from k8s4r-server. It authenticates with the
// credentials for the API server.
func newLogReader(config *rest.Config) func(ctx context.Context, server, namespace, task string, q query.Query) (io.ReadCloser, error) {
	return func(ctx context.Context, server, namespace, task string, q query.Query) (io.ReadCloser, error) {
		at, err := chooseServer(ctx, config, server)
		if err != nil {
			return nil, err
		}
		log, err := logclient.OpenLog(ctx, config, at, namespace, task, q)
		return log, toServerError(err, at)
	}
}

// newActionReader returns a function that reads from k8s4r-server what users did.
func newActionReader(config *rest.Config) func(ctx context.Context, server string, q actionlog.Query) (actionlog.Page, error) {
	return func(ctx context.Context, server string, q actionlog.Query) (actionlog.Page, error) {
		at, err := chooseServer(ctx, config, server)
		if err != nil {
			return actionlog.Page{}, err
		}
		p, err := logclient.ListActions(ctx, config, at, q)
		return p, toServerError(err, at)
	}
}

// newRunReader returns a function that reads the runs of an attempt from k8s4r-server.
func newRunReader(config *rest.Config) func(ctx context.Context, server, namespace, task string, q runlog.Query) (runlog.Page, error) {
	return func(ctx context.Context, server, namespace, task string, q runlog.Query) (runlog.Page, error) {
		at, err := chooseServer(ctx, config, server)
		if err != nil {
			return runlog.Page{}, err
		}
		p, err := logclient.ListRuns(ctx, config, at, namespace, task, q)
		return p, toServerError(err, at)
	}
}

// chooseServer returns the address of k8s4r-server, with the URL in server if there is one. It is looked
// up for each request, because a restarted server may have another one.
func chooseServer(ctx context.Context, config *rest.Config, server string) (serveraddr.Address, error) {
	at, err := findServer(ctx, config)
	if err != nil && server == "" {
		return at, err
	}
	if server != "" {
		at.URL = strings.TrimSuffix(server, "/")
	}
	if _, err := url.Parse(at.URL); err != nil {
		return at, fmt.Errorf("--logs-server: %w", err)
	}
	return at, nil
}

// toServerError explains how to reach a server that did not answer.
func toServerError(err error, at serveraddr.Address) error {
	if away, ok := errors.AsType[*logclient.UnreachableError](err); ok {
		return &logsUnreachableError{server: at.URL, cause: networkCause(away.Err)}
	}
	return err
}

// newPlanner returns a function that asks k8s4r-manager for a plan. If address is empty, the published one is used.
func newPlanner(config *rest.Config) func(ctx context.Context, address string, object []byte) (plan.Plan, error) {
	return func(ctx context.Context, address string, object []byte) (plan.Plan, error) {
		at, err := findProgram(ctx, config, serveraddr.ManagerName)
		if err != nil && address == "" {
			return plan.Plan{}, err
		}
		if address != "" {
			at.URL = strings.TrimSuffix(address, "/")
		}
		if _, err := url.Parse(at.URL); err != nil {
			return plan.Plan{}, fmt.Errorf("--plan-server: %w", err)
		}
		p, err := logclient.ComputePlan(ctx, config, at, object)
		if away, ok := errors.AsType[*logclient.UnreachableError](err); ok {
			return p, &plansUnreachableError{server: at.URL, cause: networkCause(away.Err)}
		}
		return p, err
	}
}

// plansUnreachableError means that the manager did not answer. It wraps no error, as logsUnreachableError.
type plansUnreachableError struct{ server, cause string }

func (e *plansUnreachableError) Error() string {
	return fmt.Sprintf("cannot reach k8s4r-manager at %s (%s): if the cluster is not reachable from this machine, find the leader with\n"+
		"  kubectl -n %s get lease k8s4r-manager -o jsonpath={.spec.holderIdentity}\nrun\n  kubectl -n %[3]s port-forward pod/POD 8444\n"+
		"in another terminal, where POD is the part of the name before _, and use --plan-server https://127.0.0.1:8444", e.server, e.cause, serveraddr.Namespace)
}

func findServer(ctx context.Context, config *rest.Config) (serveraddr.Address, error) {
	return findProgram(ctx, config, serveraddr.Name)
}

// findProgram returns the published address of k8s4r-server or k8s4r-manager.
func findProgram(ctx context.Context, config *rest.Config, program string) (serveraddr.Address, error) {
	scheme := runtime.NewScheme()
	kind := schema.GroupVersion{Version: "v1"}
	scheme.AddKnownTypes(kind, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
	metav1.AddToGroupVersion(scheme, kind)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind})
	mapper.Add(kind.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return serveraddr.Address{}, fmt.Errorf("make client: %w", err)
	}
	a, err := serveraddr.FindAddressOf(ctx, c, program)
	switch {
	case apierrors.IsNotFound(err):
		return a, fmt.Errorf("%[1]s has not published its address (ConfigMap %[1]s in namespace %[2]s is missing): check that it is running without --api-bind-address=0", program, serveraddr.Namespace)
	case err != nil:
		return a, fmt.Errorf("find the address of %s: %w", program, err)
	}
	return a, nil
}

// logsUnreachableError means that the server that keeps the logs did not answer. It wraps no
// error, so that it is not reported as an unreachable API server.
type logsUnreachableError struct{ server, cause string }

func (e *logsUnreachableError) Error() string {
	return fmt.Sprintf("cannot reach k8s4r-server at %s (%s): if the cluster is not reachable from this machine, run\n"+
		"  kubectl -n %s port-forward deploy/k8s4r-server 8443\nin another terminal, and use --logs-server https://127.0.0.1:8443", e.server, e.cause, serveraddr.Namespace)
}
