// Package restore holds back decisions about tasks after the cluster was restored from a backup,
// until the robots that are connected have reported what they ran since that backup. It also
// numbers attempts so that no number is used twice: each restore starts a new epoch, and the
// attempts of an epoch have numbers above those of all epochs before.
package restore

import (
	"fmt"
	"sync"
)

const (
	// attemptsPerEpoch is more than the attempts of a task between a backup and its restore: at one
	// restart a second it lasts for 12 days.
	attemptsPerEpoch = 1 << 20
	// MaxEpoch is the last epoch: numbers of attempts have 31 bits.
	MaxEpoch = 1<<11 - 2
	// maxRaise bounds how far robots can raise the epoch, so that one that lies cannot use up the
	// numbers. It covers that many other restores of the same backup.
	maxRaise = 16
)

// Summary is what a restore found on the robots.
type Summary struct {
	// Reported is the number of robots whose journal was read.
	Reported int
	// Adopted is the number of attempts that the backup did not have.
	Adopted int
	// Unknown is the number of running attempts of tasks that the backup does not have. Their robots
	// stop them.
	Unknown int
	// Missing are the robots that did not report. Their tasks follow disconnect, and may run again.
	Missing []string
}

// Gate is closed after a restore until the robots have reported. A nil Gate is open, in epoch 0.
type Gate struct {
	record func(epoch int32, s Summary) error

	mu      sync.Mutex
	epoch   int32
	highest int32         // epoch that robots can raise it to
	opened  chan struct{} // closed when the gate is open
}

// OpenGate returns a gate that is open: the robots have reported after the last restore.
func OpenGate(epoch int32) *Gate {
	g := &Gate{epoch: epoch, opened: make(chan struct{})}
	close(g.opened)
	return g
}

// ClosedGate returns a gate that is closed. It calls record, which stores that the robots have
// reported, before it opens.
func ClosedGate(epoch int32, record func(epoch int32, s Summary) error) *Gate {
	return &Gate{epoch: epoch, highest: min(epoch+maxRaise, MaxEpoch), record: record, opened: make(chan struct{})}
}

// NextEpoch returns the epoch of a restore, above all that are given.
func NextEpoch(before ...int32) (int32, error) {
	next := int32(1)
	for _, e := range before {
		next = max(next, e+1)
	}
	if next > MaxEpoch {
		return 0, fmt.Errorf("epoch %d: this cluster was restored too often (%d times at most); set up a new one", next, MaxEpoch)
	}
	return next, nil
}

// IsOpen reports whether tasks may be placed.
func (g *Gate) IsOpen() bool {
	select {
	case <-g.Opened():
		return true
	default:
		return false
	}
}

// open is the channel of a nil Gate.
var open = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Opened returns a channel that is closed when tasks may be placed.
func (g *Gate) Opened() <-chan struct{} {
	if g == nil {
		return open
	}
	return g.opened
}

// FirstAttempt returns the lowest number of an attempt that starts in this epoch.
func (g *Gate) FirstAttempt() int32 {
	if g == nil {
		return 1
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.epoch*attemptsPerEpoch + 1
}

// RaiseAbove raises the epoch above that of an attempt on a robot: the backup may have been
// restored before. An open gate keeps its epoch, in which attempts have started.
func (g *Gate) RaiseAbove(attempt int32) {
	if g == nil || g.IsOpen() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := (attempt-1)/attemptsPerEpoch + 1; e > g.epoch && e <= g.highest {
		g.epoch = e
	}
}

// Open stores that the robots have reported and lets tasks be placed. After an error the gate stays
// closed. It must be called by one goroutine.
func (g *Gate) Open(s Summary) error {
	if g.IsOpen() {
		return nil
	}
	g.mu.Lock()
	epoch := g.epoch
	g.mu.Unlock()
	if err := g.record(epoch, s); err != nil {
		return fmt.Errorf("record that the robots have reported after the restore: %w", err)
	}
	close(g.opened)
	return nil
}
