package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1alpha1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// within is a long time, for a machine that runs other tests at the same time.
const within = 30 * time.Second

// TestCluster_BehavesLikeKubernetes uses one control plane for all subtests.
func TestCluster_BehavesLikeKubernetes(t *testing.T) {
	t.Parallel()
	up := startBare(t)
	t.Run("dependants go with their owner", func(t *testing.T) { testGarbageCollection(t, up) })
	t.Run("a service account's token may do what its role says, no more", func(t *testing.T) { testRBAC(t, up) })
	t.Run("a namespace goes with everything in it", func(t *testing.T) { testNamespaceDeletion(t, up) })
	t.Run("requests without credentials are refused", func(t *testing.T) { testAnonymous(t, up) })
	t.Run("roles aggregate", func(t *testing.T) { testAggregation(t, up) })
}

// testGarbageCollection uses an owner of one of our kinds: the collector must know CRDs that were
// installed a moment ago.
func testGarbageCollection(t *testing.T, up *testkit.Up) {
	ctx := t.Context()
	robots := robotClient(t, up)
	robot := &robotv1alpha1.Robot{
		ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: "default"},
		Spec:       robotv1alpha1.RobotSpec{RobotID: "owner"},
	}
	if err := robots.Create(ctx, robot); err != nil {
		t.Fatal(err)
	}
	owned := configMap("owned")
	owned.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: robotv1alpha1.GroupVersion.String(), Kind: "Robot", Name: robot.Name, UID: robot.UID,
	}}
	c := clientOf(t, up).CoreV1().ConfigMaps("default")
	for _, cm := range []*corev1.ConfigMap{owned, configMap("free")} {
		if _, err := c.Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := robots.Delete(ctx, robot); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, within, "dependant deleted", func() error {
		return gone(c.Get(ctx, "owned", metav1.GetOptions{}))
	})
	if _, err := c.Get(ctx, "free", metav1.GetOptions{}); err != nil {
		t.Errorf("an object without an owner went too: %v", err)
	}
}

func robotClient(t *testing.T, up *testkit.Up) client.Client {
	t.Helper()
	c, err := client.New(up.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := robotv1alpha1.AddToScheme(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	return c
}

// gone returns nil if a get returned NotFound.
func gone[T any](_ T, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		return fmt.Errorf("still there")
	}
	return err
}

func testRBAC(t *testing.T, up *testkit.Up) {
	ctx := t.Context()
	admin := clientOf(t, up)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reader := withToken(t, up, "reader")
	list := func() error {
		_, err := reader.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		return err
	}
	if err := list(); !apierrors.IsForbidden(err) {
		t.Fatalf("list secrets without a role: want forbidden, got %v", err)
	}
	grantSecrets(t, admin, "reader")
	testkit.EventuallyNoError(t, within, "list secrets with a role", list)
	if _, err := reader.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list secrets of another namespace: want forbidden, got %v", err)
	}
}

// withToken returns a client with a new token of the service account.
func withToken(t *testing.T, up *testkit.Up, account string) kubernetes.Interface {
	t.Helper()
	answer, err := clientOf(t, up).CoreV1().ServiceAccounts("default").
		CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(up.RESTConfig())
	cfg.BearerToken = answer.Status.Token
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func grantSecrets(t *testing.T, admin kubernetes.Interface, account string) {
	t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "secrets"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "secrets"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "secrets"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: "default"}},
	}
	if _, err := admin.RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testNamespaceDeletion(t *testing.T, up *testkit.Up) {
	ctx := t.Context()
	c := clientOf(t, up).CoreV1()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}
	if _, err := c.Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, within, "default service account of a new namespace", func() error {
		_, err := c.ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	cm := configMap("inside")
	cm.Namespace = ns.Name
	if _, err := c.ConfigMaps(ns.Name).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, within, "namespace deleted", func() error {
		return gone(c.Namespaces().Get(ctx, ns.Name, metav1.GetOptions{}))
	})
}

func testAnonymous(t *testing.T, up *testkit.Up) {
	c, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(up.RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
		t.Errorf("want unauthorized, got %v", err)
	}
}

func testAggregation(t *testing.T, up *testkit.Up) {
	testkit.EventuallyNoError(t, within, "rules in the role admin", func() error {
		role, err := clientOf(t, up).RbacV1().ClusterRoles().Get(context.Background(), "admin", metav1.GetOptions{})
		if err == nil && len(role.Rules) == 0 {
			err = fmt.Errorf("no rules")
		}
		return err
	})
}
