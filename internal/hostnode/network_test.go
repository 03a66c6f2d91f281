package hostnode

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNetwork_AssignsAddresses(t *testing.T) {
	n := &network{pods: netip.MustParsePrefix("10.1.2.0/29"), allocated: map[netip.Addr]types.UID{}}
	seen := map[string]bool{}
	for _, uid := range []types.UID{"a", "b", "c", "d", "e", "f"} {
		ip, err := n.allocateAddress(uid, "")
		if err != nil || seen[ip] || ip == "10.1.2.0" || ip == "10.1.2.7" || !n.pods.Contains(netip.MustParseAddr(ip)) {
			t.Errorf("%s gets %s (%v)", uid, ip, err)
		}
		seen[ip] = true
	}
	if ip, err := n.allocateAddress("g", ""); err == nil {
		t.Errorf("a seventh of six: %s", ip)
	}
	n.releaseAddress("10.1.2.3", "another pod")
	if _, err := n.allocateAddress("g", ""); err == nil {
		t.Error("the address of one pod was released by another pod")
	}
	n.releaseAddress("10.1.2.3", n.allocated[netip.MustParseAddr("10.1.2.3")])
	if ip, err := n.allocateAddress("g", "10.1.2.3"); err != nil || ip != "10.1.2.3" {
		t.Errorf("the one it had is free, but it gets %s (%v)", ip, err)
	}
}

func TestHostsFile(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"},
		Spec: corev1.PodSpec{
			Hostname: "w-0", Subdomain: "w", HostAliases: []corev1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"x", "y"}}},
		},
	}
	got := string(formatHosts(pod, "10.0.0.9", []hostsEntry{{"10.0.0.1", serviceNames("web", "n", "n")}, {"10.0.0.2", serviceNames("db", "m", "n")}}))
	want := `# Written by hostnode. The address of a Service is that of one of its ready pods.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
10.0.0.9	w-0.w.n.svc.cluster.local	w-0
1.2.3.4	x	y
10.0.0.1	web	web.n	web.n.svc	web.n.svc.cluster.local
10.0.0.2	db.m	db.m.svc	db.m.svc.cluster.local
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestProbeCounter_CountsConsecutiveResults(t *testing.T) {
	const yes, no = true, false
	count := probeCounter{successes: 2, failures: 3}
	for i, step := range []struct{ in, want bool }{
		{yes, no}, {yes, yes}, {no, no}, {no, no}, {yes, no}, {no, no}, {no, no}, {no, yes}, {no, yes}, {yes, no}, {yes, yes},
	} {
		if got := count.countResult(step.in); got != step.want {
			t.Errorf("answer %d: %v, want %v", i, got, step.want)
		}
	}
}
