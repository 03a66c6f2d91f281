package gateway

import (
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// newTestLists returns task lists with all that they have published.
func newTestLists(protocol string) (*taskLists, *objectIndex, *[]wire.TaskList) {
	var out []wire.TaskList
	v := newObjectIndex()
	l := &taskLists{now: func() time.Time { return clock }, objects: v, protocolOf: func(string) string { return protocol },
		publish: func(_ int64, _ string, _ wire.Kind, payload []byte, _ bool) bool {
			list, err := wire.Decode[wire.TaskList](payload)
			if err != nil {
				panic(err)
			}
			out = append(out, list)
			return true
		}, upConnection: func() int64 { return 1 }, currentConnection: func() int64 { return 1 }}
	l.initMaps()
	return l, v, &out
}

func atVersion(t *robotv1.Task, version uint64) *robotv1.Task {
	t = t.DeepCopy()
	t.ResourceVersion = strconv.FormatUint(version, 10)
	return t
}

func TestTaskList_NamesExactlyTheActiveTasks(t *testing.T) {
	for state, want := range map[lifecycle.TaskState]bool{
		lifecycle.TaskPending: false, lifecycle.TaskDispatching: true, lifecycle.TaskRunning: true, lifecycle.TaskUnknown: true,
		lifecycle.TaskExited: false, lifecycle.TaskSoftFailed: false, lifecycle.TaskPaused: false,
		lifecycle.TaskCompleted: false, lifecycle.TaskFailed: false, lifecycle.TaskCanceled: false,
	} {
		if got := isListed(taskIn(state, 1)); got != want {
			t.Errorf("%s: %v", state, got)
		}
		if isListed(taskIn(state, 1, stopping)) {
			t.Errorf("%s and stopping is listed", state)
		}
	}
}

func TestTaskList_LegacyListHasTasksWithAttemptUIDs(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV1)
	task := taskIn(lifecycle.TaskRunning, 3)
	v.deliverTask(atVersion(task, 7))
	l.sendRegistrationList("r1")
	got := (*out)[0]
	if len(got.Tasks) != 1 || got.Tasks[0].Metadata.UID != string(task.UID)+"-3" || got.Tasks[0].Spec.Config.Exec.Command != "true" || got.Epoch != 0 {
		t.Errorf("list %+v", got)
	}
}

func TestTaskList_SkipsUnchangedList(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	v.deliverTask(atVersion(taskIn(lifecycle.TaskDispatching, 1), 7))
	l.sendList("r1")
	l.sendList("r1")
	if len(*out) != 1 {
		t.Errorf("sent %d times", len(*out))
	}
}

// The agents repeat what is not acknowledged when the server has connected again.
func TestTaskList_NamesConnectionOfServer(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	v.putRobot(&robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "r1"}, Spec: robotv1.RobotSpec{RobotID: "r1"}})
	connection := int64(1)
	l.serverID, l.currentConnection = "server", func() int64 { return connection }
	l.sendAll(connection)
	v.deliverTask(atVersion(taskIn(lifecycle.TaskDispatching, 1), 7))
	l.sendList("r1")
	connection = 3
	l.sendAll(connection)
	var got []string
	for _, list := range *out {
		got = append(got, list.ServerConnectionID)
	}
	if want := []string{"server-1", "server-1", "server-3"}; !slices.Equal(got, want) {
		t.Errorf("lists of connections %q, want %q", got, want)
	}
}

// A v2 robot that receives messages late, and reads the last retained list when it reconnects,
// never stops an attempt that should run. After it has read the last list, nothing else runs.
func TestTaskList_EpochsNeverStopActiveTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, v, out := newTestLists(robotv1.ProtocolV2)
		tasks := map[int]*robotv1.Task{}
		accepted := map[string]uint64{} // by UID: the epoch of the dispatch
		runs := func() []string {
			var uids []string
			for uid := range accepted {
				uids = append(uids, uid)
			}
			slices.Sort(uids)
			return uids
		}
		read := func(list wire.TaskList) {
			for uid, epoch := range accepted {
				named := slices.ContainsFunc(list.Refs, func(r wire.TaskReference) bool { return r.UID == uid })
				if !named && list.Epoch >= epoch {
					delete(accepted, uid)
				}
			}
		}
		version := uint64(100)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(0, 4).Draw(t, "task")
			switch rapid.SampledFrom([]string{"bind", "late bind", "dispatch", "end", "own write", "list", "come back"}).Draw(t, "step") {
			case "bind":
				version++
				if tasks[n] == nil {
					tasks[n] = atVersion(taskIn(lifecycle.TaskDispatching, 1), version)
					v.deliverTask(tasks[n])
				}
			case "late bind": // a Task whose version is lower than what was published already
				if tasks[n] == nil {
					tasks[n] = atVersion(taskIn(lifecycle.TaskDispatching, 1), version)
					version += 5
					l.mu.Lock()
					l.stateLocked("r1").list = max(l.stateLocked("r1").list, version)
					l.mu.Unlock()
					v.deliverTask(tasks[n])
				}
			case "dispatch":
				if task := tasks[n]; task != nil && isListed(task) {
					uid := string(task.UID)
					epoch := l.dispatchEpoch(task)
					if _, known := accepted[uid]; !known {
						accepted[uid] = epoch
					}
				}
			case "end":
				if task := tasks[n]; task != nil && isListed(task) {
					version++
					task = atVersion(task, version)
					task.Status.State = string(lifecycle.TaskCanceled)
					tasks[n] = task
					v.deliverTask(task)
				}
			case "own write":
				if task := tasks[n]; task != nil && isListed(task) {
					version++
					tasks[n] = atVersion(task, version)
					v.storeWrittenTask(tasks[n])
				}
			case "list":
				l.sendList("r1")
			case "come back":
				if len(*out) > 0 {
					before := runs()
					read((*out)[len(*out)-1])
					for _, uid := range before {
						_, still := accepted[uid]
						for _, task := range tasks {
							if string(task.UID) == uid && isListed(task) && !still {
								t.Fatalf("stopped %s, which should run", uid)
							}
						}
					}
				}
			}
		}
		l.resendList("r1")
		l.sendList("r1")
		read((*out)[len(*out)-1])
		for _, task := range tasks {
			if _, still := accepted[string(task.UID)]; still && !isListed(task) {
				t.Fatalf("%s still runs", task.UID)
			}
		}
	})
}

func TestTaskList_EpochNeverDecreases(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	task := taskIn(lifecycle.TaskDispatching, 1)
	v.deliverTask(atVersion(task, 7))
	l.sendList("r1")
	if e := l.dispatchEpoch(atVersion(task, 7)); e != 8 {
		t.Errorf("dispatched at %d, the list was of 7", e)
	}
	task.Status.State = string(lifecycle.TaskCompleted)
	v.storeWrittenTask(atVersion(task, 20))
	l.sendList("r1")
	if got := (*out)[1]; got.Epoch != 8 || len(got.Refs) != 0 {
		t.Errorf("list %+v: the epoch must not include our own write", got)
	}
}

// While the robot is silent and nothing can be written, dispatches are repeated. The next server, which knows
// resource versions only, must still be able to stop the attempt.
func TestTaskList_RepeatedDispatchKeepsEpoch(t *testing.T) {
	paused := newRangeTask(lifecycle.TaskDispatching, 1)
	paused.Spec.Array.PauseAttempt = 1
	for name, task := range map[string]*robotv1.Task{"a task": taskIn(lifecycle.TaskDispatching, 1), "a paused range": paused} {
		t.Run(name, func(t *testing.T) {
			l, v, out := newTestLists(robotv1.ProtocolV2)
			task := atVersion(task, 7)
			v.deliverTask(task)
			l.sendList("r1")
			first := l.dispatchEpoch(task)
			for range 20 {
				if e := l.dispatchEpoch(task); e != first {
					t.Fatalf("repeated at %d, the first dispatch was at %d", e, first)
				}
				l.passHour()
			}
			next, v, ofNext := newTestLists(robotv1.ProtocolV2)
			canceled := atVersion(task, 8)
			canceled.Status.State = string(lifecycle.TaskCanceled)
			v.deliverTask(canceled)
			next.sendList("r1")
			if last, stop := (*out)[len(*out)-1], (*ofNext)[0]; stop.Epoch < max(first, last.Epoch) {
				t.Errorf("dispatched at %d, last list of %d: the robot ignores the list of %d", first, last.Epoch, stop.Epoch)
			}
		})
	}
}

// A robot may read the list that does not name the attempt after the second dispatch.
func TestTaskList_UnlistedAttemptIsDispatchedAtHigherEpoch(t *testing.T) {
	attempts := func(n int32) *robotv1.Task { return atVersion(taskIn(lifecycle.TaskDispatching, n), 7) }
	for name, listed := range map[string]*robotv1.Task{"no attempt is listed": nil, "another attempt is listed": attempts(2)} {
		t.Run(name, func(t *testing.T) {
			l, v, out := newTestLists(robotv1.ProtocolV2)
			task := attempts(1)
			v.deliverTask(task)
			l.dispatchEpoch(task)
			v.removeTask(task)
			if listed != nil {
				v.deliverTask(listed)
			}
			l.sendList("r1")
			if e, unlisted := l.dispatchEpoch(task), (*out)[0]; e <= unlisted.Epoch {
				t.Errorf("dispatched at %d, a list of %d does not name it", e, unlisted.Epoch)
			}
		})
	}
}

func TestTaskList_NextAttemptIsDispatchedAtHigherEpoch(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	task := atVersion(taskIn(lifecycle.TaskDispatching, 1), 7)
	v.deliverTask(task)
	l.dispatchEpoch(task)
	l.sendList("r1")
	if e, last := l.dispatchEpoch(atVersion(taskIn(lifecycle.TaskDispatching, 2), 7)), (*out)[0]; e <= last.Epoch {
		t.Errorf("attempt 2 dispatched at %d, a list of %d does not name it", e, last.Epoch)
	}
}

// passHour publishes what becomes due within an hour.
func (l *taskLists) passHour() {
	later := l.now().Add(time.Hour)
	l.now = func() time.Time { return later }
	l.sendDue()
}

func TestTaskList_FollowsDispatchOfEndedTask(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	task := atVersion(taskIn(lifecycle.TaskDispatching, 1), 7)
	v.deliverTask(task)
	l.sendList("r1")
	v.removeTask(task)
	l.onTaskChanged(task, nil)
	l.passHour()
	dispatched := l.dispatchEpoch(task) // read before the removal, sent after it
	l.passHour()
	if last := (*out)[len(*out)-1]; last.Epoch < dispatched || len(last.Refs) != 0 {
		t.Errorf("dispatched at %d, the last list is %+v: the robot would not stop it", dispatched, last)
	}
	sent := len(*out)
	v.deliverTask(atVersion(task, 9))
	l.sendList("r1")
	l.dispatchEpoch(task)
	l.passHour()
	if len(*out) != sent+1 {
		t.Errorf("%d lists for a dispatch of a listed task, want 1", len(*out)-sent)
	}
}

func TestTaskList_RetriesWhenQueueIsFull(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	v.deliverTask(atVersion(taskIn(lifecycle.TaskDispatching, 1), 7))
	publish, full := l.publish, true
	l.publish = func(connection int64, robotID string, k wire.Kind, payload []byte, retain bool) bool {
		return !full && publish(connection, robotID, k, payload, retain)
	}
	l.sendList("r1")
	select {
	case <-l.wake:
	default:
		t.Error("run was not woken")
	}
	full = false
	l.passHour()
	if len(*out) != 1 {
		t.Errorf("%d lists were sent", len(*out))
	}
}

func TestTaskList_DoesNotSendTooLargeList(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	many := 0
	l.onTooLarge = func(_ string, tasks int) { many = tasks }
	for range 5000 {
		v.deliverTask(atVersion(taskIn(lifecycle.TaskRunning, 1), 7))
	}
	l.sendList("r1")
	if many != 5000 || len(*out) != 0 {
		t.Errorf("%d lists were sent of %d tasks: part of a list would stop the rest", len(*out), many)
	}
}

// The names of the tasks to run stop the others. Those to ask for their ends may wait.
func TestTaskList_NamesAsManyCanceledAttemptsAsFit(t *testing.T) {
	for _, active := range []int{1, 3000} {
		l, v, out := newTestLists(robotv1.ProtocolV2)
		l.onTooLarge = func(_ string, tasks int) { t.Errorf("a list of %d tasks is not sent", tasks) }
		size, publish := 0, l.publish
		l.publish = func(connection int64, robotID string, k wire.Kind, payload []byte, retain bool) bool {
			size = len(payload)
			return publish(connection, robotID, k, payload, retain)
		}
		for range active {
			v.deliverTask(atVersion(taskIn(lifecycle.TaskRunning, 1), 7))
		}
		for range 5000 {
			v.deliverTask(atVersion(taskIn(lifecycle.TaskCanceled, 1, unconfirmed), 7))
		}
		l.sendList("r1")
		if len(*out) != 1 || len((*out)[0].Refs) != active {
			t.Fatalf("%d lists of %d tasks", len(*out), active)
		}
		first := (*out)[0].Canceled
		if size > wire.MaxPayload || size < wire.MaxPayload-100 || len(first) == 0 {
			t.Errorf("the list has %d bytes and %d canceled attempts", size, len(first))
		}
		l.sendList("r1")
		if len(*out) != 1 {
			t.Error("an unchanged list is sent again")
		}
		for _, a := range first {
			was := v.task(types.UID(a.UID))
			is := atVersion(was, 8)
			is.Status.Attempts[0].FinishedAt = &metav1.MicroTime{Time: clock}
			v.deliverTask(is)
		}
		l.sendList("r1")
		if next := (*out)[len(*out)-1].Canceled; len(*out) != 2 || next[0].UID <= first[len(first)-1].UID {
			t.Errorf("after the answers there are %d lists", len(*out))
		}
	}
}

func TestTaskList_TruncatesLegacyList(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV1)
	for range 400 {
		task := taskIn(lifecycle.TaskRunning, 1)
		task.Spec.Env = map[string]string{"X": string(make([]byte, 500))}
		v.deliverTask(atVersion(task, 7))
	}
	l.sendRegistrationList("r1")
	if n := len((*out)[0].Tasks); n == 0 || n == 400 {
		t.Errorf("%d tasks", n)
	}
}

func TestMessages_CarryRobotUID(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	r := newRobot(namespace, "r1", nil, robotState{})
	r.UID = "robot-uid"
	v.putRobot(r)
	l.sendList("r1")
	if got := (*out)[0].RobotUID; got != "robot-uid" {
		t.Errorf("list of robot UID %q", got)
	}
	d, dv, _ := newTestDownlink()
	dv.putRobot(r)
	var dispatch wire.Dispatch
	d.publish = func(_ int64, _ string, _ *robotv1.Task, payload []byte) (sent bool) {
		dispatch, _ = wire.Decode[wire.Dispatch](payload)
		return true
	}
	d.sendTask(taskIn(lifecycle.TaskDispatching, 1), wire.ActionCreate)
	if dispatch.RobotUID != "robot-uid" || dispatch.Attempt != 1 {
		t.Errorf("dispatch of robot UID %q", dispatch.RobotUID)
	}
}

func TestTaskList_MarksStartedAttempts(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	before := func(s *robotv1.TaskStatus) {
		s.Attempts = []robotv1.TaskAttempt{{Attempt: 1, Robot: "r1", StartedAt: &metav1.MicroTime{Time: clock}}, {Attempt: 2, Robot: "r1"}}
	}
	for _, row := range []struct {
		name string
		task *robotv1.Task
		want bool
	}{
		{name: "without a report it has not started", task: taskIn(lifecycle.TaskDispatching, 1)},
		{name: "the next attempt has not started", task: taskIn(lifecycle.TaskDispatching, 2, before)},
		{name: "a running attempt has started", task: taskIn(lifecycle.TaskRunning, 1), want: true},
		{name: "an attempt that ran when its robot was lost has started", task: taskIn(lifecycle.TaskUnknown, 1, before), want: true},
		{name: "an attempt that was lost before its start has not started", task: taskIn(lifecycle.TaskUnknown, 1)},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := refOf(row.task).Started; got != row.want {
				t.Errorf("started in the list: %v", got)
			}
			payload, err := encodeDispatch(wire.ActionCreate, row.task, robotv1.ProtocolV2, 1, "robot-uid", nil, nil, nil)
			dispatch, _ := wire.Decode[wire.Dispatch](payload)
			if err != nil || dispatch.Started != row.want {
				t.Errorf("started in the dispatch: %v, %v", dispatch.Started, err)
			}
		})
	}
	running := atVersion(taskIn(lifecycle.TaskDispatching, 1), 7)
	v.deliverTask(running)
	l.sendList("r1")
	running = atVersion(running, 8)
	running.Status.State = string(lifecycle.TaskRunning)
	v.deliverTask(running)
	l.sendList("r1")
	if len(*out) != 1 {
		t.Errorf("a start caused %d lists", len(*out))
	}
	l.resendList("r1")
	l.sendList("r1")
	if last := (*out)[len(*out)-1]; !last.Refs[0].Started {
		t.Errorf("a robot that registers gets %+v", last.Refs)
	}
}

// The lost attempt is listed until the manager has decided. Otherwise its robot would stop it as
// soon as it reconnects.
func TestTaskList_NamesLostAttempt(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	v.putRobot(newRobot(namespace, "r1", nil, robotState{}))
	v.putRobot(newRobot(namespace, "r2", nil, robotState{}))
	named := func(robot string) []wire.TaskReference {
		*out = nil
		l.resendList(robot)
		l.sendList(robot)
		return (*out)[0].Refs
	}
	see := func(task *robotv1.Task) {
		old, _ := v.deliverTask(task)
		l.onTaskChanged(old, task)
	}
	task := atVersion(newLostTask(lifecycle.TaskRunning), 7)
	see(task)
	if got := named("r1"); len(got) != 1 || got[0].Attempt != 1 || !got[0].Started {
		t.Errorf("the list of r1 is %+v, want attempt 1, which it must not start", got)
	}
	if got := named("r2"); len(got) != 1 || got[0].Attempt != 2 {
		t.Errorf("the list of r2 is %+v, want attempt 2", got)
	}
	task = atVersion(task, 8)
	task.Status.LostAttempt = 0
	see(task)
	if _, asked := l.dirty["r1"]; !asked {
		t.Error("r1 got no list without its discarded attempt")
	}
	if got := named("r1"); len(got) != 0 {
		t.Errorf("the list of r1 is %+v, want none", got)
	}
}

func TestTaskList_HidesLostAttemptFromLegacyAgent(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV1)
	v.putRobot(newRobot(namespace, "r1", nil, robotState{}))
	v.deliverTask(atVersion(newLostTask(lifecycle.TaskRunning), 7))
	l.sendRegistrationList("r1")
	if len((*out)[0].Tasks) != 0 {
		t.Error("the list names the lost attempt: a legacy agent would run it again")
	}
}

// unconfirmed marks the last attempt as ended without its robot.
func unconfirmed(s *robotv1.TaskStatus) {
	s.UnconfirmedStop = &robotv1.UnconfirmedStop{Robot: "r1", Attempt: s.Attempt, Since: metav1.NewMicroTime(clock)}
}

// A manager that must not let two attempts run waits for the end of the attempt that timed out, and one
// that has canceled a task without its robot shows that until the end. So the list queries the robot for
// that end.
func TestTaskList_AsksForEndOfAttempt(t *testing.T) {
	end := func(s *robotv1.TaskStatus) { s.Attempts[0].FinishedAt = &metav1.MicroTime{Time: clock} }
	for _, row := range []struct {
		name string
		task *robotv1.Task
		over int
	}{
		{"what runs is not over", taskIn(lifecycle.TaskRunning, 1), 0},
		{"it timed out", taskIn(lifecycle.TaskExited, 1, timedOut), 1},
		{"another robot is to try", taskIn(lifecycle.TaskSoftFailed, 1, timedOut), 1},
		{"its robot has answered", taskIn(lifecycle.TaskSoftFailed, 1, timedOut, end), 0},
		{"it was canceled without its robot", taskIn(lifecycle.TaskCanceled, 1, unconfirmed), 1},
		{"its robot has confirmed the stop", taskIn(lifecycle.TaskCanceled, 1, unconfirmed, end), 0},
		{"it was canceled, and nothing is awaited", taskIn(lifecycle.TaskCanceled, 1), 0},
	} {
		l, v, out := newTestLists(robotv1.ProtocolV2)
		v.deliverTask(atVersion(row.task, 7))
		l.sendList("r1")
		if got := (*out)[0].Canceled; len(got) != row.over {
			t.Errorf("%s: r1 is queried for the end of %+v", row.name, got)
		}
	}
}

// A legacy agent does not know the query. It runs again what it has just ended and a list contains.
func TestTaskList_AsksLegacyAgentForNoEnds(t *testing.T) {
	l, v, _ := newTestLists(robotv1.ProtocolV1)
	before, after := atVersion(taskIn(lifecycle.TaskRunning, 1), 7), atVersion(taskIn(lifecycle.TaskExited, 1, timedOut), 8)
	after.UID = before.UID
	v.deliverTask(before)
	l.sendRegistrationList("r1")
	v.deliverTask(after)
	l.onTaskChanged(before, after)
	if got := l.canceledOn("r1"); got != nil {
		t.Errorf("the agent is queried for %+v", got)
	}
}
