package main

import "testing"

// Short versions of all scenarios; make faults runs the long ones.

func TestAgentKills_LoseNoTaskAndRunNoneTwice(t *testing.T) {
	show(t, "agent-kills", agentKills(t, *seed, 1, 400, 20))
}

func TestBrokerKills_LoseNoTaskAndRunNoneTwice(t *testing.T) {
	t.Parallel() // it waits most of the time
	show(t, "broker-kills", brokerKills(t, *seed, 0))
}

func TestServerAndManagerKills_LoseNoTaskAndRunNoneTwice(t *testing.T) {
	show(t, "control-kills", controlKills(t, *seed, 0))
}

func TestTruncatedJournal_RunsNothingAgain(t *testing.T) {
	show(t, "journal-cuts", journalCuts(t, *seed, 20))
}

func TestDamagedShimState_RunsNothingAgain(t *testing.T) {
	show(t, "state-cuts", stateCuts(t, *seed, 20))
}

func TestDroppedMessages_LoseNoTaskAndRunNoneTwice(t *testing.T) {
	t.Parallel() // as above
	show(t, "messages", strikeMessages(t, *seed, 0))
}

func TestPartitions_SelfStoppingTasksNeverRunTwice(t *testing.T) {
	t.Parallel() // as above
	f := runPartitions(t, 1)
	show(t, "partitions", f)
	if f.Also["double_run_s"] != 0.0 {
		t.Errorf("two runs for %v s", f.Also["double_run_s"])
	}
}

// show fails the test if a task was lost, ran twice or left a process, and prints the seed that
// repeats the faults.
func show(t *testing.T, scenario string, f figures) {
	t.Helper()
	t.Logf("%+v; make faults FAULTS='-seed %d -only %s'", f, *seed, scenario)
	if f.Tasks == 0 || f.Lost+f.Doubled+f.Orphans > 0 {
		t.Errorf("%d of %d tasks lost, %d attempts doubled, %d processes left over", f.Lost, f.Tasks, f.Doubled, f.Orphans)
	}
}
