package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
)

// fullJournal is on a disk that may be full.
type fullJournal struct {
	attemptJournal
	isFull atomic.Bool
}

func (j *fullJournal) Append(records ...journal.Record) error {
	if j.isFull.Load() {
		return errors.New("the disk is full")
	}
	return j.attemptJournal.Append(records...)
}

// run lets the runner work until the test ends.
func (x *restartTest) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	x.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			x.t.Error(err)
		}
	})
}

// fillDisk lets the runner work, which waits for its disk until that is no longer full.
func (x *restartTest) fillDisk() *fullJournal {
	disk := &fullJournal{attemptJournal: x.Runner.journal}
	disk.isFull.Store(true)
	x.Runner.journal = disk
	x.run()
	x.Deliver(wire.Dispatch{Action: wire.ActionCreate, Task: shell("t2", "exit 0"), Attempt: 1, Epoch: 2})
	synctest.Wait()
	return disk
}

// empty frees the disk, and waits until the runner has noticed that.
func (j *fullJournal) empty() {
	j.isFull.Store(false)
	time.Sleep(2 * appendRetry)
	synctest.Wait()
}

// operateFor requests something and waits this long.
func (x *restartTest) operateFor(patience time.Duration, action LocalAction) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := x.Operate(ctx, LocalRequest{Action: action, UID: "t1", By: person, Reason: "a broken arm"})
	return err
}

// The technician may have a hand in the machine, and has given up.
func TestLocalRequest_IsNotCarriedOutLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := waitingTest(t)
		x.mustOperate(LocalMaintenanceOn)
		disk := x.fillDisk()
		if err := x.operateFor(2*time.Second, LocalMaintenanceOff); !errors.Is(err, errNothingDone) {
			t.Errorf("on a full disk: %v", err)
		}
		disk.empty()
		if !x.isInMaintenance() {
			t.Error("a request that was given up has ended the maintenance")
		}
		must(t, x.operateFor(2*time.Second, LocalMaintenanceOff))
		if x.isInMaintenance() {
			t.Error("the maintenance goes on")
		}
	})
}

// slowState is a state whose writes take some time.
type slowState struct {
	localStore
	delay time.Duration
}

func (s slowState) Write(to wire.LocalState) error {
	time.Sleep(s.delay)
	return s.localStore.Write(to)
}

func TestLocalRequest_IsAnsweredByItsResultOnceItHasBegun(t *testing.T) {
	for name, test := range map[string]struct {
		delay time.Duration
		want  error
	}{
		"a slow disk":                  {localReplyTimeout - time.Second, nil},
		"a disk that does not respond": {localReplyTimeout + time.Second, errMayBeDone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := waitingTest(t)
				x.local = slowState{x.local, test.delay}
				x.run()
				if err := x.operateFor(time.Second, LocalMaintenanceOn); !errors.Is(err, test.want) {
					t.Errorf("the answer is %v, want %v", err, test.want)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if !x.isInMaintenance() {
					t.Error("the request was not carried out")
				}
			})
		})
	}
}

// Commands such as logs -f ask again and again, also while the runner waits for its disk.
func TestListTasks_LeavesTheInboxToTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRestartTest(t)
		disk := x.fillDisk()
		for range 2 * InboxSize {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			if _, err := x.ListTasks(ctx); !errors.Is(err, errBusy) {
				t.Fatalf("on a full disk: %v", err)
			}
			cancel()
		}
		x.Deliver(wire.Dispatch{Action: wire.ActionCreate, Task: x.task, Attempt: 1, Epoch: 3})
		disk.empty()
		if tasks, err := x.ListTasks(context.Background()); err != nil || len(tasks) != 2 || tasks[0].UID != "t1" {
			t.Errorf("tasks %+v, %v; want also the one that was dispatched while the disk was full", tasks, err)
		}
	})
}
