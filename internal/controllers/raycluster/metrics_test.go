package raycluster

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// The time until a cluster was provisioned has fractions of a second, although the status has none.
func TestRecordMetrics_FractionsOfSecond(t *testing.T) {
	cluster := testCluster()
	cluster.Name = "fractions"
	api := fakeapi.NewBuilder(testScheme(t)).WithObjects(cluster).WithStatusSubresource(cluster).Build()
	c := newTestController(api, func() time.Time { return t0.Add(2500 * time.Millisecond) })
	status := cluster.Status.DeepCopy()
	status.Conditions = []metav1.Condition{{
		Type: rayv1.RayClusterProvisioned, Status: metav1.ConditionTrue, Reason: rayv1.ReasonAllPodRunningAndReadyFirstTime, LastTransitionTime: metav1.NewTime(c.Now()),
	}}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Fatal(err)
	}
	if _, err := c.writeStatus(t.Context(), &Input{Cluster: cluster}, status); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name   string
		forget bool // as after a restart
		want   float64
	}{{"after the transition", false, 2.5}, {"after a restart", true, 2}} {
		if step.forget {
			c.memory.ForgetObject(client.ObjectKeyFromObject(cluster))
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		c.recordMetrics(cluster)
		var m dto.Metric
		if err := provisionedDuration.WithLabelValues(cluster.Name, cluster.Namespace, string(cluster.UID)).Write(&m); err != nil {
			t.Fatal(err)
		}
		if got := m.GetGauge().GetValue(); got != step.want {
			t.Errorf("%s: %v seconds, want %v", step.name, got, step.want)
		}
	}
	dropMetrics(client.ObjectKeyFromObject(cluster))
}
