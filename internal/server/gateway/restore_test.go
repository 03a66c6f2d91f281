package gateway

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/restore"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// restoringGateway is a gateway after a restore. The test controls the time, and what the robots send.
type restoringGateway struct {
	*Gateway
	t       *testing.T
	at      time.Time
	found   restore.Summary
	lists   map[string]wire.TaskList
	sent    []wire.Dispatch
	warning []string
}

func newRestoringGateway(t *testing.T, robots []string, tasks ...*robotv1.Task) *restoringGateway {
	t.Helper()
	r := &restoringGateway{t: t, at: clock, lists: map[string]wire.TaskList{}}
	gate := restore.ClosedGate(1, func(_ int32, s restore.Summary) error { r.found = s; return nil })
	api := fakeapi.NewBuilder(scheme(t)).WithStatusSubresource(&robotv1.Task{})
	for _, task := range tasks {
		api = api.WithObjects(task)
	}
	c := api.Build()
	g, err := New(Config{MQTTURL: "mqtt://127.0.0.1:1", OfflineAfter: offlineAfter, Restore: gate}, Cluster{
		Client: c, APIReader: c, Warn: func(o client.Object, reason, _ string) { r.warning = append(r.warning, o.GetName()+" "+reason) },
	}, nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	r.Gateway = g
	g.now = func() time.Time { return r.at }
	g.taskLists.now, g.downlink.now = g.now, g.now
	connected := func() int64 { return 1 }
	g.taskLists.upConnection, g.taskLists.currentConnection, g.downlink.upConnection = connected, connected, connected
	g.taskLists.publish = func(_ int64, id string, _ wire.Kind, payload []byte, _ bool) bool {
		var l wire.TaskList
		if err := json.Unmarshal(payload, &l); err != nil {
			t.Fatal(err)
		}
		r.lists[id] = l
		return true
	}
	g.downlink.publish = func(_ int64, _ string, _ *robotv1.Task, payload []byte) bool {
		var d wire.Dispatch
		if err := json.Unmarshal(payload, &d); err != nil {
			t.Fatal(err)
		}
		r.sent = append(r.sent, d)
		return true
	}
	for _, id := range robots {
		robot := newRobot(namespace, id, nil, robotState{})
		robot.ResourceVersion, robot.UID = "1", "uid-robot"
		robot.Status.Agent = &robotv1.AgentInfo{Protocol: robotv1.ProtocolV2}
		g.objects.putRobot(robot)
	}
	for _, task := range tasks {
		var stored robotv1.Task
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(task), &stored); err != nil {
			t.Fatal(err)
		}
		g.handleTaskUpdate(&stored)
	}
	g.restoration.markUp(r.at)
	return r
}

// connect registers a robot.
func (r *restoringGateway) connect(id string) {
	r.robots.updateState(id, true, func(w *robotState) { w.recordRegistration(r.at, robotv1.ProtocolV2, wire.Register{}) })
}

// passTime lets the server work for a while.
func (r *restoringGateway) passTime(d time.Duration) {
	for end := r.at.Add(d); !r.at.After(end); r.at = r.at.Add(time.Second) {
		r.advanceRestoration(r.at)
		r.taskLists.sendDue()
		for r.downlink.sendNext() {
		}
	}
}

// receiveJournal delivers a robot's answer to its last list.
func (r *restoringGateway) receiveJournal(id string, entries ...wire.JournalEntry) {
	r.t.Helper()
	request := r.lists[id].JournalRequest
	if request == 0 {
		r.t.Fatalf("%s was not asked for its journal: %+v", id, r.lists[id])
	}
	for _, page := range wire.SplitJournal(request, r.at, entries) {
		payload, err := wire.Encode(wire.Heartbeat{Journal: &page})
		if err != nil {
			r.t.Fatal(err)
		}
		r.receiveHeartbeat(id, payload)
	}
	r.readPages()
}

func (r *restoringGateway) receiveHeartbeat(id string, payload []byte) {
	r.t.Helper()
	topic := wire.RobotTopic(id, wire.KindHeartbeat)
	address, err := wire.ParseTopic(topic)
	if err != nil {
		r.t.Fatal(err)
	}
	r.cfg.AllowAnonymous = true // the broker has authenticated the robot
	if err := r.handleHeartbeat(inbound{address, topic, payload, ""}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *restoringGateway) isOpen() bool { return r.restoration.gate.IsOpen() }

func TestRestore_DispatchesNothingBeforeEveryConnectedRobotHasReported(t *testing.T) {
	waiting := restoredTask(lifecycle.TaskPending, 0)
	half := restoredTask(lifecycle.TaskDispatching, 1)
	waiting.Name, waiting.UID, half.Name, half.UID = "waiting", "uid-waiting", "half", "uid-half"
	r := newRestoringGateway(t, []string{"r1", "r2"}, waiting, half)
	r.connect("r1")
	r.connect("r2")
	r.passTime(10 * time.Second)
	if len(r.sent) > 0 {
		t.Fatalf("dispatched to a robot whose journal was not read: %+v", r.sent)
	}
	// Attempt 1 was taken back from r1 after the backup, before r1 had it, and attempt 2 completed on r2.
	r.receiveJournal("r1", wire.JournalEntry{UID: "uid-waiting", Attempt: 1, State: wire.ReportRunning})
	if r.passTime(10 * time.Second); r.isOpen() || len(r.sent) > 0 {
		t.Fatalf("open %v, sent %+v, before r2 has reported", r.isOpen(), r.sent)
	}
	if l := r.lists["r1"]; l.JournalRequest != 0 || !slices.ContainsFunc(l.Refs, func(ref wire.TaskReference) bool { return ref.UID == "uid-waiting" && ref.Attempt == 1 && ref.Started }) {
		t.Errorf("the complete list of r1 stops what it runs: %+v", l)
	}
	r.receiveJournal("r2", wire.JournalEntry{UID: "uid-half", Attempt: 2, State: wire.ReportCompleted})
	if r.passTime(2 * time.Second); !r.isOpen() {
		t.Fatal("not open although both robots have reported")
	}
	for _, d := range r.sent {
		if !d.Started {
			t.Errorf("a robot may start attempt %d of %s", d.Attempt, d.Task.Metadata.UID)
		}
	}
	if got := r.objects.task("uid-half"); got.Status.Attempt != 2 || got.CurrentRobot() != "r2" {
		t.Errorf("half: attempt %d on %s", got.Status.Attempt, got.CurrentRobot())
	}
	if r.found.Reported != 2 || r.found.Adopted != 2 || len(r.found.Missing) != 0 {
		t.Errorf("found %+v", r.found)
	}
}

func TestRestore_QueriesWhatTheBackupTakesForRunning(t *testing.T) {
	running := restoredTask(lifecycle.TaskRunning, 1)
	r := newRestoringGateway(t, []string{"r1"}, running)
	r.connect("r1")
	r.passTime(time.Second)
	refs := r.lists["r1"].Refs
	if len(refs) != 1 || !refs[0].Query || !refs[0].Started {
		t.Errorf("a task that has ended since would stay running: %+v", refs)
	}
}

func TestRestore_WaitsForRobotsToConnect(t *testing.T) {
	r := newRestoringGateway(t, []string{"r1", "r2"})
	r.connect("r1")
	r.passTime(time.Second)
	r.receiveJournal("r1")
	if r.passTime(reconnectTime - 5*time.Second); r.isOpen() {
		t.Fatal("open although r2 may still connect")
	}
	if r.passTime(10 * time.Second); !r.isOpen() {
		t.Fatal("a robot that is away blocks all others")
	}
	if !slices.Equal(r.found.Missing, []string{"r2"}) || len(r.warning) > 0 {
		t.Errorf("missing %v, warnings %v", r.found.Missing, r.warning)
	}
}

func TestRestore_RobotThatDoesNotAnswerBlocksForABoundedTime(t *testing.T) {
	r := newRestoringGateway(t, []string{"r1"})
	r.connect("r1")
	if r.passTime(journalTimeout - 2*time.Second); r.isOpen() {
		t.Fatal("open before the robot's time is over")
	}
	if r.passTime(5 * time.Second); !r.isOpen() {
		t.Fatal("a robot that answers nothing blocks all others")
	}
	if !slices.Equal(r.warning, []string{"r1 " + ReasonJournalMissing}) {
		t.Errorf("warnings %v", r.warning)
	}
}

func TestRestore_LateRobotIsStillAsked(t *testing.T) {
	waiting := restoredTask(lifecycle.TaskPending, 0)
	r := newRestoringGateway(t, []string{"r1"}, waiting)
	if r.passTime(reconnectTime + time.Second); !r.isOpen() {
		t.Fatal("not open although no robot is connected")
	}
	r.connect("r1")
	r.taskLists.resendList("r1")
	r.passTime(time.Second)
	r.receiveJournal("r1", wire.JournalEntry{UID: string(waiting.UID), Attempt: 1, State: wire.ReportCompleted})
	if got := r.objects.task(waiting.UID); got.Status.Attempt != 1 {
		t.Errorf("a task that no robot has yet is not adopted: attempt %d", got.Status.Attempt)
	}
}

func TestRestore_NamesTasksThatTheBackupDoesNotHave(t *testing.T) {
	r := newRestoringGateway(t, []string{"r1"})
	r.connect("r1")
	r.passTime(time.Second)
	r.receiveJournal("r1", wire.JournalEntry{UID: "gone", Attempt: 1, State: wire.ReportRunning, Task: "default/new"}, wire.JournalEntry{UID: "ended", Attempt: 1, State: wire.ReportCompleted})
	r.passTime(time.Second)
	if r.found.Unknown != 1 || !slices.Equal(r.warning, []string{"r1 " + ReasonUnknownTasks}) {
		t.Errorf("found %+v, warnings %v", r.found, r.warning)
	}
	if l := r.lists["r1"]; l.JournalRequest != 0 || len(l.Refs) > 0 {
		t.Errorf("the robot keeps the task: %+v", l)
	}
}

func TestRestore_IgnoresAnswersToOthers(t *testing.T) {
	r := newRestoringGateway(t, []string{"r1"})
	r.connect("r1")
	r.passTime(time.Second)
	for _, page := range []wire.Journal{{Request: 7, Pages: 1}, {Request: r.restoration.request, Page: 1, Pages: 2}} {
		payload, err := wire.Encode(wire.Heartbeat{Journal: &page})
		if err != nil {
			t.Fatal(err)
		}
		r.receiveHeartbeat("r1", payload)
	}
	r.readPages()
	if r.passTime(10 * time.Second); r.isOpen() {
		t.Error("open without the robot's whole journal")
	}
}

// TestRestore_PagesOfTwoAgentsDoNotMix restarts the agent while it publishes: an entry may be on another page
// of the second answer.
func TestRestore_PagesOfTwoAgentsDoNotMix(t *testing.T) {
	r := newRestoringGateway(t, []string{"r1"})
	r.connect("r1")
	r.passTime(time.Second)
	for _, c := range []struct {
		readAt time.Time
		page   int
		isDone bool
	}{{clock, 0, false}, {clock.Add(time.Second), 1, false}, {clock.Add(time.Second), 1, false}, {clock.Add(time.Second), 0, true}} {
		payload, err := wire.Encode(wire.Heartbeat{Journal: &wire.Journal{Request: r.restoration.request, ReadAt: c.readAt, Page: c.page, Pages: 2}})
		if err != nil {
			t.Fatal(err)
		}
		r.receiveHeartbeat("r1", payload)
		r.readPages()
		if got := r.restoration.requestFor("r1") == 0; got != c.isDone {
			t.Errorf("page %d read at %s: done %v", c.page, c.readAt, got)
		}
	}
}

// readPages reads the pages that have arrived.
func (r *restoringGateway) readPages() {
	r.t.Helper()
	for r.restoration.queue.Len() > 0 {
		next, _ := r.restoration.queue.Get()
		if err := r.readJournal(r.t.Context(), next); err != nil {
			r.t.Fatal(err)
		}
		r.restoration.queue.Done(next)
	}
}

// TestRestore_ARestartRepeatsWhatTheGateHeld shows that a server that stops while it reads journals leaves
// nothing half done: the next one asks again.
func TestRestore_ARestartRepeatsWhatTheGateHeld(t *testing.T) {
	waiting := restoredTask(lifecycle.TaskPending, 0)
	first := newRestoringGateway(t, []string{"r1"}, waiting)
	first.connect("r1")
	first.passTime(time.Second)
	first.receiveJournal("r1", wire.JournalEntry{UID: string(waiting.UID), Attempt: 2, State: wire.ReportRunning})

	second := newRestoringGateway(t, []string{"r1"}, first.objects.task(waiting.UID).DeepCopy())
	second.connect("r1")
	second.passTime(time.Second)
	second.receiveJournal("r1", wire.JournalEntry{UID: string(waiting.UID), Attempt: 2, State: wire.ReportRunning})
	if second.passTime(time.Second); !second.isOpen() {
		t.Fatal("not open")
	}
	if got := second.objects.task(waiting.UID).Status; got.Attempt != 2 || len(got.Attempts) != 1 {
		t.Errorf("attempt %d with %d in the history", got.Attempt, len(got.Attempts))
	}
}
