// Package simrobot is a robot without a body: it speaks MQTT 5 and the wire of
// our agents, and runs tasks in its imagination only. One process can hold
// hundreds. It keeps its journal in memory, so each task runs once however
// often it is dispatched.
package simrobot

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"k8s4r.io/k8s4r/internal/agent/logship"
	"k8s4r.io/k8s4r/internal/tasklog"
	"k8s4r.io/k8s4r/internal/wire"
)

// Config of one robot.
type Config struct {
	RobotID string
	// Broker is the MQTT URL, such as mqtt://127.0.0.1:1883.
	Broker string
	// Run is how long each task takes. Zero: it ends at once. Negative: it
	// runs until it is stopped.
	Run time.Duration
	// Heartbeat is the time between two. Zero: 30 s.
	Heartbeat time.Duration
	// RepeatEvery is how long a report waits for its ack. Zero: 1 s.
	RepeatEvery time.Duration
	// Exit tells the exit code of each attempt. Nil: 0.
	Exit func(uid string, attempt int32) int32
	// Started is told of each start as it happens. It must not block.
	Started func(uid string, attempt int32, at time.Time)
	// Labels that the robot says of itself.
	Labels map[string]string
	// Output writes what an attempt has to say; the attempt ends when it returns,
	// which it must when done is closed. Nil: nothing is said, and Run counts.
	Output func(uid string, attempt int32, log *tasklog.Writer, done <-chan struct{})
	// LogDir keeps what Output writes, until the server has it.
	LogDir string
}

// Robot is one running robot.
type Robot struct {
	cfg     Config
	host    string
	done    chan struct{}
	wg      sync.WaitGroup
	client  *paho.Client
	answers chan wire.Response
	welcome chan struct{} // a heartbeat is due at once
	out     chan outgoing // in order; what finds no room is repeated
	ship    *logship.Shipper

	mu       sync.Mutex
	attempts map[key]*attempt
	starts   map[string]int // by UID
	acked    uint64         // last heartbeat
	refused  int            // older attempts, and lists that were out of date
}

type outgoing struct {
	key
	wire.Status
}

type key struct {
	uid     string
	attempt int32
}

// attempt is one run. Its reports stay until they are acknowledged.
type attempt struct {
	epoch   uint64
	seq     uint64
	pending []wire.Status
	timer   *time.Timer // ends it; nil: nothing will
	ended   bool
}

// Start connects and registers; it returns once the server has accepted the
// robot, or ctx is over.
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

// Connect connects and registers, and does not wait for the answer.
func Connect(ctx context.Context, cfg Config) (*Robot, error) {
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 30 * time.Second
	}
	if cfg.RepeatEvery == 0 {
		cfg.RepeatEvery = time.Second
	}
	u, err := url.Parse(cfg.Broker)
	if err != nil {
		return nil, fmt.Errorf("broker %q: %w", cfg.Broker, err)
	}
	r := &Robot{
		cfg: cfg, host: u.Host, done: make(chan struct{}), answers: make(chan wire.Response, 1), welcome: make(chan struct{}, 1), out: make(chan outgoing, 1024),
		attempts: map[key]*attempt{}, starts: map[string]int{},
	}
	if r.ship, err = logship.New(logship.Config{Publish: r.publishLogs, Done: func(logship.Attempt) {}}); err != nil {
		return nil, err
	}
	if err := r.connect(ctx); err != nil {
		return nil, fmt.Errorf("robot %s: %w", cfg.RobotID, err)
	}
	shipping, stop := context.WithCancel(context.Background())
	r.wg.Go(func() { r.ship.Run(shipping) })
	r.wg.Go(func() { <-r.done; stop() })
	r.wg.Go(r.beat)
	r.wg.Go(r.repeat)
	r.wg.Go(r.speak)
	return r, nil
}

func (r *Robot) connect(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.host)
	if err != nil {
		return err
	}
	client := paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){r.receive}})
	will, _ := wire.Encode(wire.Presence{})
	_, err = client.Connect(ctx, &paho.Connect{
		ClientID: "k8s4r-agent-" + r.cfg.RobotID, KeepAlive: 60, CleanStart: true,
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
	r.client = client
	r.mu.Unlock()
	r.register()
	r.ship.Connected(true)
	return nil
}

func (r *Robot) register() {
	r.publish(wire.KindRegister, wire.Register{
		RobotID: r.cfg.RobotID, AgentVersion: "sim", Labels: r.cfg.Labels,
		DeviceInfo: &wire.DeviceInfo{
			Hostname: r.cfg.RobotID, Platform: &wire.Platform{OS: "linux", Arch: "amd64"},
			CPU: &wire.CPU{LogicalCores: 64}, Memory: &wire.Memory{Total: 256 << 30}, Drivers: []string{"exec", "raw_exec"},
		},
	})
}

// AwaitOnline waits until the server has accepted the robot.
func (r *Robot) AwaitOnline(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("robot %s was not accepted: %w", r.cfg.RobotID, context.Cause(ctx))
	case <-r.answers:
		return nil
	}
}

// Stop says goodbye and ends every task without a word.
func (r *Robot) Stop() {
	r.halt() // first, so that nothing is said after the goodbye
	r.publish(wire.KindPresence, wire.Presence{Graceful: true})
	_ = r.conn().Disconnect(&paho.Disconnect{})
}

// Die breaks the connection, so that the broker sends the last will.
func (r *Robot) Die() {
	r.halt()
	r.conn().TerminateConnectionForTest()
}

// Reconnect breaks the connection and opens another.
func (r *Robot) Reconnect(ctx context.Context) error {
	r.ship.Connected(false)
	r.conn().TerminateConnectionForTest()
	return r.connect(ctx)
}

func (r *Robot) halt() {
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

func (r *Robot) conn() *paho.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.client
}

// Starts is how often each task was started, by UID, all attempts together.
func (r *Robot) Starts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	starts := make(map[string]int, len(r.starts))
	for uid, n := range r.starts {
		starts[uid] = n
	}
	return starts
}

// Running is what runs now, by UID.
func (r *Robot) Running() []string {
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

// Unacknowledged is the number of attempts whose last report still waits.
func (r *Robot) Unacknowledged() int {
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

// HeartbeatAcked is the number of the last heartbeat that was acknowledged.
func (r *Robot) HeartbeatAcked() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked
}

func (r *Robot) receive(p paho.PublishReceived) (bool, error) {
	id, topic, payload := r.cfg.RobotID, p.Packet.Topic, p.Packet.Payload
	switch topic {
	case wire.RobotTopic(id, wire.KindResponse):
		take(payload, r.responded)
	case wire.RobotTopic(id, wire.KindAck):
		take(payload, r.acknowledged)
	case wire.RobotTopic(id, wire.KindDispatch):
		take(payload, r.dispatched)
	case wire.RobotTopic(id, wire.KindState):
		take(payload, r.listed)
	}
	return true, nil
}

func take[T any](payload []byte, then func(T)) {
	if v, err := wire.Decode[T](payload); err == nil {
		then(v)
	}
}

func (r *Robot) responded(a wire.Response) {
	if !a.Success {
		time.AfterFunc(100*time.Millisecond, r.register)
		return
	}
	select {
	case r.welcome <- struct{}{}:
	default:
	}
	select {
	case r.answers <- a:
	default:
	}
}

func (r *Robot) acknowledged(a wire.Ack) {
	r.ship.Acked(a.Logs)
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

func (r *Robot) dispatched(d wire.Dispatch) {
	k := key{d.Task.Metadata.UID, max(d.Attempt, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.attempts[k]
	switch {
	case d.Action == wire.ActionDelete && it == nil:
		it = &attempt{epoch: d.Epoch}
		r.attempts[k] = it
		r.end(k, it, wire.ReasonStopped)
	case d.Action == wire.ActionDelete:
		r.end(k, it, wire.ReasonStopped)
	case it != nil:
		r.answer(k, it)
	case r.superseded(k):
		r.refused++
	default:
		r.start(k, d.Epoch)
	}
}

func (r *Robot) superseded(k key) bool {
	for other := range r.attempts {
		if other.uid == k.uid && other.attempt > k.attempt {
			return true
		}
	}
	return false
}

// answer repeats the last word about an attempt.
func (r *Robot) answer(k key, it *attempt) {
	if len(it.pending) > 0 {
		r.report(k, it.pending[len(it.pending)-1])
		return
	}
	if !it.ended {
		r.say(k, it, wire.Status{State: wire.ReportRunning, Event: "Started"})
	}
}

func (r *Robot) start(k key, epoch uint64) {
	it := &attempt{epoch: epoch}
	r.attempts[k] = it
	r.starts[k.uid]++
	if r.cfg.Started != nil {
		r.cfg.Started(k.uid, k.attempt, time.Now())
	}
	r.say(k, it, wire.Status{State: wire.ReportRunning, Event: "Started", Message: "Task started"})
	switch {
	case r.cfg.Output != nil:
		r.wg.Go(func() { r.write(k, it) })
	case r.cfg.Run == 0:
		r.end(k, it, "")
	case r.cfg.Run > 0:
		it.timer = time.AfterFunc(r.cfg.Run, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.end(k, it, "")
		})
	}
}

// write has an attempt say what it has to say, and ends it.
func (r *Robot) write(k key, it *attempt) {
	a := logship.Attempt{UID: k.uid, Attempt: k.attempt}
	dir := filepath.Join(r.cfg.LogDir, fmt.Sprintf("%s-%d", k.uid, k.attempt))
	log := tasklog.NewWriter(dir, tasklog.Options{})
	r.ship.Add(a, dir)
	r.cfg.Output(k.uid, k.attempt, log, r.done)
	log.Close(time.Now())
	r.ship.Ended(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(k, it, "")
}

func (r *Robot) publishLogs(_ context.Context, uid string, l wire.Logs) error {
	r.send(wire.TaskTopic(r.cfg.RobotID, uid, wire.KindLogs), l)
	return nil
}

// end ends an attempt once, by itself or for the given reason.
func (r *Robot) end(k key, it *attempt, reason string) {
	if it.ended {
		return
	}
	it.ended = true
	if it.timer != nil {
		it.timer.Stop()
	}
	now := time.Now()
	s := wire.Status{State: wire.ReportCompleted, Event: "Completed", Message: "Task completed", FinishedAt: &now}
	if reason != "" {
		s = wire.Status{State: wire.ReportFailed, Event: reason, Reason: reason, ExitCode: 143, Signal: 15, FinishedAt: &now}
	} else if r.cfg.Exit != nil {
		if s.ExitCode = r.cfg.Exit(k.uid, k.attempt); s.ExitCode != 0 {
			s.State, s.Event, s.Reason = wire.ReportFailed, wire.ReasonExited, wire.ReasonExited
			s.Message = fmt.Sprintf("Task exited with code %d", s.ExitCode)
		}
	}
	r.say(k, it, s)
}

// listed stops what a list that is new enough does not name.
func (r *Robot) listed(l wire.TaskList) {
	named := map[key]bool{}
	for _, ref := range l.Refs {
		named[key{ref.UID, ref.Attempt}] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, it := range r.attempts {
		if !it.ended && !named[k] && l.Epoch >= it.epoch {
			r.end(k, it, wire.ReasonStopped)
		}
	}
}

// say adds a report to those that wait for their ack, and sends it.
func (r *Robot) say(k key, it *attempt, s wire.Status) {
	it.seq++
	s.TaskUID, s.RobotName, s.Attempt, s.Seq, s.UpdatedAt = k.uid, r.cfg.RobotID, k.attempt, it.seq, time.Now()
	it.pending = append(it.pending, s)
	r.report(k, s)
}

func (r *Robot) report(k key, s wire.Status) {
	select {
	case r.out <- outgoing{k, s}:
	default:
	}
}

func (r *Robot) speak() {
	for {
		select {
		case <-r.done:
			return
		case o := <-r.out:
			r.send(wire.TaskTopic(r.cfg.RobotID, o.uid, wire.KindStatus), o.Status)
		}
	}
}

func (r *Robot) repeat() {
	for r.pause(r.cfg.RepeatEvery) {
		for k, s := range r.overdue() {
			r.report(k, s)
		}
	}
}

// overdue is the last report of each attempt that has waited for its ack.
func (r *Robot) overdue() map[key]wire.Status {
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

// beat sends a heartbeat when the server has accepted the robot, and then
// regularly.
func (r *Robot) beat() {
	tick := time.NewTicker(r.cfg.Heartbeat)
	defer tick.Stop()
	online := false
	for n := uint64(1); ; n++ {
		select {
		case <-r.done:
			return
		case <-r.welcome:
			online = true
		case <-tick.C:
		}
		if online {
			r.publish(wire.KindHeartbeat, wire.Heartbeat{N: n})
		}
	}
}

func (r *Robot) publish(k wire.Kind, v any) { r.send(wire.RobotTopic(r.cfg.RobotID, k), v) }

func (r *Robot) send(topic string, v any) {
	payload, err := wire.Encode(v)
	if err != nil {
		panic(err) // our own types
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = r.conn().Publish(ctx, &paho.Publish{Topic: topic, QoS: wire.QoS, Payload: payload})
}

// pause returns false when the robot has stopped meanwhile.
func (r *Robot) pause(d time.Duration) bool {
	select {
	case <-r.done:
		return false
	case <-time.After(d):
		return true
	}
}
