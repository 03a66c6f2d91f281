package up

import "testing"

func TestManagerOptions_ElectLeaderOnExternalCluster(t *testing.T) {
	own, other := options{}, options{kubeconfig: "config"}
	if own.managerOptions().LeaderElection {
		t.Error("leader election is enabled for the embedded cluster")
	}
	got := other.managerOptions()
	if !got.LeaderElection || !got.LeaderElectionReleaseOnCancel || got.LeaderElectionID != "k8s4r-up" || got.LeaderElectionNamespace != "k8s4r-system" {
		t.Errorf("%+v", got)
	}
}
