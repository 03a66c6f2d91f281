// Package legacyagent simulates legacy agents with protocol v1: MQTT 3.1.1, a clean session, the
// two shared topics, no attempts and no acknowledgements. Its switches are the defects of such
// agents that a server must tolerate. It does not start processes.
package legacyagent

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Config configures one agent. RobotID and Broker are required.
type Config struct {
	RobotID string
	// Broker is the MQTT URL of the broker, such as mqtt://127.0.0.1:1883.
	Broker string
	// Heartbeat is the interval of heartbeats. 0 means 30s.
	Heartbeat time.Duration
	// Run is how long each task runs: 0 ends at once, a negative value runs until EndTask or a
	// delete.
	Run time.Duration
	// Exit returns the exit code of each run. If nil, it is 0.
	Exit func(uid string, run int) int32

	// LateSubscription is the delay between the response and the subscription to the task
	// topics. Real agents take up to 5s.
	LateSubscription time.Duration
	// SubscribeIf delays the subscription until it returns true. If nil, there is no delay.
	SubscribeIf func() bool
	// RunningAfterTerminal reports running again after each terminal report.
	RunningAfterTerminal bool
	// FailsToStart reports StartFailed with exit code -1, then running, and runs nothing.
	FailsToStart bool
	// WrongExitFirst reports a failure with this event and exit code -1 before the correct
	// terminal report.
	WrongExitFirst string
	// ReportsTimeout reports a failure with the event Timeout and exit code -1 at the end of
	// each run, and nothing after it.
	ReportsTimeout bool
	// RunningAtExit reports running with the event of the end and exit code 0 before the
	// terminal report, which has the correct code.
	RunningAtExit bool
	// TrueExitAfter is the delay between the exit of the process and the terminal report. Real
	// agents take up to 5s.
	TrueExitAfter time.Duration
	// SilentOnDelete sends no report after a delete, not even running with the event Failed.
	SilentOnDelete bool
	// NoTasksAfterReconnect does not subscribe to the task topics again after a reconnect.
	NoTasksAfterReconnect bool
	// WaitsInHandler handles one message after the other, and waits in the handler until the broker
	// has acknowledged its report. If more messages arrive meanwhile than the client library holds,
	// the agent no longer reads anything, the acknowledgement included.
	WaitsInHandler bool
	// ClearsTaskList publishes an empty retained task list when the agent connects.
	ClearsTaskList bool
}

// Agent is one running agent.
type Agent struct {
	cfg  Config
	host string
	done chan struct{}
	wg   sync.WaitGroup

	mu         sync.Mutex
	instance   int // number of program starts
	client     mqtt.Client
	online     bool
	subscribed bool            // to the task topics, at least once, or is about to
	running    map[string]*run // by wire UID
	runs       map[string]int  // by wire UID
	deletes    []string
}

// run is one run of a task.
type run struct {
	number int
	exit   chan struct{} // closed by EndTask
	stop   chan struct{} // closed when the task is deleted or lost
}

// Start connects and registers an agent, which runs until Stop.
func Start(cfg Config) (*Agent, error) {
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 30 * time.Second
	}
	u, err := url.Parse(cfg.Broker)
	if err != nil {
		return nil, fmt.Errorf("broker %q: %w", cfg.Broker, err)
	}
	a := &Agent{cfg: cfg, host: u.Host, done: make(chan struct{}), running: map[string]*run{}, runs: map[string]int{}}
	a.openConnection()
	a.startGoroutine(a.sendHeartbeats)
	return a, nil
}

// openConnection opens a connection that reconnects on its own.
func (a *Agent) openConnection() {
	o := mqtt.NewClientOptions().AddBroker("tcp://" + a.host).SetClientID("k8s4r-agent-" + a.cfg.RobotID).
		SetCleanSession(true).SetProtocolVersion(4).SetAutoReconnect(true).SetMaxReconnectInterval(time.Second).
		SetOrderMatters(a.cfg.WaitsInHandler).SetConnectRetry(true).SetConnectRetryInterval(100 * time.Millisecond)
	o.SetOnConnectHandler(func(c mqtt.Client) { a.startGoroutine(func() { a.handleConnect(c) }) })
	client := mqtt.NewClient(o)
	a.mu.Lock()
	a.client = client
	a.mu.Unlock()
	client.Connect()
}

func (a *Agent) currentClient() mqtt.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.client
}

// Stop disconnects and ends every task without a report.
func (a *Agent) Stop() {
	close(a.done)
	a.currentClient().Disconnect(100)
	a.wg.Wait()
}

// RunCounts returns how often each task ran, by wire UID.
func (a *Agent) RunCounts() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	runs := make(map[string]int, len(a.runs))
	for uid, n := range a.runs {
		runs[uid] = n
	}
	return runs
}

// RunningTasks returns the wire UIDs of the running tasks, sorted.
func (a *Agent) RunningTasks() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var uids []string
	for uid := range a.running {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// ReceivedDeletes returns the wire UIDs of all received deletes, in order.
func (a *Agent) ReceivedDeletes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.deletes)
}

// IsOnline reports whether the server has accepted the agent.
func (a *Agent) IsOnline() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.online
}

// Restart simulates a restart of the program: all tasks are lost, and the agent registers
// again.
func (a *Agent) Restart() {
	a.mu.Lock()
	for uid, r := range a.running {
		close(r.stop)
		delete(a.running, uid)
	}
	a.subscribed, a.online = false, false
	a.instance++
	a.mu.Unlock()
	a.Reconnect()
}

// Reconnect ends the connection, on which nothing more is received when it returns, and opens a new
// one.
func (a *Agent) Reconnect() {
	const disconnectTimeout = 10_000 // milliseconds
	a.currentClient().Disconnect(disconnectTimeout)
	a.openConnection()
}

// EndTask lets the process of a running task exit.
func (a *Agent) EndTask(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.running[uid]; r != nil {
		close(r.exit)
	}
}

// SendReport sends an arbitrary status.
func (a *Agent) SendReport(uid string, s wire.Status) {
	a.publishStatus(uid, s).WaitTimeout(10 * time.Second)
}

// publishStatus publishes a status without waiting for the broker.
func (a *Agent) publishStatus(uid string, s wire.Status) mqtt.Token {
	s.TaskUID, s.RobotName, s.UpdatedAt = uid, a.cfg.RobotID, time.Now()
	return a.startPublish(wire.TaskTopic(a.cfg.RobotID, uid, wire.KindStatus), s)
}

// startGoroutine starts f unless the agent has stopped.
func (a *Agent) startGoroutine(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.done:
	default:
		a.wg.Go(f)
	}
}

// handleConnect subscribes to the response and registers, every 10s until the server has
// accepted the agent.
func (a *Agent) handleConnect(client mqtt.Client) {
	if a.cfg.ClearsTaskList {
		client.Publish(wire.RobotTopic(a.cfg.RobotID, wire.KindState), wire.QoS, true, nil).WaitTimeout(10 * time.Second)
	}
	a.mu.Lock()
	instance := a.instance
	a.mu.Unlock()
	a.subscribeTo(client, wire.KindResponse, func(payload []byte) {
		a.startGoroutine(func() { a.handleResponse(client, instance, payload) })
	})
	for {
		a.publishJSON(wire.TopicRegister, a.newRegister())
		if !a.waitUnlessStopped(10 * time.Second) {
			return
		}
		if a.IsOnline() {
			return
		}
	}
}

func (a *Agent) newRegister() wire.Register {
	return wire.Register{RobotID: a.cfg.RobotID, Token: "token", DeviceInfo: &wire.DeviceInfo{
		Hostname: a.cfg.RobotID, Platform: &wire.Platform{OS: "linux", Arch: "arm64"},
		CPU: &wire.CPU{LogicalCores: 4}, Memory: &wire.Memory{Total: 8 << 30},
	}}
}

// handleResponse subscribes to the task topics on the connection of the response. A later connection
// has a response of its own, which an agent with NoTasksAfterReconnect ignores.
func (a *Agent) handleResponse(client mqtt.Client, instance int, payload []byte) {
	r, err := wire.Decode[wire.Response](payload)
	if err != nil || !r.Success {
		return
	}
	a.mu.Lock()
	outdated := instance != a.instance
	a.online = a.online || !outdated
	ignored := a.subscribed && a.cfg.NoTasksAfterReconnect
	a.subscribed = a.subscribed || !outdated
	a.mu.Unlock()
	if outdated || ignored || !a.waitUnlessStopped(a.cfg.LateSubscription) {
		return
	}
	for a.cfg.SubscribeIf != nil && !a.cfg.SubscribeIf() {
		if !a.waitUnlessStopped(20 * time.Millisecond) {
			return
		}
	}
	a.subscribeTo(client, wire.KindDispatch, func(payload []byte) { a.handleDispatch(instance, payload) })
	a.subscribeTo(client, wire.KindState, func(payload []byte) { a.handleTaskList(instance, payload) })
}

// sendHeartbeats waits for no heartbeat. The client library drops one that is published during a
// reconnect, and waiting for it would hold back all others, or Stop, for 10 to 30 seconds.
func (a *Agent) sendHeartbeats() {
	for a.waitUnlessStopped(a.cfg.Heartbeat) {
		if a.IsOnline() {
			h := a.newRegister()
			go a.startPublish(wire.TopicHeartbeat, wire.Heartbeat{RobotID: h.RobotID, Token: h.Token, DeviceInfo: h.DeviceInfo})
		}
	}
}

func (a *Agent) handleDispatch(instance int, payload []byte) {
	d, err := wire.Decode[wire.Dispatch](payload)
	if err != nil {
		return
	}
	if d.Action == wire.ActionDelete {
		a.deleteTask(d.Task.Metadata.UID)
		return
	}
	a.startTask(instance, d.Task.Metadata.UID)
}

// handleTaskList starts unknown tasks of the list.
func (a *Agent) handleTaskList(instance int, payload []byte) {
	l, err := wire.Decode[wire.TaskList](payload)
	if err != nil {
		return
	}
	for _, t := range l.Tasks {
		a.startTask(instance, t.Metadata.UID)
	}
}

// startTask starts a task that is not running. Ended tasks run again. Messages to an earlier
// instance, whose handlers may run late, are ignored.
func (a *Agent) startTask(instance int, uid string) {
	a.mu.Lock()
	if instance != a.instance || a.running[uid] != nil {
		a.mu.Unlock()
		return
	}
	a.runs[uid]++
	r := &run{number: a.runs[uid], exit: make(chan struct{}), stop: make(chan struct{})}
	a.running[uid] = r
	a.mu.Unlock()
	if a.cfg.WaitsInHandler {
		a.reportReceived(uid)
		a.startGoroutine(func() { a.runTask(uid, r) })
		return
	}
	a.startGoroutine(func() {
		a.reportReceived(uid)
		a.runTask(uid, r)
	})
}

// reportReceived reports that a task was received. An agent that waits in the handler waits for as
// long as it takes.
func (a *Agent) reportReceived(uid string) {
	token := a.publishStatus(uid, wire.Status{State: wire.ReportPending, Event: "Received"})
	if !a.cfg.WaitsInHandler {
		token.WaitTimeout(10 * time.Second)
		return
	}
	select {
	case <-token.Done():
	case <-a.done:
	}
}

func (a *Agent) runTask(uid string, r *run) {
	if a.cfg.FailsToStart {
		a.forgetTask(uid)
		a.SendReport(uid, wire.Status{State: wire.ReportFailed, Event: wire.ReasonStartFailed, ExitCode: -1, Message: "fork/exec: no such file"})
		a.SendReport(uid, wire.Status{State: wire.ReportRunning, Event: wire.ReasonStartFailed})
		return
	}
	a.SendReport(uid, wire.Status{State: wire.ReportRunning, Event: "Started"})
	var end <-chan time.Time
	if a.cfg.Run >= 0 {
		end = time.After(a.cfg.Run)
	}
	select {
	case <-r.stop:
		return
	case <-a.done:
		return
	case <-r.exit:
	case <-end:
	}
	a.reportEnd(uid, r.number)
}

// forgetTask removes a task from the running ones.
func (a *Agent) forgetTask(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, uid)
}

// reportEnd reports the end of a task with the configured defects.
func (a *Agent) reportEnd(uid string, run int) {
	if a.cfg.ReportsTimeout {
		a.forgetTask(uid)
		a.SendReport(uid, wire.Status{State: wire.ReportFailed, Event: wire.ReasonTimeout, ExitCode: -1, Message: "Task terminated: Task timeout"})
		return
	}
	terminal := a.terminalReport(uid, run)
	if event := a.cfg.WrongExitFirst; event != "" && terminal.ExitCode != 0 {
		a.SendReport(uid, wire.Status{State: wire.ReportFailed, Event: event, ExitCode: -1, Message: "Task terminated: Task timeout"})
		a.SendReport(uid, wire.Status{State: wire.ReportRunning, Event: event})
	}
	if a.cfg.RunningAtExit {
		a.SendReport(uid, wire.Status{State: wire.ReportRunning, Event: terminal.Event})
	}
	if !a.waitUnlessStopped(a.cfg.TrueExitAfter) {
		return
	}
	a.forgetTask(uid)
	a.SendReport(uid, terminal)
	if a.cfg.RunningAfterTerminal {
		a.SendReport(uid, wire.Status{State: wire.ReportRunning, Event: terminal.Event})
	}
}

// terminalReport returns the terminal report of a run.
func (a *Agent) terminalReport(uid string, run int) wire.Status {
	var code int32
	if a.cfg.Exit != nil {
		code = a.cfg.Exit(uid, run)
	}
	if code == 0 {
		return wire.Status{State: wire.ReportCompleted, Event: "Completed", Message: "Task completed"}
	}
	return wire.Status{State: wire.ReportFailed, Event: "Failed", ExitCode: code, Message: fmt.Sprintf("Task exited with code %d", code)}
}

func (a *Agent) deleteTask(uid string) {
	a.mu.Lock()
	r := a.running[uid]
	delete(a.running, uid)
	a.deletes = append(a.deletes, uid)
	a.mu.Unlock()
	if r == nil {
		return
	}
	close(r.stop)
	if !a.cfg.SilentOnDelete {
		a.SendReport(uid, wire.Status{State: wire.ReportRunning, Event: "Failed"})
	}
}

func (a *Agent) subscribeTo(client mqtt.Client, k wire.Kind, then func(payload []byte)) {
	token := client.Subscribe(wire.RobotTopic(a.cfg.RobotID, k), wire.QoS, func(_ mqtt.Client, m mqtt.Message) { then(m.Payload()) })
	token.WaitTimeout(10 * time.Second)
}

// publishJSON publishes a message and waits for the broker, so that reports stay in order.
func (a *Agent) publishJSON(topic string, v any) {
	a.startPublish(topic, v).WaitTimeout(10 * time.Second)
}

// startPublish publishes a message without waiting for the broker.
func (a *Agent) startPublish(topic string, v any) mqtt.Token {
	payload, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen for our own types
	}
	return a.currentClient().Publish(topic, wire.QoS, false, payload)
}

// waitUnlessStopped waits and reports whether the agent still runs.
func (a *Agent) waitUnlessStopped(d time.Duration) bool {
	select {
	case <-a.done:
		return false
	case <-time.After(d):
		return true
	}
}
