package gateway

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/go-logr/logr"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
	"k8s4r.io/k8s4r/internal/testkit/legacyagent"
)

func TestGateway_ReceivesQueuedReportsOfLegacyAgent(t *testing.T) {
	s := start(t)
	s.approveRobots()
	a := s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Run: -1})
	ran := s.createTask(newBoundTask("ran", "d1"))
	eventually(t, "it runs", func() bool { return s.state("ran") == lifecycle.TaskRunning })
	s.stop()
	// The previous server dispatched it and stopped before a report arrived.
	sent := s.createTask(newBoundTask("sent", "d1"))
	for _, task := range []*robotv1.Task{ran, sent} {
		a.SendReport(string(task.UID), wire.Status{State: wire.ReportRunning})
		a.SendReport(string(task.UID), wire.Status{State: wire.ReportCompleted})
	}
	s.startServer(Config{BacklogWindow: 5 * time.Second})
	for _, task := range []string{"ran", "sent"} {
		eventually(t, task+" completes", func() bool { return s.state(task) == lifecycle.TaskCompleted })
	}
	last := s.createTask(newBoundTask("last", "d1"))
	eventually(t, "a new task runs", func() bool { return s.state("last") == lifecycle.TaskRunning })
	if runs := a.RunCounts(); runs[string(sent.UID)] != 0 || runs[string(ran.UID)] != 1 || runs[string(last.UID)] != 1 {
		t.Errorf("runs %v", runs)
	}
}

func TestGateway_WritesQueuedReportsAtShutdown(t *testing.T) {
	s := startWith(t, Config{BatchWindow: time.Hour})
	s.approveRobots()
	a := s.startLegacyAgent(legacyagent.Config{RobotID: "d1", Run: -1})
	task := s.createTask(newBoundTask("t1", "d1"))
	eventually(t, "it runs", func() bool { return a.RunCounts()[string(task.UID)] == 1 })
	eventually(t, "its report waits to be written", func() bool { return hasReportsOf(s.gateway.reports, "d1") })
	s.stop()
	if got := s.state("t1"); got != lifecycle.TaskRunning {
		t.Errorf("t1 is %s: the report is lost, the broker has delivered it", got)
	}
}

// hasReportsOf reports whether reports of a robot wait to be written.
func hasReportsOf(q *reportWriter, robotID string) bool {
	return slices.ContainsFunc(q.workers[:], func(w *reportWorker) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.robots[robotID] != nil
	})
}

func TestGateway_HoldsLegacyAgentUntilBacklogIsReceived(t *testing.T) {
	settled := clock.Add(2 * time.Second)
	for protocol, want := range map[string]int{robotv1.ProtocolV1: 0, robotv1.ProtocolV2: 1} {
		d, v, sent := newTestDownlink()
		now := clock
		d.now, d.protocolOf = func() time.Time { return now }, func(string) string { return protocol }
		task := atVersion(taskIn(lifecycle.TaskDispatching, 1), 7)
		v.deliverTask(task)
		d.onTaskChanged(task.UID)
		d.holdLegacyAgents(settled)
		d.sendNext()
		if *sent != want {
			t.Errorf("%s: dispatched %d times at once, want %d", protocol, *sent, want)
		}
		now = settled
		d.sendNext()
		if *sent == want && protocol == robotv1.ProtocolV1 {
			t.Errorf("%s: not dispatched after the backlog", protocol)
		}
	}
}

// The dispatch was due before the connection and is sent after the backlog.
func TestDownlink_DueDispatchWaitsForBacklog(t *testing.T) {
	d, v, sent := newTestDownlink()
	d.now, d.protocolOf = func() time.Time { return clock }, func(string) string { return robotv1.ProtocolV1 }
	d.upConnection = func() int64 {
		d.holdLegacyAgents(clock.Add(time.Second))
		return 1
	}
	task := atVersion(taskIn(lifecycle.TaskDispatching, 1), 7)
	v.deliverTask(task)
	d.onTaskChanged(task.UID)
	d.sendNext()
	if *sent != 0 {
		t.Error("dispatched before the backlog was received")
	}
}

func TestTaskList_SkipsListOfOldConnection(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV1)
	v.deliverTask(atVersion(taskIn(lifecycle.TaskDispatching, 1), 7))
	v.putRobot(newRobot(namespace, "r1", nil, robotState{}))
	l.currentConnection = func() int64 { return 2 }
	l.sendAll(1) // of the previous connection
	if len(*out) != 0 {
		t.Error("sent on the next connection before its backlog was received")
	}
	l.sendAll(2)
	if len(*out) != 1 {
		t.Errorf("%d lists, want 1: the skipped list was recorded as sent", len(*out))
	}
}

func TestTaskList_DeletedRobotGetsEmptyListAfterReconnect(t *testing.T) {
	l, v, out := newTestLists(robotv1.ProtocolV2)
	v.deliverTask(atVersion(taskIn(lifecycle.TaskDispatching, 1), 7))
	v.putRobot(newRobot(namespace, "r1", nil, robotState{}))
	l.sendList("r1")
	up := l.upConnection
	l.upConnection = func() int64 { return 0 }
	v.removeTask(v.tasksOn("r1")[0])
	v.removeRobot(v.robot("r1"))
	l.forgetRobot("r1")
	l.upConnection = up
	l.sendAll(1)
	if last := (*out)[len(*out)-1]; len(*out) != 2 || len(last.Refs) != 0 {
		t.Errorf("%d lists, the last %+v", len(*out), last)
	}
	if len(l.deleted)+len(l.states) != 0 {
		t.Error("the deleted robot was not forgotten")
	}
}

func TestMQTTClient_DropsMessagesOfOldConnection(t *testing.T) {
	l, err := newMQTTClient("mqtt://127.0.0.1:1", "s", nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	l.enqueueMessage("r1", message{topic: "old", connection: l.nextConnection()})
	l.nextConnection()
	// A nil connection would panic if anything were sent.
	for _, q := range l.queues {
		for len(q) > 0 {
			l.sendOne(t.Context(), nil, <-q)
		}
	}
}

func TestMQTTClient_NotReadyAfterConnectionIsReplaced(t *testing.T) {
	l, err := newMQTTClient("mqtt://127.0.0.1:1", "s", nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	first := l.nextConnection()
	l.nextConnection() // disconnected
	if l.markUp(first) || l.checkUp() == nil {
		t.Error("ready without a connection")
	}
	if !l.markUp(l.nextConnection()) || l.checkUp() != nil {
		t.Error("the next connection is not ready")
	}
}

// Messages in flight when a connection breaks are lost and do not delay later ones.
func TestMQTTClient_LostMessagesDoNotDelayOthers(t *testing.T) {
	u, err := url.Parse(startEmbedded(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := faultnet.New(t, u.Host)
	h := &recorder{}
	l, stop := h.connect(t, "mqtt://"+proxy.Addr())
	defer stop()
	send := func(uid string) {
		// The server receives its own message, because it subscribes to what robots publish.
		l.enqueueMessage("r1", message{topic: wire.TaskTopic("r1", uid, wire.KindStatus), connection: l.upConnection()})
	}
	for n := range 3 {
		proxy.DropPackets()
		send(fmt.Sprintf("lost-%d", n))
		eventually(t, "the queues are empty", func() bool {
			return !slices.ContainsFunc(l.queues[:], func(q chan *message) bool { return len(q) > 0 })
		})
		before := l.currentConnection()
		proxy.RestoreNetwork()
		eventually(t, "the connection is up again", func() bool { return l.currentConnection() > before && l.checkUp() == nil })
		send(fmt.Sprintf("next-%d", n))
		eventually(t, "the next message is received", func() bool { return h.count() == n+1 })
	}
}

// The next server receives all messages that were published without a server, even if they exceed
// the broker's limit of inflight messages, and continues to receive.
func TestMQTTClient_ReceivesBacklogOfPreviousServer(t *testing.T) {
	for name, open := range map[string]func(*testing.T) string{"embedded broker": startEmbedded, "Mosquitto": startMosquitto} {
		t.Run(name, func(t *testing.T) {
			at := open(t)
			h := &recorder{}
			stop := h.listen(t, at)
			for round := range 2 {
				stop()
				send := newRobotClient(t, at)
				const burst = 2000
				for i := range burst {
					send(fmt.Sprintf("backlog-%d-%d", round, i))
				}
				stop = h.listen(t, at)
				h.awaitCount(t, burst)
				for i := range burst {
					send(fmt.Sprintf("later-%d-%d", round, i))
				}
				h.awaitCount(t, 2*burst)
				h.forget()
			}
			stop()
		})
	}
}

// receivedIDs records the messages that a server has received, each once.
type recorder struct {
	mu     sync.Mutex
	topics map[string]bool
}

func (h *recorder) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.topics = nil
}

func (h *recorder) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

// awaitCount blocks until n messages have been received, as long as more of them arrive.
func (h *recorder) awaitCount(t *testing.T, n int) {
	t.Helper()
	for got := h.count(); got < n; got = h.count() {
		eventually(t, fmt.Sprintf("more than %d of %d messages are received", got, n), func() bool { return h.count() > got })
	}
}

// listen connects a client as the server does. The returned function disconnects it.
func (h *recorder) listen(t *testing.T, url string) (stop func()) {
	t.Helper()
	_, stop = h.connect(t, url)
	return stop
}

func (h *recorder) connect(t *testing.T, url string) (l *mqttClient, stop func()) {
	t.Helper()
	l, err := newMQTTClient(url, "k8s4r-server", nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	l.onSubscribed, l.onUp = func(int64, bool) {}, func() {}
	l.publishTimeout = time.Hour // messages that wait for it would time out the test
	l.receive = func(topic string, _ []byte, _ string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.topics == nil {
			h.topics = map[string]bool{}
		}
		h.topics[topic] = true
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.run(ctx) }()
	eventually(t, "the connection is up", func() bool { return l.checkUp() == nil })
	return l, sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// newRobotClient returns a function that publishes a report about a task and waits for the broker's
// acknowledgement.
func newRobotClient(t *testing.T, at string) (send func(uid string)) {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	c := mqtt.NewClient(mqtt.NewClientOptions().AddBroker("tcp://" + u.Host).SetClientID("r1").SetAutoReconnect(false))
	must := func(token mqtt.Token) {
		t.Helper()
		if !token.WaitTimeout(waitTimeout) || token.Error() != nil {
			t.Fatalf("no response of the broker: %v", token.Error())
		}
	}
	must(c.Connect())
	t.Cleanup(func() { c.Disconnect(0) })
	return func(uid string) {
		t.Helper()
		must(c.Publish(wire.TaskTopic("r1", uid, wire.KindStatus), wire.QoS, false, "{}"))
	}
}

func startEmbedded(t *testing.T) string {
	t.Helper()
	b := broker.New(broker.Config{Listen: "127.0.0.1:0"})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(context.Background()) })
	return b.URL()
}

// startMosquitto starts Debian's broker, which by default keeps 1000 messages for a disconnected
// client.
func startMosquitto(t *testing.T) string {
	t.Helper()
	bin, err := exec.LookPath("mosquitto")
	if err != nil {
		bin = "/usr/sbin/mosquitto" // may not be in PATH
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, port := l.Addr().String(), l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	conf := filepath.Join(t.TempDir(), "mosquitto.conf")
	text := fmt.Sprintf("listener %d 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\n", port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-c", conf)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start mosquitto (make deps installs it): %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "mosquitto listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return "mqtt://" + address
}

// The permissions of an external broker may be those that an earlier version wrote.
func TestIsOnlyRefusedRuns(t *testing.T) {
	s := &paho.Subscribe{}
	var granted []byte
	for _, filter := range wire.ServerSubscriptions() {
		s.Subscriptions, granted = append(s.Subscriptions, paho.SubscribeOptions{Topic: filter}), append(granted, wire.QoS)
	}
	const notAuthorized = 0x87
	for i, refused := range s.Subscriptions {
		reasons := slices.Clone(granted)
		reasons[i] = notAuthorized
		want := refused.Topic == "k8s4r/robots/+/tasks/+/runs"
		if got := isOnlyRefusedRuns(s, &paho.Suback{Reasons: reasons}); got != want {
			t.Errorf("%s is refused: %t, want %t", refused.Topic, got, want)
		}
	}
	if isOnlyRefusedRuns(s, nil) || isOnlyRefusedRuns(s, &paho.Suback{Reasons: granted[:1]}) {
		t.Error("a subscription without an answer counts as granted")
	}
}
