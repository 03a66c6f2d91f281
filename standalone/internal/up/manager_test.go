package up

import "testing"

func TestManagerOptions_ElectLeaderOnExternalCluster(t *testing.T) {
	own, other := options{}, options{kubeconfig: "config"}
	if own.managerOptions().LeaderElection {
		t.Error("an election for a cluster that nobody else can have")
	}
	got := other.managerOptions()
	if !got.LeaderElection || !got.LeaderElectionReleaseOnCancel || got.LeaderElectionID != "k8s4r-up" || got.LeaderElectionNamespace != "k8s4r-system" {
		t.Errorf("%+v", got)
	}
}
