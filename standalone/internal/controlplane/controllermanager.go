package controlplane

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"k8s4r.io/k8s4r/standalone/internal/component"
)

// controllers are the built-in controllers that run: those that K8s4r's objects depend on, those
// for namespaces and permissions, and those for the Pods of workflow steps (Jobs, EndpointSlices,
// the CA bundle in volumes, garbage collection). None checks nodes: the only node is in this
// process.
var controllers = []string{
	names.GarbageCollectorController,
	names.NamespaceController,
	names.ServiceAccountController,
	names.ServiceAccountTokenController,
	names.TTLAfterFinishedController,
	names.ClusterRoleAggregationController,
	names.JobController,
	names.EndpointSliceController,
	names.RootCACertificatePublisherController,
	names.PodGarbageCollectorController,
}

func newControllerManager(c credentials, client *rest.Config) (component.Monitored, error) {
	clients, err := kubernetes.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	run := func(ctx context.Context) error { return runControllerManager(ctx, controllerManagerArgs(c)) }
	// The default service account is the first visible result of the controllers.
	ready := func(ctx context.Context) error {
		_, err := clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	return component.NewBackground(run, ready), nil
}

func controllerManagerArgs(c credentials) []string {
	return []string{
		"--kubeconfig=" + c.controllerManager,
		"--controllers=" + strings.Join(controllers, ","),
		// The lock of the data directory makes this the only instance. Losing a lease would end the
		// whole process, including etcd.
		"--leader-elect=false",
		// At the default of 20 requests a second, garbage collection of a Job with a thousand tasks
		// takes a minute, during which the tasks keep running.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
		"--secure-port=0",
		"--profiling=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.serviceAccountKey,
		"--root-ca-file=" + c.ca.certFile,
	}
}

// runControllerManager does what the kube-controller-manager command does, without its signal
// handlers.
func runControllerManager(ctx context.Context, args []string) error {
	o, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	known, disabled, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	flags := o.Flags(known, disabled, aliases)
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	o.ParsedFlags = &flags
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("feature gates: %w", err)
	}
	c, err := o.Config(ctx, known, disabled, aliases)
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	return app.Run(ctx, c.Complete())
}
