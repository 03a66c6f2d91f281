package restore

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestGate_NoAttemptNumberTwice restores a backup again and again, also one that is older than the
// last restore, with robots that have seen the attempts since. No epoch's numbers overlap those of
// another one that any robot has seen.
func TestGate_NoAttemptNumberTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backups := []int32{0} // epochs of the backups so far
		used := int32(0)      // the highest number that a robot has seen
		for range rapid.IntRange(1, maxRaise).Draw(t, "restores") {
			from := rapid.SampledFrom(backups).Draw(t, "backup")
			epoch, err := NextEpoch(from)
			if err != nil {
				t.Fatal(err)
			}
			g := ClosedGate(epoch, func(e int32, _ Summary) error { epoch = e; return nil })
			if used > 0 {
				g.RaiseAbove(used)
			}
			if err := g.Open(Summary{}); err != nil {
				t.Fatal(err)
			}
			first := g.FirstAttempt()
			if first <= used {
				t.Fatalf("epoch %d starts with attempt %d, and %d was used", epoch, first, used)
			}
			used = first + rapid.Int32Range(0, attemptsPerEpoch-1).Draw(t, "attempts")
			backups = append(backups, epoch)
		}
	})
}

func TestGate_RobotCannotUseUpNumbers(t *testing.T) {
	g := ClosedGate(3, func(int32, Summary) error { return nil })
	g.RaiseAbove(math.MaxInt32)
	if got, want := g.FirstAttempt(), int32(3*attemptsPerEpoch+1); got != want {
		t.Errorf("first attempt %d, want %d", got, want)
	}
	for epoch := range int32(MaxEpoch) { // each within reach of the one before
		g.RaiseAbove(epoch*attemptsPerEpoch + 1)
	}
	if got, want := g.FirstAttempt(), int32((3+maxRaise)*attemptsPerEpoch+1); got != want {
		t.Errorf("first attempt %d after many entries of a journal, want %d", got, want)
	}
	if first := ClosedGate(MaxEpoch, nil).FirstAttempt(); first <= 0 || first > math.MaxInt32-attemptsPerEpoch {
		t.Errorf("the last epoch starts with %d", first)
	}
}

func TestNextEpoch_IsBounded(t *testing.T) {
	if e, err := NextEpoch(1, 7, 3); e != 8 || err != nil {
		t.Errorf("after 7: %d, %v", e, err)
	}
	if _, err := NextEpoch(MaxEpoch); err == nil {
		t.Error("there is an epoch after the last")
	}
}

func TestGate_OpensOnceRecorded(t *testing.T) {
	full := errors.New("disk full")
	err := full
	g := ClosedGate(1, func(int32, Summary) error { return err })
	if got := g.Open(Summary{}); !errors.Is(got, full) || g.IsOpen() {
		t.Fatalf("open: %v, %v", got, g.IsOpen())
	}
	err = nil
	if got := g.Open(Summary{}); got != nil || !g.IsOpen() {
		t.Fatalf("open: %v, %v", got, g.IsOpen())
	}
}

func TestGate_NilIsOpen(t *testing.T) {
	var g *Gate
	g.RaiseAbove(5)
	if !g.IsOpen() || g.FirstAttempt() != 1 {
		t.Errorf("open %v, first attempt %d", g.IsOpen(), g.FirstAttempt())
	}
}
