package up

import (
	"context"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestActAs_LeavesTheProcessUnchanged(t *testing.T) {
	process := &rest.Config{Host: "https://127.0.0.1:6443", QPS: -1}
	got := actAs(managerAccount, process)
	if got.Impersonate.UserName != "system:serviceaccount:k8s4r-system:k8s4r-manager" || got.Host != process.Host || got.QPS != -1 {
		t.Errorf("%+v", got)
	}
	if process.Impersonate.UserName != "" {
		t.Errorf("the process acts as %s", process.Impersonate.UserName)
	}
}

func TestAccounts_AreThoseOfTheParts(t *testing.T) {
	for _, c := range []struct {
		without, cache string
		want           []string
	}{
		{"", managerAccount, []string{managerAccount, serverAccount, consoleAccount, nodeAccount}},
		{"manager,console,node", serverAccount, []string{serverAccount}},
	} {
		o := parsed(t, "--without="+c.without)
		if got := o.accounts(); !slices.Equal(got, c.want) || o.cacheAccount() != c.cache {
			t.Errorf("without %q: accounts %v, the cache is filled as %s", c.without, got, o.cacheAccount())
		}
	}
}

func TestCheckImpersonation_NamesTheMissingPermission(t *testing.T) {
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			r := o.(*authorizationv1.SelfSubjectAccessReview)
			a := r.Spec.ResourceAttributes
			r.Status.Allowed = a.Verb == "impersonate" && a.Resource == "serviceaccounts" && a.Namespace == systemNamespace && a.Name == managerAccount
			return nil
		},
	}).Build()
	if err := checkImpersonation(t.Context(), api, []string{managerAccount}); err != nil {
		t.Errorf("with the permission: %v", err)
	}
	err := checkImpersonation(t.Context(), api, []string{managerAccount, serverAccount})
	if err == nil || !strings.Contains(err.Error(), "must be allowed to act as service account k8s4r-system/k8s4r-server; grant the verb impersonate") {
		t.Errorf("without the permission: %v", err)
	}
}
