package main

import "testing"

// These tests run short versions of all scenarios; make faults runs the long ones.

func TestAgentKills_LoseNoTaskAndRunNoneTwice(t *testing.T) {
	requireNoLoss(t, "agent-kills", agentKills(t, *seed, 1, 400, 20))
}

func TestBrokerKills_LoseNoTaskAndRunNoneTwice(t *testing.T) {
	t.Parallel() // it waits most of the time
	requireNoLoss(t, "broker-kills", brokerKills(t, *seed, 0))
}

func TestServerAndManagerKills_LoseNoTaskAndRunNoneTwice(t *testing.T) {
	requireNoLoss(t, "control-kills", controlKills(t, *seed, 0))
}

func TestTruncatedJournal_RunsNothingAgain(t *testing.T) {
	requireNoLoss(t, "journal-cuts", journalCuts(t, *seed, 20))
}

func TestDamagedShimState_RunsNothingAgain(t *testing.T) {
	requireNoLoss(t, "state-cuts", stateCuts(t, *seed, 20))
}

func TestDroppedMessages_LoseNoTaskAndRunNoneTwice(t *testing.T) {
	t.Parallel() // as above
	requireNoLoss(t, "messages", disturbMessages(t, *seed, 0))
}

func TestPartitions_SelfStoppingTasksNeverRunTwice(t *testing.T) {
	t.Parallel() // as above
	f := runPartitions(t, 1)
	requireNoLoss(t, "partitions", f)
	if f.Also["double_run_s"] != 0.0 {
		t.Errorf("two runs overlap for %v s", f.Also["double_run_s"])
	}
}

func TestOfflineRestarts_LoseNoTaskAndRunNoneTwice(t *testing.T) {
	t.Parallel() // as above
	requireNoLoss(t, "offline-restarts", offlineRestarts(t, *seed, restartFaults{robots: 2, cuts: 1, kills: 2}))
}

func TestReboots_StartAllAgainAndNothingTwice(t *testing.T) {
	t.Parallel() // as above
	requireNoLoss(t, "reboots", reboots(t, *seed, rebootFaults{robots: 1, cuts: 1, boots: 1, offsets: 5}))
}

func TestRollouts_EndAndLeaveNoBadRevision(t *testing.T) {
	t.Parallel() // as above
	requireNoLoss(t, "rollouts", rollouts(t, *seed, rolloutFaults{robots: 4, rollouts: 2}))
}

// requireNoLoss fails the test if a task was lost, ran twice or left a process. It logs the seed that
// repeats the faults.
func requireNoLoss(t *testing.T, scenario string, f figures) {
	t.Helper()
	t.Logf("%+v; make faults FAULTS='-seed %d -only %s'", f, *seed, scenario)
	if f.Tasks == 0 || f.Lost+f.Doubled+f.Orphans > 0 {
		t.Errorf("%d of %d tasks lost, %d attempts doubled, %d processes left over", f.Lost, f.Tasks, f.Doubled, f.Orphans)
	}
}
