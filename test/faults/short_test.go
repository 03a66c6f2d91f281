package main

import "testing"

// The short versions of all scenarios. `make faults` runs the long ones.

func TestKillingTheAgentLosesNoTaskAndRunsNoneTwice(t *testing.T) {
	show(t, "agent-kills", agentKills(t, *seed, 1, 400, 20))
}

func TestKillingTheBrokerLosesNoTaskAndRunsNoneTwice(t *testing.T) {
	t.Parallel() // it waits most of the time
	show(t, "broker-kills", brokerKills(t, *seed, 0))
}

func TestKillingServerAndManagerLosesNoTaskAndRunsNoneTwice(t *testing.T) {
	show(t, "control-kills", controlKills(t, *seed, 0))
}

func TestAnAgentStartsOnAnyPartOfItsJournalAndRunsNothingAgain(t *testing.T) {
	show(t, "journal-cuts", journalCuts(t, *seed, 20))
}

func TestADamagedStateOfAShimIsNoReasonToRunItsTaskAgain(t *testing.T) {
	show(t, "state-cuts", stateCuts(t, *seed, 20))
}

func TestStruckMessagesLoseNoTaskAndRunNoneTwice(t *testing.T) {
	t.Parallel() // as above
	show(t, "messages", messages(t, *seed, 0))
}

func TestAFencedTaskNeverRunsTwiceWhateverPartsItsRobot(t *testing.T) {
	t.Parallel() // as above
	f := partitions(t, 1)
	show(t, "partitions", f)
	if f.Also["double_run_s"] != 0.0 {
		t.Errorf("two runs for %v s", f.Also["double_run_s"])
	}
}

// show fails the test if anything was lost, doubled or left over, and says how to
// see it again.
func show(t *testing.T, scenario string, f figures) {
	t.Helper()
	t.Logf("%+v; make faults FAULTS='-seed %d -only %s'", f, *seed, scenario)
	if f.Tasks == 0 || f.Lost+f.Doubled+f.Orphans > 0 {
		t.Errorf("%d of %d tasks lost, %d attempts doubled, %d processes left over", f.Lost, f.Tasks, f.Doubled, f.Orphans)
	}
}
