package memory

import (
	"math"
	"testing"

	"github.com/prometheus/procfs"
)

func TestSoftLimit(t *testing.T) {
	for _, row := range []struct {
		name    string
		machine uint64
		stats   stats
		want    int64
	}{
		{"a quarter of the machine", 8 << 30, stats{live: 300 << 20, overhead: 200 << 20}, 2 << 30},
		{"at least twice what lives", 2 << 30, stats{live: 300 << 20, overhead: 200 << 20}, 800 << 20},
		{"none if the machine is not known", 0, stats{live: 300 << 20}, math.MaxInt64},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := softLimit(row.machine, row.stats); got != row.want {
				t.Errorf("limit %d, want %d", got, row.want)
			}
		})
	}
}

func TestIdleWatcher_ReportsOnceWhenProcessBecomesIdle(t *testing.T) {
	w := idleWatcher{cycles: 10}
	for i, step := range []struct {
		cycles uint64
		want   bool
	}{
		{12, true},   // it was never busy
		{14, false},  // it is idle still
		{100, false}, // busy
		{102, true},
		{103, false},
	} {
		if got := w.isIdle(step.cycles); got != step.want {
			t.Errorf("step %d, %d collections: %v", i, step.cycles, got)
		}
	}
}

func TestReadStats_HasValues(t *testing.T) {
	if s := readStats(); s.overhead == 0 || s.overhead > 1<<40 {
		t.Errorf("overhead of %d bytes", s.overhead)
	}
	if machineMemory() == 0 {
		t.Error("the memory of the machine is not known")
	}
}

// The process must continue to run on pages that were released.
func TestReleaseProgram_DropsPages(t *testing.T) {
	before := residentOfProgram(t)
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := residentOfProgram(t); before == 0 || after >= before {
		t.Errorf("%d bytes of the program are resident, before %d", after, before)
	}
}

// residentOfProgram returns how many bytes of files the process has mapped and resident.
func residentOfProgram(t *testing.T) uint64 {
	t.Helper()
	self, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	status, err := self.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	return status.RssFile
}
