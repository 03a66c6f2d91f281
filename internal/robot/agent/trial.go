package agent

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/version"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
)

// selfTestTimeout is how long a version on trial may take from its start until the server has acknowledged a
// heartbeat.
const selfTestTimeout = 30 * time.Second

var (
	// errSwitchOver ends an agent whose tasks another version takes over.
	errSwitchOver = errors.New("another version takes over")
	// errSelfTest ends an agent that has not passed its self-test.
	errSelfTest = fmt.Errorf("the self-test has failed: connected, registered and one heartbeat acknowledged within %v", selfTestTimeout)
)

// trial is the self-test of an agent on trial. A nil trial is that of an agent that needs none.
type trial struct {
	ended   chan struct{}
	once    sync.Once
	problem error // of the test; set before ended is closed
	timer   *time.Timer
}

// newTrial begins a self-test. The journal has been read already when Run waits for its end.
func newTrial() *trial {
	t := &trial{ended: make(chan struct{})}
	t.timer = time.AfterFunc(selfTestTimeout, func() { t.finish(errSelfTest) })
	return t
}

func (t *trial) finish(problem error) {
	t.once.Do(func() {
		t.problem = problem
		close(t.ended)
	})
}

// recordContact passes the test: heartbeats are sent only after the registration.
func (t *trial) recordContact() {
	if t != nil {
		t.timer.Stop()
		t.finish(nil)
	}
}

// done is closed when the test has ended. It is nil without a test.
func (t *trial) done() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.ended
}

// end records the result, and returns the error with which the agent ends: the launcher then starts this
// version for good, or the one before.
func (t *trial) end(store *slots.Store) error {
	if t.problem != nil {
		return errors.Join(t.problem, store.RecordProblem(oneLine(t.problem)))
	}
	if err := store.Pass(time.Now().UTC()); err != nil {
		return fmt.Errorf("record that the self-test has passed: %w", err)
	}
	return errSwitchOver
}

// checkTrial returns an error if this version must not go on with its trial.
func checkTrial(store *slots.Store, mark slots.Mark) error {
	m, err := store.Manifest(mark.Slot)
	if err != nil {
		return fmt.Errorf("read the manifest of this version: %w", err)
	}
	if m.Version != version.Version {
		return fmt.Errorf("the program is version %s, and its manifest has %s: sign it with the version that it prints", version.Version, m.Version)
	}
	reads, err := store.PreviousReads()
	if err != nil {
		return err
	}
	return formats.CheckReadable(reads)
}
