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

func TestPercentFor(t *testing.T) {
	for _, row := range []struct {
		name             string
		liveMB, recentMB uint64
		want             int
	}{
		{"not known yet", 0, 0, 25},
		{"nothing happens", 200, 1, 25},
		{"the collector runs once in the interval", 400, 120, 30},
		{"at most half of what lives is garbage", 200, 2000, 50},
		{"much lives and nothing happens", 4000, 100, 25},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := percentFor(row.liveMB<<20, row.recentMB<<20); got != row.want {
				t.Errorf("%d %%, want %d %%", got, row.want)
			}
		})
	}
}

func TestIdleWatcher_GivesBackWhileIdle(t *testing.T) {
	var w idleWatcher
	var at, allocated uint64
	tick := func(bytes uint64) bool {
		at, allocated = at+1, allocated+bytes
		if recent := w.recordTick(allocated); recent != bytes {
			t.Errorf("tick %d: %d bytes since the last, want %d", at, recent, bytes)
		}
		return w.mustGiveBack()
	}
	for at < 100 {
		bytes := uint64(idleBytes)
		if at == 40 {
			bytes++ // busy, after it gave back at 18 and 36
		}
		if got, want := tick(bytes), at == 18 || at == 36 || at == 59 || at == 77 || at == 95; got != want {
			t.Errorf("tick %d: gives back %v, want %v", at, got, want)
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
