package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"k8s4r.io/k8s4r/standalone/internal/component"
	"k8s4r.io/k8s4r/standalone/internal/watchcache"
)

// newAPIServer returns the API server. more are flags in addition to those that it always has.
func newAPIServer(l net.Listener, etcd string, c credentials, client *rest.Config, more []string) (component.Monitored, error) {
	ready, err := apiServerReady(client)
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context) error { return runAPIServer(ctx, l, append(apiServerArgs(etcd, c), more...)) }
	return component.NewBackground(run, ready), nil
}

func apiServerArgs(etcd string, c credentials) []string {
	return []string{
		"--etcd-servers=" + etcd,
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--client-ca-file=" + c.ca.certFile,
		"--tls-cert-file=" + c.serving.certFile,
		"--tls-private-key-file=" + c.serving.keyFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.serviceAccountKey,
		"--service-account-signing-key-file=" + c.serviceAccountKey,
		"--service-cluster-ip-range=" + serviceRange,
		"--kubelet-client-certificate=" + c.kubeletClient.certFile,
		"--kubelet-client-key=" + c.kubeletClient.keyFile,
		"--kubelet-certificate-authority=" + c.ca.certFile,
		"--kubelet-preferred-address-types=InternalIP",
		// Without these two flags it looks for a default route, and does not start on a machine
		// without a network.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--profiling=false",
		// Otherwise a stop waits for clients that watch, such as kubectl get -w, until it times out.
		"--shutdown-watch-termination-grace-period=5s",
		// Fair queueing isolates tenants. Here all clients belong to one user and most are exempt,
		// but it reduced the rate of creates by 8 to 14 %. The limits of requests in flight bound
		// the memory.
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=1000",
		"--max-mutating-requests-inflight=500",
		// Each write would copy a path of a tree with all objects of its kind. Only lists of an older
		// version read the copies; etcd serves these.
		"--feature-gates=ListFromCacheSnapshot=false",
		// The history of watches would keep each version of a definition that the first start writes.
		"--watch-cache-sizes=customresourcedefinitions.apiextensions.k8s.io#0",
	}
}

// runAPIServer does what the kube-apiserver command does, except for installing signal handlers:
// these would stop the server before its clients.
func runAPIServer(ctx context.Context, l net.Listener, args []string) error {
	o := options.NewServerRunOptions()
	addFieldTracking(o.Admission.GenericAdmission)
	if err := parseFlags(o.Flags(), args); err != nil {
		return err
	}
	o.SecureServing.Listener = l
	o.SecureServing.BindPort = l.Addr().(*net.TCPAddr).Port
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("feature gates: %w", err)
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("options: %w", utilerrors.NewAggregate(errs))
	}
	return serveAPI(ctx, completed)
}

// serveAPI does what app.Run does, except that the watch caches are smaller.
func serveAPI(ctx context.Context, o options.CompletedOptions) error {
	config, err := app.NewConfig(o)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter = watchcache.WithSharing(config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter)
	completed, err := config.Complete()
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	server, err := app.CreateServerChain(completed)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return prepared.Run(ctx)
}

func parseFlags(sections flag.NamedFlagSets, args []string) error {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, section := range sections.FlagSets {
		all.AddFlagSet(section)
	}
	return all.Parse(args)
}

func apiServerReady(client *rest.Config) (func(context.Context) error, error) {
	clients, err := kubernetes.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return func(ctx context.Context) error {
		var status int
		err := clients.RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status).Error()
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("/readyz: status %d", status)
		}
		return err
	}, nil
}
