package test

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1alpha1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestAdmission_ValidatesFlowsOnceReady expects every flow to be validated once up is ready, also after a
// power cut, when the address of the webhook has changed.
func TestAdmission_ValidatesFlowsOnceReady(t *testing.T) {
	t.Parallel()
	up := testkit.StartUp(t, "--without", "server,broker,robots")
	const want = `admission webhook "validatejobflow.volcano.sh" denied the request: jobflow Flow is not DAG`
	expectRejected := func() {
		t.Helper()
		flow := &flowv1alpha1.JobFlow{ObjectMeta: metav1.ObjectMeta{Name: "cyclic", Namespace: "default"}}
		flow.Spec.Flows = []flowv1alpha1.Flow{
			{Name: "a", DependsOn: &flowv1alpha1.DependsOn{Targets: []string{"b"}}},
			{Name: "b", DependsOn: &flowv1alpha1.DependsOn{Targets: []string{"a"}}},
		}
		if err := flowClient(t, up).Create(t.Context(), flow); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	expectRejected()
	up.Kill()
	up.Start()
	expectRejected()
}

// The API server of another cluster may be unable to reach this machine.
func TestAdmission_DoesNotBlockAForeignCluster(t *testing.T) {
	t.Parallel()
	foreign := startBare(t)
	beside := testkit.StartUp(t, "--kubeconfig", foreign.Kubeconfig, "--without", "server,broker,robots")
	registered := admissionv1.ValidatingWebhookConfiguration{}
	get := func() error {
		c := clientOf(t, foreign).AdmissionregistrationV1().ValidatingWebhookConfigurations()
		found, err := c.Get(t.Context(), "k8s4r-jobflows", metav1.GetOptions{})
		if err == nil {
			registered = *found
		}
		return err
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	for _, w := range registered.Webhooks {
		if *w.FailurePolicy != admissionv1.Ignore || w.ClientConfig.URL == nil {
			t.Errorf("%s: %s, %+v", w.Name, *w.FailurePolicy, w.ClientConfig)
		}
	}
	changes, err := clientOf(t, foreign).AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), "k8s4r-actions", metav1.GetOptions{})
	if err != nil || *changes.Webhooks[0].FailurePolicy != admissionv1.Ignore || changes.Webhooks[0].ClientConfig.URL == nil || len(changes.Webhooks[0].ClientConfig.CABundle) == 0 {
		t.Errorf("the registration of records of actions: %+v, %v", changes, err)
	}
	beside.Stop()
	if err := gone(0, get()); err != nil {
		t.Errorf("the registration still exists after the webhook has stopped: %v", err)
	}
}

func flowClient(t *testing.T, up *testkit.Up) client.Client {
	t.Helper()
	c, err := client.New(up.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := flowv1alpha1.AddToScheme(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	return c
}
