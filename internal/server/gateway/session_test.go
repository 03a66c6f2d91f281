package bridge

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

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/go-logr/logr"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/docagent"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
	"k8s4r.io/k8s4r/internal/wire"
)

func TestWhatADocumentAgentSaysWhileTheServerIsAwayCounts(t *testing.T) {
	s := start(t)
	s.approve()
	a := s.doc(docagent.Config{RobotID: "d1", Run: -1})
	ran := s.create(bound("ran", "d1"))
	eventually(t, "it runs", func() bool { return s.state("ran") == lifecycle.TaskRunning })
	s.stop()
	// Dispatched by the server before, which did not live to hear of it.
	sent := s.create(bound("sent", "d1"))
	for _, task := range []*robotv1.Task{ran, sent} {
		a.Report(string(task.UID), wire.Status{State: wire.ReportRunning})
		a.Report(string(task.UID), wire.Status{State: wire.ReportCompleted})
	}
	s.serve(Config{SettleAfter: 5 * time.Second})
	for _, task := range []string{"ran", "sent"} {
		eventually(t, task+" completes", func() bool { return s.state(task) == lifecycle.TaskCompleted })
	}
	last := s.create(bound("last", "d1"))
	eventually(t, "work goes on", func() bool { return s.state("last") == lifecycle.TaskRunning })
	if runs := a.Runs(); runs[string(sent.UID)] != 0 || runs[string(ran.UID)] != 1 || runs[string(last.UID)] != 1 {
		t.Errorf("runs %v", runs)
	}
}

func TestAServerThatStopsWritesWhatItHasTaken(t *testing.T) {
	s := startWith(t, Config{BatchWindow: time.Hour})
	s.approve()
	a := s.doc(docagent.Config{RobotID: "d1", Run: -1})
	task := s.create(bound("t1", "d1"))
	eventually(t, "it runs", func() bool { return a.Runs()[string(task.UID)] == 1 })
	eventually(t, "the server hears of it", func() bool { return s.b.robots.get("d1").answered })
	s.stop()
	if got := s.state("t1"); got != lifecycle.TaskRunning {
		t.Errorf("t1 is %s: the broker has the word no more", got)
	}
}

func TestADocumentAgentIsToldNothingBeforeItsBacklogIsIn(t *testing.T) {
	settled := clock.Add(2 * time.Second)
	for speaks, want := range map[string]int{robotv1.ProtocolDocument: 0, robotv1.ProtocolK8s4r: 1} {
		d, v, sent := quietLink()
		now := clock
		d.now, d.dialect = func() time.Time { return now }, func(string) string { return speaks }
		task := at(taskIn(lifecycle.TaskDispatching, 1), 7)
		v.deliverTask(task)
		d.changed(task.UID)
		d.holdDocuments(settled)
		d.fireOne()
		if *sent != want {
			t.Errorf("%s: dispatched %d times at once, want %d", speaks, *sent, want)
		}
		now = settled
		d.fireOne()
		if *sent == want && speaks == robotv1.ProtocolDocument {
			t.Errorf("%s: not dispatched when the backlog was in", speaks)
		}

		l, v, out := told(speaks)
		at := clock
		l.now = func() time.Time { return at }
		v.deliverTask(task)
		v.putRobot(newRobot(namespace, "r1", nil, word{}))
		l.sendAll(1, settled)
		if len(*out) != want {
			t.Errorf("%s: %d lists at once, want %d", speaks, len(*out), want)
		}
		at = settled
		l.sendDue()
		if len(*out) != 1 {
			t.Errorf("%s: %d lists when the backlog was in", speaks, len(*out))
		}
	}
}

// The item was due before the connection, and is sent after it.
func TestADispatchUnderWayWhenTheLinkComesUpWaitsForTheBacklog(t *testing.T) {
	d, v, sent := quietLink()
	d.now, d.dialect = func() time.Time { return clock }, func(string) string { return robotv1.ProtocolDocument }
	d.up = func() int64 {
		d.holdDocuments(clock.Add(time.Second))
		return 1
	}
	task := at(taskIn(lifecycle.TaskDispatching, 1), 7)
	v.deliverTask(task)
	d.changed(task.UID)
	d.fireOne()
	if *sent != 0 {
		t.Error("dispatched what its robot may have ended while nobody listened")
	}
}

// A list that was due before the connection is not sent beside the backlog.
func TestAListThatIsDueWhenTheLinkComesUpWaitsForTheBacklog(t *testing.T) {
	l, v, out := told(robotv1.ProtocolDocument)
	v.deliverTask(at(taskIn(lifecycle.TaskDispatching, 1), 7))
	v.putRobot(newRobot(namespace, "r1", nil, word{}))
	up := int64(0)
	l.up = func() int64 { return up }
	l.refresh("r1")
	l.sendDue()
	if len(*out) != 0 {
		t.Fatal("sent before the link was up")
	}
	due := l.due()
	l.sendAll(1, clock.Add(time.Second))
	up = 1
	for _, id := range due {
		l.sendIfDue(id)
	}
	if len(*out) != 0 {
		t.Error("sent although it was put off")
	}
	l.letAnHourPass()
	if len(*out) != 1 {
		t.Errorf("%d lists when the backlog is in", len(*out))
	}
}

func TestAListForAConnectionThatIsNoMoreIsNotSaid(t *testing.T) {
	l, v, out := told(robotv1.ProtocolDocument)
	v.deliverTask(at(taskIn(lifecycle.TaskDispatching, 1), 7))
	v.putRobot(newRobot(namespace, "r1", nil, word{}))
	l.current = func() int64 { return 2 }
	l.sendAll(1, clock) // of the connection before
	if len(*out) != 0 {
		t.Error("it went out beside the backlog of the next one")
	}
	l.sendAll(2, clock)
	if len(*out) != 1 {
		t.Errorf("%d lists: it was remembered as said", len(*out))
	}
}

func TestARobotThatIsDeletedWhileTheLinkIsDownHearsOfItLater(t *testing.T) {
	l, v, out := told(robotv1.ProtocolK8s4r)
	v.deliverTask(at(taskIn(lifecycle.TaskDispatching, 1), 7))
	v.putRobot(newRobot(namespace, "r1", nil, word{}))
	l.send("r1")
	up := l.up
	l.up = func() int64 { return 0 }
	v.removeTask(v.tasksOn("r1")[0])
	v.removeRobot(v.robot("r1"))
	l.forget("r1")
	l.up = up
	l.sendAll(1, clock)
	if last := (*out)[len(*out)-1]; len(*out) != 2 || len(last.Refs) != 0 {
		t.Errorf("%d lists, the last %+v", len(*out), last)
	}
	if len(l.gone)+len(l.clocks) != 0 {
		t.Error("it is remembered for ever")
	}
}

func TestWhatWasSaidForAnOlderConnectionStaysUnsaid(t *testing.T) {
	l, err := newLink("mqtt://127.0.0.1:1", "s", nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	l.publish("r1", message{topic: "old", connection: l.connectionChanged()})
	l.connectionChanged()
	// A nil connection would panic if anything were sent on it.
	for _, q := range l.queues {
		for len(q) > 0 {
			l.sendOne(t.Context(), nil, <-q)
		}
	}
}

func TestALinkThatWentDownWhileItSubscribedIsNotReady(t *testing.T) {
	l, err := newLink("mqtt://127.0.0.1:1", "s", nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	first := l.connectionChanged()
	l.connectionChanged() // down
	if l.setUp(first) || l.ready() == nil {
		t.Error("ready without a connection")
	}
	if !l.setUp(l.connectionChanged()) || l.ready() != nil {
		t.Error("the next connection is not ready")
	}
}

// What was on its way when a connection broke is lost, and holds up nothing after it.
func TestWhatABrokenConnectionTookWithItHoldsUpNothing(t *testing.T) {
	u, err := url.Parse(embedded(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := faultnet.New(t, u.Host, nil)
	h := &heardAll{}
	l, stop := h.connect(t, "mqtt://"+proxy.Addr())
	defer stop()
	says := func(uid string) {
		// The server hears what robots say, and so itself.
		l.publish("r1", message{topic: wire.TaskTopic("r1", uid, wire.KindStatus), connection: l.upAs()})
	}
	for n := range 3 {
		began := time.Now()
		proxy.Silence()
		says(fmt.Sprintf("lost-%d", n))
		eventually(t, "it is on its way", func() bool { return !slices.ContainsFunc(l.queues[:], func(q chan message) bool { return len(q) > 0 }) })
		before := l.current()
		proxy.Up()
		eventually(t, "the link is up again", func() bool { return l.current() > before && l.ready() == nil })
		says(fmt.Sprintf("next-%d", n))
		eventually(t, "the next message comes through", func() bool { return h.count() == n+1 })
		if took := time.Since(began); took >= publishTimeout {
			t.Errorf("a break held it up for %v", took)
		}
	}
}

// The next server takes over all that was said while none was there, however
// much it is, and goes on hearing: brokers bound what is on its way.
func TestTheNextServerInheritsABurst(t *testing.T) {
	for name, open := range map[string]func(*testing.T) string{"embedded broker": embedded, "Mosquitto": mosquitto} {
		t.Run(name, func(t *testing.T) {
			at := open(t)
			h := &heardAll{}
			stop := h.listen(t, at)
			for round := range 2 {
				stop()
				says := robotClient(t, at)
				const burst = 2000
				for i := range burst {
					says(fmt.Sprintf("away-%d-%d", round, i))
				}
				stop = h.listen(t, at)
				eventually(t, "the backlog is in", func() bool { return h.count() == burst })
				for i := range burst {
					says(fmt.Sprintf("here-%d-%d", round, i))
				}
				eventually(t, "it goes on hearing", func() bool { return h.count() == 2*burst })
				h.forget()
			}
			stop()
		})
	}
}

// heardAll is what a server has heard, each message once.
type heardAll struct {
	mu     sync.Mutex
	topics map[string]bool
}

func (h *heardAll) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.topics = nil
}

func (h *heardAll) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

// listen connects a link as the server does. The function that it returns ends
// that.
func (h *heardAll) listen(t *testing.T, url string) (stop func()) {
	t.Helper()
	_, stop = h.connect(t, url)
	return stop
}

func (h *heardAll) connect(t *testing.T, url string) (l *link, stop func()) {
	t.Helper()
	l, err := newLink(url, "k8s4r-server", nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	l.subscribed, l.up = func(int64, bool) {}, func() {}
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
	eventually(t, "the link is up", func() bool { return l.ready() == nil })
	return l, sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// robotClient says something about a task, and waits until the broker has it.
func robotClient(t *testing.T, at string) (says func(uid string)) {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	c := mqtt.NewClient(mqtt.NewClientOptions().AddBroker("tcp://" + u.Host).SetClientID("r1").SetAutoReconnect(false))
	must := func(token mqtt.Token) {
		t.Helper()
		if !token.WaitTimeout(patience) || token.Error() != nil {
			t.Fatalf("no answer from the broker: %v", token.Error())
		}
	}
	must(c.Connect())
	t.Cleanup(func() { c.Disconnect(0) })
	return func(uid string) {
		t.Helper()
		must(c.Publish(wire.TaskTopic("r1", uid, wire.KindStatus), wire.QoS, false, "{}"))
	}
}

func embedded(t *testing.T) string {
	t.Helper()
	b := broker.New(broker.Config{Listen: "127.0.0.1:0"})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(context.Background()) })
	return b.URL()
}

// mosquitto starts Debian's broker, which by default keeps 1000 messages for a
// client that is away.
func mosquitto(t *testing.T) string {
	t.Helper()
	bin, err := exec.LookPath("mosquitto")
	if err != nil {
		bin = "/usr/sbin/mosquitto" // not on everyone's PATH
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
