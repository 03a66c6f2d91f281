// Package simrobot simulates agents with protocol v2 (MQTT 5) that do not start processes. One
// process can hold hundreds. The journal is in memory, so each attempt runs once, however often
// it is dispatched.
package simrobot

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/logship"
)

// Config configures one robot.
type Config struct {
	RobotID string
	// Broker is the MQTT URL of the broker, such as mqtts://127.0.0.1:8883.
	Broker string
	// TLS has the robot's certificate. If nil, the robot is anonymous and connects without TLS.
	TLS *tls.Config
	// Run is how long each task runs: 0 ends at once, a negative value runs until it is
	// stopped.
	Run time.Duration
	// Heartbeat is the interval of heartbeats. 0 means 30s.
	Heartbeat time.Duration
	// RepeatEvery is when a report without an ack is repeated. 0 means 1s.
	RepeatEvery time.Duration
	// Exit returns the exit code of each attempt. If nil, it is 0.
	Exit func(uid string, attempt int32) int32
	// RunTask is called at each start of a task, and returns how long it runs, as in Run, and its exit code.
	// It must not block or use the robot. If nil, Run and Exit apply. It does not apply to ranges.
	RunTask func(t wire.Task, attempt int32) (run time.Duration, code int32)
	// IndexRun is how long each index of a range runs: 0 ends at once. Run does not apply to ranges.
	IndexRun time.Duration
	// IndexExit returns the exit code of an index, in a range or in a task of its own. If nil, it is
	// 0, and Exit applies to a task of its own.
	IndexExit func(index, attempt int32) int32
	// ProgressEvery is how often a range reports the ends of its indexes while it runs. 0 means 10s.
	ProgressEvery time.Duration
	// OnStart is called at each start. It must not block.
	OnStart func(uid string, attempt int32, at time.Time)
	// Labels are the labels that the agent reports.
	Labels map[string]string
	// Output writes the output of an attempt, which ends when Output returns. It must return
	// when done is closed. If nil, there is no output, and Run applies.
	Output func(uid string, attempt int32, log *record.Writer, done <-chan struct{})
	// LogDir stores the output until the server has acknowledged it.
	LogDir string
	// IsSilent makes the robot ignore dispatches and task lists, although it sends heartbeats.
	IsSilent bool
	// RestartsTasks makes the robot an agent that restarts tasks by their restartPolicy. Run, Exit and
	// OnStart apply to each run.
	RestartsTasks bool
	// AgentVersion is what the agent reports as its version. If empty, sim.
	AgentVersion string
	// UpdatesItself makes the robot an agent that acts by orders to update it.
	UpdatesItself bool
	// OnAgentOrder is called for each such order, and returns the state that the robot reports and the version that
	// it then has. An empty state reports nothing, an empty version stays. It must not block.
	OnAgentOrder func(o wire.AgentOrder) (state, version string)
	// OmitsConnectionID makes the robot an agent of an earlier version, which sends no connection id.
	OmitsConnectionID bool
}

// Robot is one running robot.
type Robot struct {
	cfg          Config
	host         string
	done         chan struct{}
	wg           sync.WaitGroup
	client       *paho.Client
	responses    chan wire.Response
	heartbeatNow chan struct{} // requests a heartbeat at once
	reports      chan outgoing // in order; dropped ones are repeated
	ship         *logship.Shipper

	mu           sync.Mutex
	connectionID string // of the last connection; empty: the robot sends none
	attempts     map[key]*attempt
	starts       map[string]int // by UID
	indexStarts  map[string][]int32
	agent        agent
	acked        uint64 // last heartbeat
	refused      int    // older attempts, and lists that were out of date
}

type outgoing struct {
	key
	wire.Status
}

type key struct {
	uid     string
	attempt int32
}

// attempt is one attempt of a task, with the reports that are not acknowledged yet.
type attempt struct {
	epoch   uint64
	seq     uint64
	pending []wire.Status
	timer   *time.Timer // ends the attempt; nil if nothing does
	ended   bool
	indexes *indexes // of a range; nil for other tasks
	index   *int32   // of a task of one index; nil for other tasks
	runs    *runs    // nil: the manager restarts the task
	task    wire.Task
	code    int32 // of the current run, if Config.RunTask is set
}

// Start connects and registers a robot. It returns once the server has accepted the robot, or
// ctx ends.
func Start(ctx context.Context, cfg Config) (*Robot, error) {
	r, err := Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := r.AwaitOnline(ctx); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

// Connect connects and registers a robot without waiting for the response.
func Connect(ctx context.Context, cfg Config) (*Robot, error) {
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 30 * time.Second
	}
	if cfg.RepeatEvery == 0 {
		cfg.RepeatEvery = time.Second
	}
	if cfg.ProgressEvery == 0 {
		cfg.ProgressEvery = progressEvery
	}
	if cfg.AgentVersion == "" {
		cfg.AgentVersion = "sim"
	}
	u, err := url.Parse(cfg.Broker)
	if err != nil {
		return nil, fmt.Errorf("broker %q: %w", cfg.Broker, err)
	}
	r := &Robot{
		cfg: cfg, host: u.Host, done: make(chan struct{}), responses: make(chan wire.Response, 1), heartbeatNow: make(chan struct{}, 1), reports: make(chan outgoing, 1024),
		attempts: map[key]*attempt{}, starts: map[string]int{}, indexStarts: map[string][]int32{},
		agent: agent{version: cfg.AgentVersion},
	}
	if r.ship, err = logship.New(logship.Config{Publish: r.publishLogs, Done: func(logship.Attempt) {}}); err != nil {
		return nil, err
	}
	if err := r.openConnection(ctx); err != nil {
		return nil, fmt.Errorf("robot %s: %w", cfg.RobotID, err)
	}
	shipping, stop := context.WithCancel(context.Background())
	r.wg.Go(func() { r.ship.Run(shipping) })
	r.wg.Go(func() { <-r.done; stop() })
	r.wg.Go(r.sendHeartbeats)
	r.wg.Go(r.repeatReports)
	r.wg.Go(r.sendReports)
	return r, nil
}

// dialBroker returns the connection and the client id of an agent.
func (r *Robot) dialBroker(ctx context.Context) (conn net.Conn, clientID string, err error) {
	if r.cfg.TLS == nil {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", r.host)
		return conn, "k8s4r-agent-" + r.cfg.RobotID, err
	}
	conn, err = (&tls.Dialer{Config: r.cfg.TLS}).DialContext(ctx, "tcp", r.host)
	return packets.NewThreadSafeConn(conn), r.cfg.RobotID, err
}

func (r *Robot) openConnection(ctx context.Context) error {
	conn, clientID, err := r.dialBroker(ctx)
	if err != nil {
		return err
	}
	client := paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){r.handleMessage}})
	connectionID := ""
	if !r.cfg.OmitsConnectionID {
		connectionID = cryptorand.Text()
	}
	will, _ := wire.Encode(wire.Presence{ConnectionID: connectionID})
	_, err = client.Connect(ctx, &paho.Connect{
		ClientID: clientID, KeepAlive: 60, CleanStart: true,
		WillMessage: &paho.WillMessage{Topic: wire.RobotTopic(r.cfg.RobotID, wire.KindPresence), Payload: will, QoS: wire.QoS},
	})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	s := &paho.Subscribe{}
	for _, topic := range wire.RobotSubscriptions(r.cfg.RobotID) {
		s.Subscriptions = append(s.Subscriptions, paho.SubscribeOptions{Topic: topic, QoS: wire.QoS})
	}
	if _, err := client.Subscribe(ctx, s); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	r.mu.Lock()
	r.client, r.connectionID = client, connectionID
	r.mu.Unlock()
	r.ship.SetConnected(true) // before the answer, which may allow records of runs
	r.sendRegister()
	return nil
}

// currentConnectionID returns the id of the connection that was opened last.
func (r *Robot) currentConnectionID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connectionID
}

func (r *Robot) sendRegister() {
	m := wire.Register{
		RobotID: r.cfg.RobotID, ConnectionID: r.currentConnectionID(), Labels: r.cfg.Labels, AnswersDispatches: true, RunsArrays: true, RestartsTasks: r.cfg.RestartsTasks,
		DeviceInfo: &wire.DeviceInfo{
			Hostname: r.cfg.RobotID, Platform: &wire.Platform{OS: "linux", Arch: "amd64"},
			CPU: &wire.CPU{LogicalCores: 64}, Memory: &wire.Memory{Total: 256 << 30}, Drivers: []string{"exec", "raw_exec"},
		},
	}
	r.addAgent(&m)
	r.publishKind(wire.KindRegister, m)
}

// AwaitOnline blocks until the server has accepted the robot.
func (r *Robot) AwaitOnline(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("robot %s was not accepted: %w", r.cfg.RobotID, context.Cause(ctx))
	case <-r.responses:
		return nil
	}
}

// Stop sends a graceful disconnect and ends every task without a report.
func (r *Robot) Stop() {
	r.stopTasks() // first, so that no report follows the disconnect
	r.publishKind(wire.KindPresence, wire.Presence{Graceful: true, ConnectionID: r.currentConnectionID()})
	_ = r.currentClient().Disconnect(&paho.Disconnect{})
}

// LoseConnection ends the robot by breaking the connection, so that the broker sends the last
// will.
func (r *Robot) LoseConnection() {
	r.stopTasks()
	r.currentClient().TerminateConnectionForTest()
}

// BreakConnection breaks the connection. The tasks go on.
func (r *Robot) BreakConnection() {
	r.ship.SetConnected(false)
	r.currentClient().TerminateConnectionForTest()
}

// Reconnect breaks the connection and opens a new one.
func (r *Robot) Reconnect(ctx context.Context) error {
	r.BreakConnection()
	return r.openConnection(ctx)
}

func (r *Robot) stopTasks() {
	close(r.done)
	r.mu.Lock()
	for _, a := range r.attempts {
		if a.timer != nil {
			a.timer.Stop()
		}
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *Robot) currentClient() *paho.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.client
}

// StartCounts returns how often each task was started, by UID, across attempts.
func (r *Robot) StartCounts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	starts := make(map[string]int, len(r.starts))
	for uid, n := range r.starts {
		starts[uid] = n
	}
	return starts
}

// RunningTasks returns the UIDs of the running tasks, sorted.
func (r *Robot) RunningTasks() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var uids []string
	for k, it := range r.attempts {
		if !it.ended {
			uids = append(uids, k.uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// UnacknowledgedCount returns the number of attempts with unacknowledged reports.
func (r *Robot) UnacknowledgedCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, a := range r.attempts {
		if len(a.pending) > 0 {
			n++
		}
	}
	return n
}

// HeartbeatAcked returns the sequence number of the last acknowledged heartbeat.
func (r *Robot) HeartbeatAcked() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked
}

func (r *Robot) handleMessage(p paho.PublishReceived) (bool, error) {
	id, topic, payload := r.cfg.RobotID, p.Packet.Topic, p.Packet.Payload
	if r.cfg.IsSilent && (topic == wire.RobotTopic(id, wire.KindDispatch) || topic == wire.RobotTopic(id, wire.KindState)) {
		return true, nil
	}
	switch topic {
	case wire.RobotTopic(id, wire.KindResponse):
		withDecoded(payload, r.handleResponse)
	case wire.RobotTopic(id, wire.KindAck):
		withDecoded(payload, r.handleAck)
	case wire.RobotTopic(id, wire.KindDispatch):
		withDecoded(payload, r.handleDispatch)
	case wire.RobotTopic(id, wire.KindState):
		withDecoded(payload, r.handleTaskList)
	}
	return true, nil
}

func withDecoded[T any](payload []byte, then func(T)) {
	if v, err := wire.Decode[T](payload); err == nil {
		then(v)
	}
}

func (r *Robot) handleResponse(a wire.Response) {
	if !a.Success {
		time.AfterFunc(100*time.Millisecond, r.sendRegister)
		return
	}
	r.ship.SetSendsRuns(a.StoresRuns)
	if a.AgentOrder != nil {
		r.wg.Go(func() { r.handleOrder(*a.AgentOrder) })
	}
	select {
	case r.heartbeatNow <- struct{}{}:
	default:
	}
	select {
	case r.responses <- a:
	default:
	}
}

func (r *Robot) handleAck(a wire.Ack) {
	r.ship.HandleAcks(a.Logs, false)
	r.ship.HandleAcks(a.Runs, true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = max(r.acked, a.Heartbeat)
	for _, t := range a.Tasks {
		it := r.attempts[key{t.UID, t.Attempt}]
		if it == nil {
			continue
		}
		for len(it.pending) > 0 && it.pending[0].Seq <= t.Seq {
			it.pending = it.pending[1:]
		}
	}
}

func (r *Robot) handleDispatch(d wire.Dispatch) {
	k := key{d.Task.Metadata.UID, max(d.Attempt, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.attempts[k]
	switch {
	case d.Action == wire.ActionDelete && it == nil:
		it = &attempt{epoch: d.Epoch}
		r.attempts[k] = it
		r.endAttemptLocked(k, it, wire.ReasonStopped)
	case d.Action == wire.ActionDelete:
		r.endAttemptLocked(k, it, wire.ReasonStopped)
	case it != nil:
		r.repeatReportLocked(k, it)
	case r.hasNewerAttemptLocked(k):
		r.refused++
	default:
		r.startAttemptLocked(k, d)
	}
}

func (r *Robot) hasNewerAttemptLocked(k key) bool {
	for other := range r.attempts {
		if other.uid == k.uid && other.attempt > k.attempt {
			return true
		}
	}
	return false
}

// repeatReportLocked repeats the last report of an attempt.
func (r *Robot) repeatReportLocked(k key, it *attempt) {
	if len(it.pending) > 0 {
		r.queueReport(k, it.pending[len(it.pending)-1])
		return
	}
	switch {
	case it.ended:
	case it.runs.isWaiting():
		r.reportWaitLocked(k, it)
	default:
		r.addReportLocked(k, it, wire.Status{State: wire.ReportRunning, Event: "Started", Array: it.indexes.report()})
	}
}

func (r *Robot) startAttemptLocked(k key, d wire.Dispatch) {
	it := &attempt{epoch: d.Epoch, indexes: newIndexes(d.Task.Spec.Array), task: d.Task}
	if d.Task.Spec.Array != nil {
		it.index = d.Task.Spec.Array.Index
	} else if r.cfg.RestartsTasks {
		it.runs = newRuns(d.Task.Spec)
	}
	r.attempts[k] = it
	r.addReportLocked(k, it, wire.Status{State: wire.ReportPending, Event: "Accepted"})
	r.startRunLocked(k, it)
}

// startRunLocked starts the first or the next run of an attempt.
func (r *Robot) startRunLocked(k key, it *attempt) {
	r.starts[k.uid]++
	if r.cfg.OnStart != nil {
		r.cfg.OnStart(k.uid, k.attempt, time.Now())
	}
	run := r.cfg.Run
	if r.cfg.RunTask != nil {
		run, it.code = r.cfg.RunTask(it.task, k.attempt)
	}
	it.runs.startNext()
	r.addReportLocked(k, it, wire.Status{State: wire.ReportRunning, Event: "Started", Message: "Task started"})
	switch {
	case it.indexes != nil:
		r.wg.Go(func() { r.runIndexes(k, it) })
	case r.cfg.Output != nil:
		r.wg.Go(func() { r.writeOutput(k, it) })
	case run == 0:
		r.endAttemptLocked(k, it, "")
	case run > 0:
		it.timer = time.AfterFunc(run, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.endAttemptLocked(k, it, "")
		})
	}
}

// writeOutput runs Config.Output for an attempt, and ends the attempt.
func (r *Robot) writeOutput(k key, it *attempt) {
	a := logship.Attempt{UID: k.uid, Attempt: k.attempt}
	dir := filepath.Join(r.cfg.LogDir, fmt.Sprintf("%s-%d", k.uid, k.attempt))
	log := record.NewWriter(dir, record.Options{})
	r.ship.AddLog(a, dir)
	r.cfg.Output(k.uid, k.attempt, log, r.done)
	log.Close(time.Now())
	r.ship.EndLog(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endAttemptLocked(k, it, "")
}

// AddRuns writes records of the runs of an attempt, as an agent does that has restarted it, and sends them
// while the robot is connected. Config.LogDir must be set.
func (r *Robot) AddRuns(uid string, attempt int32, records []runlog.Record) error {
	dir := filepath.Join(r.cfg.LogDir, fmt.Sprintf("%s-%d-runs", uid, attempt))
	w, err := segment.Open(dir, segment.Options{})
	if err != nil {
		return err
	}
	var lines []byte
	for _, one := range records {
		if lines, err = one.Append(lines); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	_, err = w.Append(lines)
	r.ship.AddLog(logship.Attempt{UID: uid, Attempt: attempt, OfRuns: true}, dir)
	return errors.Join(err, w.Close())
}

func (r *Robot) publishLogs(_ context.Context, a logship.Attempt, l wire.Logs) error {
	kind := wire.KindLogs
	if a.OfRuns {
		kind = wire.KindRuns
	}
	r.publishTo(wire.TaskTopic(r.cfg.RobotID, a.UID, kind), l)
	return nil
}

// endAttemptLocked ends an attempt once. An empty reason means that it exited on its own: then another
// run may follow.
func (r *Robot) endAttemptLocked(k key, it *attempt, reason string) {
	if it.ended {
		return
	}
	if it.timer != nil {
		it.timer.Stop()
	}
	if reason == "" && r.restartLocked(k, it, r.exitCodeOf(k, it)) {
		return
	}
	it.ended = true
	now := time.Now()
	s := wire.Status{State: wire.ReportCompleted, Event: "Completed", Message: "Task completed", FinishedAt: &now, Array: it.indexes.report()}
	switch code := r.exitCodeOf(k, it); {
	case reason != "":
		s.State, s.Event, s.Message, s.Reason, s.ExitCode, s.Signal = wire.ReportFailed, reason, "", reason, 143, 15
	case code != 0:
		s.State, s.Event, s.Reason, s.ExitCode = wire.ReportFailed, wire.ReasonExited, wire.ReasonExited, code
		s.Message = fmt.Sprintf("Task exited with code %d", code)
	}
	r.addReportLocked(k, it, s)
}

// exitCodeOf returns the exit code of an attempt that exits on its own. That of a range is 0.
func (r *Robot) exitCodeOf(k key, it *attempt) int32 {
	switch {
	case it.indexes != nil:
		return 0
	case it.index != nil && r.cfg.IndexExit != nil:
		return r.cfg.IndexExit(*it.index, k.attempt)
	case r.cfg.RunTask != nil:
		return it.code
	case r.cfg.Exit != nil:
		return r.cfg.Exit(k.uid, k.attempt)
	}
	return 0
}

// handleTaskList stops attempts that a sufficiently new list does not contain, and lets ranges start no
// more indexes.
func (r *Robot) handleTaskList(l wire.TaskList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	named := map[key]bool{}
	for _, ref := range l.Refs {
		k := key{ref.UID, ref.Attempt}
		named[k] = true
		it := r.attempts[k]
		if it != nil && it.indexes != nil {
			it.indexes.startsNone = ref.StartsNoIndex
		}
		if it != nil && it.runs != nil {
			r.setStartsNoRunLocked(k, it, ref.StartsNoRun)
		}
	}
	for k, it := range r.attempts {
		if !it.ended && !named[k] && l.Epoch >= it.epoch {
			r.endAttemptLocked(k, it, wire.ReasonStopped)
		}
	}
}

// addReportLocked sends a report and keeps it until it is acknowledged.
func (r *Robot) addReportLocked(k key, it *attempt, s wire.Status) {
	it.seq++
	it.runs.addTo(&s)
	s.TaskUID, s.RobotName, s.Attempt, s.Seq, s.UpdatedAt = k.uid, r.cfg.RobotID, k.attempt, it.seq, time.Now()
	it.pending = append(it.pending, s)
	r.queueReport(k, s)
}

func (r *Robot) queueReport(k key, s wire.Status) {
	select {
	case r.reports <- outgoing{k, s}:
	default:
	}
}

func (r *Robot) sendReports() {
	for {
		select {
		case <-r.done:
			return
		case o := <-r.reports:
			r.publishTo(wire.TaskTopic(r.cfg.RobotID, o.uid, wire.KindStatus), o.Status)
		}
	}
}

func (r *Robot) repeatReports() {
	for r.waitUnlessStopped(r.cfg.RepeatEvery) {
		for k, s := range r.overdueReports() {
			r.queueReport(k, s)
		}
	}
}

// overdueReports returns the last report of each attempt whose ack is overdue.
func (r *Robot) overdueReports() map[key]wire.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	late := map[key]wire.Status{}
	for k, it := range r.attempts {
		if n := len(it.pending); n > 0 && time.Since(it.pending[n-1].UpdatedAt) > r.cfg.RepeatEvery {
			late[k] = it.pending[n-1]
		}
	}
	return late
}

// sendHeartbeats sends a heartbeat when the server has accepted the robot, and then at the
// interval.
func (r *Robot) sendHeartbeats() {
	tick := time.NewTicker(r.cfg.Heartbeat)
	defer tick.Stop()
	online := false
	for n := uint64(1); ; n++ {
		select {
		case <-r.done:
			return
		case <-r.heartbeatNow:
			online = true
		case <-tick.C:
		}
		if online {
			r.publishKind(wire.KindHeartbeat, wire.Heartbeat{Seq: n})
		}
	}
}

func (r *Robot) publishKind(k wire.Kind, v any) { r.publishTo(wire.RobotTopic(r.cfg.RobotID, k), v) }

func (r *Robot) publishTo(topic string, v any) {
	payload, err := wire.Encode(v)
	if err != nil {
		panic(err) // cannot happen for our own types
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = r.currentClient().Publish(ctx, &paho.Publish{Topic: topic, QoS: wire.QoS, Payload: payload})
}

// waitUnlessStopped waits and reports whether the robot still runs.
func (r *Robot) waitUnlessStopped(d time.Duration) bool {
	select {
	case <-r.done:
		return false
	case <-time.After(d):
		return true
	}
}
