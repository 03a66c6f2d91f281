package doctor

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// lease returns a Lease that its holder renewed ago.
func lease(namespace, name, by string, ago time.Duration) client.Object {
	at := metav1.NewMicroTime(noon.Add(-ago))
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &by, RenewTime: &at}}
}

func TestCheckPrograms_ReportsHolders(t *testing.T) {
	const again = " again; see its log for the reason"
	fine := func(name string) Finding {
		return Finding{OK, name, "runs: Lease k8s4r-system/k8s4r-" + name + ", renewed 2s ago by pod", ""}
	}
	inUp := func(name string) Finding {
		return Finding{OK, name, "runs in k8s4r up: Lease k8s4r-system/k8s4r-up, renewed 1s ago by laptop", ""}
	}
	twice := func(name string) Finding {
		return Finding{Fail, name, "runs twice: Lease k8s4r-system/k8s4r-" + name + ", renewed 2s ago by pod, and Lease k8s4r-system/k8s4r-up, renewed 1s ago by laptop",
			"stop either k8s4r up or the deployed programs"}
	}
	absent := func(name, does string) Finding {
		return Finding{Fail, name, "does not run, so " + does + ": no process holds the Lease k8s4r-" + name,
			"start k8s4r-" + name + " or k8s4r up; this check does not find programs that run with --leader-elect=false"}
	}
	manager, server := lease("k8s4r-system", "k8s4r-manager", "pod", 2*time.Second), lease("k8s4r-system", "k8s4r-server", "pod", 2*time.Second)
	up := lease("k8s4r-system", "k8s4r-up", "laptop", time.Second)
	for _, c := range []struct {
		name   string
		leases []client.Object
		want   []Finding
	}{
		{"nothing runs", nil, []Finding{absent("manager", "no objects are reconciled"), absent("server", "robots get no messages")}},
		{"both run", []client.Object{manager, server}, []Finding{fine("manager"), fine("server")}},
		{"only the manager runs", []client.Object{manager}, []Finding{fine("manager"), absent("server", "robots get no messages")}},
		{"up runs", []client.Object{up}, []Finding{inUp("manager"), inUp("server")}},
		{"up and the deployed programs run", []client.Object{manager, server, up}, []Finding{twice("manager"), twice("server")}},
		{"up and a deployed server run", []client.Object{server, up}, []Finding{inUp("manager"), twice("server")}},
		{"up has exited", []client.Object{manager, server, lease("k8s4r-system", "k8s4r-up", "laptop", time.Hour)}, []Finding{fine("manager"), fine("server")}},
		{"the manager has exited", []client.Object{lease("k8s4r-system", "k8s4r-manager", "pod", 90*time.Second), server}, []Finding{
			{Fail, "manager", "has stopped, so no objects are reconciled: Lease k8s4r-system/k8s4r-manager, renewed 90s ago by pod", "start k8s4r-manager" + again}, fine("server"),
		}},
		{"the deployed programs have exited and up runs", []client.Object{lease("k8s4r-system", "k8s4r-manager", "pod", time.Hour), up}, []Finding{inUp("manager"), inUp("server")}},
		{"the manager has released its Lease", []client.Object{lease("k8s4r-system", "k8s4r-manager", "", time.Second), server},
			[]Finding{absent("manager", "no objects are reconciled"), fine("server")}},
		{"managers of single features, of which one has exited", []client.Object{manager, server,
			lease("k8s4r-system", "k8s4r-manager-vcjob", "pod", 2*time.Second), lease("k8s4r-system", "k8s4r-manager-raycluster", "pod", time.Hour)}, []Finding{
			fine("manager"), fine("server"), {OK, "manager of vcjob", "runs: Lease k8s4r-system/k8s4r-manager-vcjob, renewed 2s ago by pod", ""},
			{Fail, "manager of raycluster", "has stopped: Lease k8s4r-system/k8s4r-manager-raycluster, renewed 60m ago by pod",
				"start k8s4r-manager-raycluster again, or delete the Lease if that Deployment was removed"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			equalFindings(t, checkPrograms(t.Context(), newCluster(t, interceptor.Funcs{}, c.leases...)), c.want...)
		})
	}
	t.Run("Leases cannot be listed", func(t *testing.T) {
		equalFindings(t, checkPrograms(t.Context(), newCluster(t, failLists(errForbidden))), unknownFor("manager and server"))
	})
}

func TestHolderOf_ReturnsLatestHolder(t *testing.T) {
	neverRenewed := lease("a", "l", "x", 0).(*coordinationv1.Lease)
	neverRenewed.Spec.RenewTime = nil
	noHolder := lease("b", "l", "x", 0).(*coordinationv1.Lease)
	noHolder.Spec.HolderIdentity = nil
	for _, c := range []struct {
		name   string
		leases []client.Object
		want   holder
		active bool
	}{
		{"no Lease", nil, holder{}, false},
		{"a Lease of another name", []client.Object{lease("n", "other", "x", 0)}, holder{}, false},
		{"incomplete Leases", []client.Object{neverRenewed, noHolder}, holder{}, false},
		{"the latest of several namespaces", []client.Object{lease("a", "l", "x", 3*time.Hour), lease("b", "l", "y", 2*time.Second), lease("c", "l", "z", time.Hour)},
			holder{"b/l", "y", 2 * time.Second}, true},
		{"a released Lease of another namespace", []client.Object{lease("a", "l", "x", 2*time.Second), lease("b", "l", "", time.Second)}, holder{"a/l", "x", 2 * time.Second}, true},
		{"just before the limit", []client.Object{lease("n", "l", "x", time.Minute-time.Microsecond)}, holder{"n/l", "x", time.Minute - time.Microsecond}, true},
		{"at the limit", []client.Object{lease("n", "l", "x", time.Minute)}, holder{"n/l", "x", time.Minute}, false},
		{"a clock that is ahead", []client.Object{lease("n", "l", "x", -5*time.Second)}, holder{"n/l", "x", -5 * time.Second}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := findHolder(t.Context(), newCluster(t, interceptor.Funcs{}, c.leases...), "l")
			if err != nil || got != c.want || got.isActive() != c.active {
				t.Errorf("got %+v, active %t (%v), want %+v, active %t", got, got.isActive(), err, c.want, c.active)
			}
		})
	}
	if got, want := (holder{"n/l", "x", -5 * time.Second}).String(), "Lease n/l, renewed 0s ago by x"; got != want {
		t.Errorf("a clock that is ahead: got %q, want %q", got, want)
	}
}

func TestPeerOperators_AreFoundByTheirLeases(t *testing.T) {
	const volcano, ray = "Volcano's controllers", "KubeRay's operator"
	cluster := newCluster(t, interceptor.Funcs{}, lease("volcano-system", "vc-controller-manager", "vc-0", 3*time.Second), lease("ray", "ray-operator-leader", "ray-0", 4*time.Second))
	equalFindings(t, checkVolcano(t.Context(), cluster), Finding{
		Warn, volcano, "run (Lease volcano-system/vc-controller-manager, renewed 3s ago by vc-0): the vcjob controller of K8s4r yields to them, but two JobFlow controllers write each status",
		"start k8s4r-manager with --controllers=*,-vcjob and disable Volcano's JobFlow controller, or start k8s4r-manager with --controllers=*,-vcjob,-jobflow,-jobtemplate",
	})
	equalFindings(t, checkKubeRay(t.Context(), cluster), Finding{OK, ray, "runs (Lease ray/ray-operator-leader, renewed 4s ago by ray-0); the raycluster controller of K8s4r yields to it", ""})

	for name, c := range map[string]Cluster{
		"never installed": newCluster(t, interceptor.Funcs{}),
		"removed":         newCluster(t, interceptor.Funcs{}, lease("v", "vc-controller-manager", "vc-0", time.Hour), lease("r", "ray-operator-leader", "ray-0", time.Hour)),
	} {
		t.Run(name, func(t *testing.T) {
			equalFindings(t, checkVolcano(t.Context(), c), Finding{OK, volcano, "do not run", ""})
			equalFindings(t, checkKubeRay(t.Context(), c), Finding{OK, ray, "does not run", ""})
		})
	}
	denied := newCluster(t, failLists(errForbidden))
	equalFindings(t, checkVolcano(t.Context(), denied), unknownFor(volcano))
	equalFindings(t, checkKubeRay(t.Context(), denied), unknownFor(ray))
}
