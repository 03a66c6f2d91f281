package up

import (
	"context"
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"k8s4r.io/k8s4r/internal/platform/crds"
)

// The service accounts in config/rbac and config/up, by which the API server knows the programs.
const (
	managerAccount = "k8s4r-manager"
	serverAccount  = "k8s4r-server"
	consoleAccount = "k8s4r-console"
	nodeAccount    = "k8s4r-node"
)

// actAs returns a configuration of requests that the API server authorizes as those of a service
// account in systemNamespace. A program in this process so has the permissions of the deployed one
// and no others, although the process itself is an administrator.
func actAs(account string, process *rest.Config) *rest.Config {
	c := rest.CopyConfig(process)
	c.Impersonate = rest.ImpersonationConfig{UserName: fmt.Sprintf("system:serviceaccount:%s:%s", systemNamespace, account)}
	return c
}

// accounts returns the accounts as which the parts in this process act.
func (o *options) accounts() []string {
	var all []string
	for _, p := range []struct{ part, account string }{
		{partManager, managerAccount}, {partServer, serverAccount}, {partConsole, consoleAccount}, {partNode, nodeAccount},
	} {
		if o.includesPart(p.part) {
			all = append(all, p.account)
		}
	}
	return all
}

// checkImpersonation returns an error unless the user of this process may act as all accounts.
func checkImpersonation(ctx context.Context, c client.Client, accounts []string) error {
	for _, account := range accounts {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "impersonate", Resource: "serviceaccounts", Namespace: systemNamespace, Name: account,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return fmt.Errorf("check permissions: %w", err)
		}
		if !review.Status.Allowed {
			return fmt.Errorf("--kubeconfig: its user must be allowed to act as service account %s/%s; grant the verb impersonate on serviceaccounts in namespace %s",
				systemNamespace, account, systemNamespace)
		}
	}
	return nil
}

// shareCache returns a manager that acts by config and reads from the cache of mgr. All else it has
// in common with mgr.
func shareCache(mgr ctrl.Manager, config *rest.Config) (ctrl.Manager, error) {
	own, err := cluster.New(config, func(o *cluster.Options) {
		o.Scheme = mgr.GetScheme()
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mgr.GetRESTMapper(), nil }
		o.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) { return startedCache{mgr.GetCache()}, nil }
	})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return sharingManager{mgr, own}, mgr.Add(own)
}

// startedCache is a cache that another manager starts.
type startedCache struct{ cache.Cache }

// Start blocks until ctx ends.
func (startedCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// sharingManager is a manager whose requests are those of own.
type sharingManager struct {
	ctrl.Manager
	own cluster.Cluster
}

// GetConfig implements ctrl.Manager.
func (m sharingManager) GetConfig() *rest.Config { return m.own.GetConfig() }

// GetHTTPClient implements ctrl.Manager.
func (m sharingManager) GetHTTPClient() *http.Client { return m.own.GetHTTPClient() }

// GetClient implements ctrl.Manager.
func (m sharingManager) GetClient() client.Client { return m.own.GetClient() }

// GetAPIReader implements ctrl.Manager.
func (m sharingManager) GetAPIReader() client.Reader { return m.own.GetAPIReader() }

// GetEventRecorder implements ctrl.Manager.
func (m sharingManager) GetEventRecorder(name string) events.EventRecorder {
	return m.own.GetEventRecorder(name)
}

// GetEventRecorderFor implements ctrl.Manager.
func (m sharingManager) GetEventRecorderFor(name string) record.EventRecorder {
	return m.own.GetEventRecorderFor(name) //nolint:staticcheck // a part of the interface
}

// prepareAccounts checks on another cluster that this process may act as its accounts. In the
// embedded cluster it lets the server read the Secrets that tasks name; elsewhere administrators
// bind that role in the namespaces that need it.
func (s *system) prepareAccounts(ctx context.Context) error {
	c, err := client.New(s.client, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	if !s.opts.embedsCluster() {
		return checkImpersonation(ctx, c, s.opts.accounts())
	}
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"}, ObjectMeta: metav1.ObjectMeta{Name: "k8s4r-up-secret-reader"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "k8s4r-secret-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: serverAccount}},
	}
	if err := c.Patch(ctx, binding, client.Apply, client.FieldOwner(crds.FieldManager), client.ForceOwnership); err != nil { //nolint:staticcheck // typed objects have no apply configuration here
		return fmt.Errorf("apply %s: %w", binding.Name, err)
	}
	return nil
}
