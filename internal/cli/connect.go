package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the authentication plugins that a kubeconfig may name
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/cli/doctor"
	"k8s4r.io/k8s4r/internal/protocol/actionlog"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/protocol/plan"
)

// connection holds the flags that select the cluster and the user. They have kubectl's names and
// meanings.
type connection struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

func (c *connection) addFlags(f *pflag.FlagSet) {
	o := &c.overrides
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "path of the kubeconfig; defaults to $KUBECONFIG, ~/.kube/config or ~/.k8s4r/kubeconfig, in this order")
	f.StringVar(&o.CurrentContext, "context", "", "name of the kubeconfig context to use")
	f.StringVarP(&o.Context.Namespace, "namespace", "n", "", "namespace; defaults to that of the context")
	f.StringVar(&o.AuthInfo.Impersonate, "as", "", "user to impersonate")
	f.StringSliceVar(&o.AuthInfo.ImpersonateGroups, "as-group", nil, "group to impersonate; may be repeated")
	f.StringVar(&o.AuthInfo.ImpersonateUID, "as-uid", "", "UID to impersonate")
	f.StringVar(&o.Timeout, "request-timeout", "0", "timeout of a single request, such as 5s; 0 means no timeout")
}

// newConfigLoader finds the kubeconfig as kubectl does. If kubectl would find none, it uses the
// one that `k8s4r up` writes, so that the other verbs work with up without any setting.
func (c *connection) newConfigLoader(env func(string) string, home string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	own := filepath.Join(home, ".k8s4r", "kubeconfig")
	if c.kubeconfig == "" && env(clientcmd.RecommendedConfigPathEnvVar) == "" && !slices.ContainsFunc(rules.Precedence, fileExists) && fileExists(own) {
		rules.ExplicitPath = own
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cluster is what the commands use of an API server.
type cluster struct {
	client.WithWatch
	namespace string // from --namespace or the context
	// namespaceFlag is the suffix that suggested command lines need to select the namespace
	// again: empty, or " --namespace=x".
	namespaceFlag string
	server        string   // URL of the API server, for messages
	kubeconfigs   []string // files that may describe the cluster
	version       func(context.Context) (string, error)
	kinds         func(context.Context) ([]string, error) // resources of K8s4r's group; none if its CRDs are not installed
	// logs opens the log of a task at the server. If server is empty, the published address is
	// used.
	logs func(ctx context.Context, server, namespace, task string, q query.Query) (io.ReadCloser, error)
	// actions reads a page of what users did from the server. The address is as for logs.
	actions func(ctx context.Context, server string, q actionlog.Query) (actionlog.Page, error)
	// runs reads a page of the runs of a task from the server. The address is as for logs.
	runs func(ctx context.Context, server, namespace, task string, q runlog.Query) (runlog.Page, error)
	// plan asks the manager what would follow if an object, as JSON, was applied. If address is empty, the published
	// one is used.
	plan func(ctx context.Context, address string, object []byte) (plan.Plan, error)
	// podLogs opens the log of a container through the API server.
	podLogs func(ctx context.Context, namespace, pod string, o corev1.PodLogOptions) (io.ReadCloser, error)
}

func connectCluster(c *connection) (*cluster, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	loader := c.newConfigLoader(os.Getenv, home)
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, &unreachableError{err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	cl, err := newCluster(config, namespace)
	if err != nil {
		return nil, err
	}
	cl.kubeconfigs = loader.ConfigAccess().GetLoadingPrecedence()
	if flag := c.overrides.Context.Namespace; flag != "" {
		cl.namespaceFlag = " --namespace=" + flag
	}
	return cl, nil
}

func newCluster(config *rest.Config, namespace string) (*cluster, error) {
	// The default rate limit of client-go would delay the requests of one command.
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	config.UserAgent = "k8s4r"
	scheme := newScheme()
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: newMapper(scheme)})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make discovery client: %w", err)
	}
	return &cluster{WithWatch: c, namespace: namespace, server: serverURL(config), version: newVersionReader(d), kinds: newKindsReader(d), logs: newLogReader(config), actions: newActionReader(config), runs: newRunReader(config), plan: newPlanner(config), podLogs: newPodLogReader(config)}, nil
}

func serverURL(config *rest.Config) string {
	if u, err := url.Parse(config.Host); err == nil && u.Scheme != "" {
		return u.Redacted()
	}
	return config.Host
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		robotv1.AddToScheme, flowv1.AddToScheme, cronv1.AddToScheme, rayv1.AddToScheme, batchv1.AddToScheme, busv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, doctor.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// newMapper returns a REST mapper with the known kinds built in, which saves each command the
// discovery requests.
func newMapper(scheme *runtime.Scheme) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for _, k := range slices.Concat(getKinds, flowKinds) {
		m.AddSpecific(k.version.WithKind(k.kind), k.version.WithResource(k.plural), k.version.WithResource(k.singular), meta.RESTScopeNamespace)
	}
	m.Add(robotv1.GroupVersion.WithKind("HeartbeatSlice"), meta.RESTScopeNamespace)
	m.Add(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), meta.RESTScopeNamespace)
	for _, kind := range []string{"ConfigMap", "Secret"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	doctor.AddToMapper(m)
	return m
}

func newVersionReader(d discovery.DiscoveryInterface) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		info, err := d.ServerVersion()
		if err != nil {
			return "", fmt.Errorf("get the server version: %w", err)
		}
		return info.GitVersion, nil
	}
}

func newKindsReader(d discovery.DiscoveryInterface) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) {
		list, err := d.ServerResourcesForGroupVersion(robotv1.GroupVersion.String())
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("get the resources of %s: %w", robotv1.GroupVersion, err)
		}
		var names []string
		for _, r := range list.APIResources {
			names = append(names, r.Name)
		}
		return names, nil
	}
}

// withCluster connects to the cluster and calls f. It marks errors that mean that no API server
// answered.
func (d *deps) withCluster(c *connection, f func(*cluster) error) error {
	cl, err := d.connect(c)
	if err != nil {
		return err
	}
	return markUnreachable(cl.server, f(cl))
}

func markUnreachable(server string, err error) error {
	if _, printed := errors.AsType[*outcomeError](err); printed {
		return err
	}
	return wrapUnreachable(server, err)
}
