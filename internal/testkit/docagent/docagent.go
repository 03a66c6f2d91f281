// Package docagent is a scripted agent that speaks the protocol of the design
// document and nothing more: MQTT 3.1.1, a clean session, the two shared
// topics, no attempts and no acknowledgements. Its switches are the habits of
// such agents in the field that a server must take in its stride. It runs
// tasks in its imagination only.
package docagent

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"k8s4r.io/k8s4r/internal/wire"
)

// Config of one agent. Its robot id is all that must be set.
type Config struct {
	RobotID string
	// Broker is the MQTT URL, such as mqtt://127.0.0.1:1883.
	Broker string
	// Heartbeat is the time between two. Zero: 30 s.
	Heartbeat time.Duration
	// Run is how long each task takes. Zero: it ends at once. Negative: it
	// runs until it is deleted.
	Run time.Duration
	// Exit tells the exit code of each run. Nil: 0.
	Exit func(uid string, run int) int32

	// LateSubscription is how long after the response the agent subscribes to
	// its task topics. In the field it is up to 5 s.
	LateSubscription time.Duration
	// SubscribeIf holds the subscription back for as long as it is false. Nil: it does not.
	SubscribeIf func() bool
	// RunningAfterTerminal reports running once more after each end.
	RunningAfterTerminal bool
	// LaunchFails reports StartFailed with exit code -1, and running after it,
	// and never runs anything.
	LaunchFails bool
	// WrongExitFirst reports a failure with exit code -1 first and the true
	// end after it. It stands for a launch error or a timeout by its event.
	WrongExitFirst string
	// TimesOut reports a failure with the event Timeout and exit code -1 at the
	// end of each run, and nothing after it.
	TimesOut bool
	// EndWordFirst reports running once more when the process has ended, with
	// the event of the end and exit code 0. Only the terminal report after it
	// has the true one.
	EndWordFirst bool
	// TrueExitAfter is how long the terminal report comes after the end of the
	// process. In the field it is up to 5 s.
	TrueExitAfter time.Duration
	// SilentOnDelete answers a delete with nothing at all, not even running
	// with the event Failed.
	SilentOnDelete bool
	// DeafAfterReconnect never subscribes to its task topics again after the
	// connection broke.
	DeafAfterReconnect bool
}

// Agent is one running agent.
type Agent struct {
	cfg  Config
	host string
	done chan struct{}
	wg   sync.WaitGroup

	mu         sync.Mutex
	life       int // counts the starts of its program
	client     mqtt.Client
	online     bool
	subscribed bool                     // to the task topics, once at least
	running    map[string]chan struct{} // wire UID to its stop
	runs       map[string]int           // by wire UID
	deletes    []string
}

// Start connects and registers. Stop ends it.
func Start(cfg Config) (*Agent, error) {
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 30 * time.Second
	}
	u, err := url.Parse(cfg.Broker)
	if err != nil {
		return nil, fmt.Errorf("broker %q: %w", cfg.Broker, err)
	}
	a := &Agent{cfg: cfg, host: u.Host, done: make(chan struct{}), running: map[string]chan struct{}{}, runs: map[string]int{}}
	a.connect()
	a.spawn(a.beat)
	return a, nil
}

// connect opens a connection, which then looks after itself.
func (a *Agent) connect() {
	o := mqtt.NewClientOptions().AddBroker("tcp://" + a.host).SetClientID("k8s4r-agent-" + a.cfg.RobotID).
		SetCleanSession(true).SetProtocolVersion(4).SetAutoReconnect(true).SetMaxReconnectInterval(time.Second).
		SetOrderMatters(false).SetConnectRetry(true).SetConnectRetryInterval(100 * time.Millisecond)
	o.SetOnConnectHandler(func(mqtt.Client) { a.spawn(a.connected) })
	client := mqtt.NewClient(o)
	a.mu.Lock()
	a.client = client
	a.mu.Unlock()
	client.Connect()
}

func (a *Agent) conn() mqtt.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.client
}

// Stop disconnects and ends every task without a word.
func (a *Agent) Stop() {
	close(a.done)
	a.conn().Disconnect(100)
	a.wg.Wait()
}

// Runs is how often each task was run, by the UID that the agent was given.
func (a *Agent) Runs() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	runs := make(map[string]int, len(a.runs))
	for uid, n := range a.runs {
		runs[uid] = n
	}
	return runs
}

// Running is what runs now.
func (a *Agent) Running() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var uids []string
	for uid := range a.running {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// Deletes are the UIDs of the deletes that arrived, in order.
func (a *Agent) Deletes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.deletes)
}

// Online tells whether the server has accepted the agent.
func (a *Agent) Online() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.online
}

// Restart forgets all that the agent knew, as its program does when it starts
// again: the tasks are gone, and it listens from the beginning.
func (a *Agent) Restart() {
	a.mu.Lock()
	for uid, stop := range a.running {
		close(stop)
		delete(a.running, uid)
	}
	a.subscribed, a.online = false, false
	a.life++
	a.mu.Unlock()
	a.Reconnect()
}

// Reconnect breaks the connection and opens another.
func (a *Agent) Reconnect() {
	a.conn().Disconnect(0)
	a.connect()
}

// Report sends any status, for a word that only a test would say.
func (a *Agent) Report(uid string, s wire.Status) {
	s.TaskUID, s.RobotName, s.UpdatedAt = uid, a.cfg.RobotID, time.Now()
	a.publish(wire.TaskTopic(a.cfg.RobotID, uid, wire.KindStatus), s)
}

// spawn runs f unless the agent has stopped.
func (a *Agent) spawn(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.done:
	default:
		a.wg.Go(f)
	}
}

// connected is what follows each connect: listen for the response, register,
// and again every 10 s until the server has accepted it.
func (a *Agent) connected() {
	a.subscribe(wire.KindResponse, a.responded)
	for {
		a.publish(wire.TopicRegister, a.hello())
		if !a.pause(10 * time.Second) {
			return
		}
		if a.Online() {
			return
		}
	}
}

func (a *Agent) hello() wire.Register {
	return wire.Register{RobotID: a.cfg.RobotID, Token: "token", DeviceInfo: &wire.DeviceInfo{
		Hostname: a.cfg.RobotID, Platform: &wire.Platform{OS: "linux", Arch: "arm64"},
		CPU: &wire.CPU{LogicalCores: 4}, Memory: &wire.Memory{Total: 8 << 30},
	}}
}

func (a *Agent) responded(life int, payload []byte) {
	r, err := wire.Decode[wire.Response](payload)
	if err != nil || !r.Success {
		return
	}
	a.mu.Lock()
	over := life != a.life
	a.online = a.online || !over
	deaf := a.subscribed && a.cfg.DeafAfterReconnect
	a.mu.Unlock()
	if over || deaf || !a.pause(a.cfg.LateSubscription) {
		return
	}
	for a.cfg.SubscribeIf != nil && !a.cfg.SubscribeIf() {
		if !a.pause(20 * time.Millisecond) {
			return
		}
	}
	a.subscribe(wire.KindDispatch, a.dispatched)
	a.subscribe(wire.KindState, a.listed)
	a.mu.Lock()
	a.subscribed = true
	a.mu.Unlock()
}

func (a *Agent) beat() {
	for a.pause(a.cfg.Heartbeat) {
		if a.Online() {
			h := a.hello()
			a.publish(wire.TopicHeartbeat, wire.Heartbeat{RobotID: h.RobotID, Token: h.Token, DeviceInfo: h.DeviceInfo})
		}
	}
}

func (a *Agent) dispatched(life int, payload []byte) {
	d, err := wire.Decode[wire.Dispatch](payload)
	if err != nil {
		return
	}
	if d.Action == wire.ActionDelete {
		a.remove(d.Task.Metadata.UID)
		return
	}
	a.start(life, d.Task.Metadata.UID)
}

// listed runs what it finds in the list and does not know.
func (a *Agent) listed(life int, payload []byte) {
	l, err := wire.Decode[wire.TaskList](payload)
	if err != nil {
		return
	}
	for _, t := range l.Tasks {
		a.start(life, t.Metadata.UID)
	}
}

// start runs a task that is not running. One that has ended is forgotten, and
// runs again. What a message asks for that came in an earlier life is lost with that:
// its handler may come round long after.
func (a *Agent) start(life int, uid string) {
	a.mu.Lock()
	if life != a.life || a.running[uid] != nil {
		a.mu.Unlock()
		return
	}
	stop := make(chan struct{})
	a.running[uid] = stop
	a.runs[uid]++
	run := a.runs[uid]
	a.mu.Unlock()
	a.spawn(func() { a.live(uid, run, stop) })
}

func (a *Agent) live(uid string, run int, stop chan struct{}) {
	a.Report(uid, wire.Status{State: wire.ReportPending, Event: "Received"})
	if a.cfg.LaunchFails {
		a.forget(uid)
		a.Report(uid, wire.Status{State: wire.ReportFailed, Event: wire.ReasonStartFailed, ExitCode: -1, Message: "fork/exec: no such file"})
		a.Report(uid, wire.Status{State: wire.ReportRunning, Event: wire.ReasonStartFailed})
		return
	}
	a.Report(uid, wire.Status{State: wire.ReportRunning, Event: "Started"})
	var end <-chan time.Time
	if a.cfg.Run >= 0 {
		end = time.After(a.cfg.Run)
	}
	select {
	case <-stop:
		return
	case <-a.done:
		return
	case <-end:
	}
	a.end(uid, run)
}

// forget drops what the agent knew of a task.
func (a *Agent) forget(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, uid)
}

// end reports the end in the agent's own order, and forgets the task with the
// terminal report.
func (a *Agent) end(uid string, run int) {
	if a.cfg.TimesOut {
		a.forget(uid)
		a.Report(uid, wire.Status{State: wire.ReportFailed, Event: wire.ReasonTimeout, ExitCode: -1, Message: "Task terminated: Task timeout"})
		return
	}
	last := a.lastWord(uid, run)
	if event := a.cfg.WrongExitFirst; event != "" && last.ExitCode != 0 {
		a.Report(uid, wire.Status{State: wire.ReportFailed, Event: event, ExitCode: -1, Message: "Task terminated: Task timeout"})
		a.Report(uid, wire.Status{State: wire.ReportRunning, Event: event})
	}
	if a.cfg.EndWordFirst {
		a.Report(uid, wire.Status{State: wire.ReportRunning, Event: last.Event})
	}
	if !a.pause(a.cfg.TrueExitAfter) {
		return
	}
	a.forget(uid)
	a.Report(uid, last)
	if a.cfg.RunningAfterTerminal {
		a.Report(uid, wire.Status{State: wire.ReportRunning, Event: last.Event})
	}
}

// lastWord is the terminal report of a run.
func (a *Agent) lastWord(uid string, run int) wire.Status {
	var code int32
	if a.cfg.Exit != nil {
		code = a.cfg.Exit(uid, run)
	}
	if code == 0 {
		return wire.Status{State: wire.ReportCompleted, Event: "Completed", Message: "Task completed"}
	}
	return wire.Status{State: wire.ReportFailed, Event: "Failed", ExitCode: code, Message: fmt.Sprintf("Task exited with code %d", code)}
}

func (a *Agent) remove(uid string) {
	a.mu.Lock()
	stop := a.running[uid]
	delete(a.running, uid)
	a.deletes = append(a.deletes, uid)
	a.mu.Unlock()
	if stop == nil {
		return
	}
	close(stop)
	if !a.cfg.SilentOnDelete {
		a.Report(uid, wire.Status{State: wire.ReportRunning, Event: "Failed"})
	}
}

func (a *Agent) subscribe(k wire.Kind, then func(life int, payload []byte)) {
	a.mu.Lock()
	life, client := a.life, a.client
	a.mu.Unlock()
	token := client.Subscribe(wire.RobotTopic(a.cfg.RobotID, k), wire.QoS, func(_ mqtt.Client, m mqtt.Message) {
		then(life, m.Payload())
	})
	token.WaitTimeout(10 * time.Second)
}

// publish waits for the broker, so that reports keep their order.
func (a *Agent) publish(topic string, v any) {
	payload, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	a.conn().Publish(topic, wire.QoS, false, payload).WaitTimeout(10 * time.Second)
}

// pause returns false when the agent has stopped meanwhile.
func (a *Agent) pause(d time.Duration) bool {
	select {
	case <-a.done:
		return false
	case <-time.After(d):
		return true
	}
}
