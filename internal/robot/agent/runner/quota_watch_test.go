package runner

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// scannedDisks is a quotaWatcher whose disks the test invents.
type scannedDisks struct {
	*quotaWatcher

	mu       sync.Mutex
	used     int64         // of each replica
	takes    time.Duration // for each replica
	scans    []time.Duration
	reported map[string]int
}

func watchTestDisks(t *testing.T, interval time.Duration) *scannedDisks {
	s, began := &scannedDisks{quotaWatcher: newQuotaWatcher(interval), reported: map[string]int{}}, time.Now()
	s.measure = func(context.Context, []string) int64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.scans = append(s.scans, time.Since(began))
		time.Sleep(s.takes)
		return s.used
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go s.watchDisks(ctx, func(e diskExcess) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reported[e.replica]++
	})
	return s
}

// pass lets time pass, and calls look with s.mu held.
func (s *scannedDisks) pass(d time.Duration, look func()) {
	time.Sleep(d)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	look()
}

func quotaRun(uid, group string, sizeMB int64) *attempt {
	return &attempt{task: shell(uid, "", onDisk(wire.EphemeralDisk{SizeMB: sizeMB}, group)), number: 1}
}

func TestQuotaWatcher_ScansWhileThereAreQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchTestDisks(t, 10*time.Second)
		expect := func(what string, after time.Duration, want ...time.Duration) {
			t.Helper()
			s.pass(after, func() {
				if !slices.Equal(s.scans, want) {
					t.Errorf("%s: scans at %v, want %v", what, s.scans, want)
				}
				s.scans = nil
			})
		}
		expect("without a quota", time.Hour)
		s.addRun(&attempt{task: shell("free", ""), number: 1}, "")
		expect("with a task without a quota", time.Hour)
		limited := quotaRun("t1", "g", 1)
		s.addRun(limited, "")
		const start = 2 * time.Hour
		expect("with a quota", 25*time.Second, start+10*time.Second, start+20*time.Second)
		s.pass(0, func() { s.takes = 2 * time.Second })
		expect("with a slow disk", 60*time.Second, start+30*time.Second, start+72*time.Second)
		s.removeRun(limited)
		expect("after the task has ended", time.Hour)
	})
}

func TestQuotaWatcher_ReportsReplicasOverTheirQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchTestDisks(t, time.Second)
		small, large, sibling := quotaRun("t1", "g1", 1), quotaRun("t2", "g2", 1), quotaRun("t3", "g2", 2)
		for _, attempt := range []*attempt{small, large, sibling} {
			s.addRun(attempt, "")
		}
		s.pass(0, func() { s.used = 1_000_000 })
		s.pass(1500*time.Millisecond, func() {
			if len(s.reported) > 0 {
				t.Errorf("reported %v, but no replica exceeds its quota", s.reported)
			}
			s.used++
		})
		s.pass(time.Second, func() {
			if want := map[string]int{replicaKey(small.task): 1}; !maps.Equal(s.reported, want) {
				t.Errorf("reported %v, want %v: the quota of a replica is the largest of its tasks", s.reported, want)
			}
		})
	})
}
