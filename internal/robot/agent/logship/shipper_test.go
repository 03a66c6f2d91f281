package logship

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const waitLimit = 20 * time.Second

// server stores logs in memory as k8s4r-server does, behind an unreliable network.
type server struct {
	t      *testing.T
	mu     sync.Mutex
	random *rand.Rand
	bad    float64 // share of messages and answers that are lost, doubled or late
	logs   map[Attempt]*stored
	acked  func(acks []wire.LogAck, ofRuns bool)
	late   []func()
	done   map[Attempt]bool
	resent int // bytes that came although they had been acknowledged
	honest bool
}

type stored struct {
	text    []byte
	lost    int64
	want    int64
	lastSeq uint64
	last    bool
	acked   int64 // the highest offset that was acknowledged
}

func newServer(t *testing.T, seed uint64, bad float64) *server {
	return &server{t: t, random: rand.New(rand.NewPCG(seed, 1)), bad: bad, logs: map[Attempt]*stored{}, done: map[Attempt]bool{}, honest: true}
}

func (s *server) publish(_ context.Context, a Attempt, l wire.Logs) error {
	data, err := l.Unpack()
	if err != nil {
		s.t.Errorf("%v", err)
	}
	l.Data = bytes.Clone(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.logs[a]; it != nil && s.honest && l.Offset < it.acked && len(data) > 0 {
		s.resent += int(min(it.acked, l.Offset+int64(len(data))) - l.Offset)
	}
	s.deliver(func() { s.storeLogs(a, l) })
	return nil
}

// deliver calls a function now, later, twice or never.
func (s *server) deliver(do func()) {
	for _, old := range s.late {
		if s.random.Float64() < 0.3 {
			defer old()
		} else {
			defer func() { s.late = append(s.late, old) }()
		}
	}
	s.late = nil
	switch p := s.random.Float64(); {
	case p < s.bad/3:
	case p < 2*s.bad/3:
		s.late = append(s.late, do)
	case p < s.bad:
		do()
		s.late = append(s.late, do)
	default:
		do()
	}
}

func (s *server) storeLogs(a Attempt, l wire.Logs) {
	it := s.logs[a]
	if it == nil {
		it = &stored{}
		s.logs[a] = it
	}
	if l.Offset > it.want && l.Offset-l.Lost <= it.want && l.Lost > 0 {
		it.lost += l.Offset - it.want
		it.want = l.Offset
	}
	if l.Offset <= it.want {
		if end := l.Offset + int64(len(l.Data)); end > it.want {
			it.text = append(it.text, l.Data[it.want-l.Offset:]...)
			it.want = end
		}
		it.last = it.last || l.Last && l.Offset+int64(len(l.Data)) == it.want
	}
	it.lastSeq = max(it.lastSeq, l.Seq)
	ack := wire.LogAck{UID: a.UID, Attempt: a.Attempt, Seq: it.lastSeq, Offset: it.want, Done: it.last}
	answered := s.acked
	s.deliver(func() {
		it.acked = max(it.acked, ack.Offset)
		answered([]wire.LogAck{ack}, a.OfRuns)
	})
}

func (s *server) recordDone(a Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[a] = true
}

func (s *server) isDone(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.done) == n
}

// run starts a shipper; stop ends it.
func (s *server) run(c Config) (ship *Shipper, stop func()) {
	s.t.Helper()
	c.Publish, c.Done = s.publish, s.recordDone
	c.Gather = time.Millisecond
	if c.RepeatAfter == 0 {
		c.RepeatAfter = 20 * time.Millisecond
	}
	ship, err := New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.acked = ship.HandleAcks
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { ship.Run(ctx) })
	ship.SetConnected(true)
	ship.SetSendsRuns(true)
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	s.t.Cleanup(stop)
	return ship, stop
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, waitLimit)
		}
	}
}

// onRobot returns the part of a log that is left on the robot, and its offset.
func onRobot(t *testing.T, dir string) (int64, []byte) {
	t.Helper()
	r, buf := segment.Reader{Dir: dir}, make([]byte, 64<<10)
	begin, text := int64(-1), []byte(nil)
	for at := int64(0); ; {
		c, err := r.ReadAt(at, buf)
		if err != nil {
			t.Fatal(err)
		}
		if begin < 0 {
			begin = c.Offset
		}
		if len(c.Data) == 0 {
			return begin, text
		}
		text, at = append(text, c.Data...), c.End()
	}
}

// TestShipper_StoresWhatWasWritten drives some tasks through a network that
// loses, doubles and reorders, connections that break and agents that restart.
func TestShipper_StoresWhatWasWritten(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			s := newServer(t, seed, []float64{0, 0.1, 0.5}[seed%3])
			random := rand.New(rand.NewPCG(seed, 2))
			const tasks = 5
			writers, dirs, ended := [tasks]*record.Writer{}, [tasks]string{}, [tasks]bool{}
			// Two tasks have the records of their runs beside their output.
			attempt := func(i int) Attempt { return Attempt{UID: fmt.Sprintf("task-%d", i%3), Attempt: 1, OfRuns: i >= 3} }
			for i := range writers {
				dirs[i] = filepath.Join(root, fmt.Sprint(i))
				writers[i] = record.NewWriter(dirs[i], record.Options{})
			}
			ship, stop := s.run(Config{Window: 64 << 10})
			addAll := func() {
				for i, dir := range dirs {
					ship.AddLog(attempt(i), dir)
					if ended[i] {
						ship.EndLog(attempt(i))
					}
				}
			}
			addAll()
			for step := range 60 {
				i := random.IntN(tasks)
				if !ended[i] {
					text := strings.Repeat(fmt.Sprintf("%d %d\n", step, i), 1+random.IntN(2000))
					writers[i].Write(record.Stdout, []byte(text), time.Now())
				}
				switch random.IntN(15) {
				case 0:
					ship.SetConnected(false)
					ship.SetConnected(true)
					ship.SetSendsRuns(true)
				case 1:
					stop()
					ship, stop = s.run(Config{Window: 64 << 10})
					addAll()
				case 2:
					writers[i].Close(time.Now())
					ended[i] = true
					ship.EndLog(attempt(i))
				}
				time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
			}
			for i, w := range writers {
				if !ended[i] {
					w.Close(time.Now())
					ship.EndLog(attempt(i))
				}
			}
			eventually(t, "all is acknowledged", func() bool { return s.isDone(tasks) && ship.unsentCount() == 0 })
			stop()
			s.mu.Lock()
			defer s.mu.Unlock()
			for i, dir := range dirs {
				begin, text := onRobot(t, dir)
				if it := s.logs[attempt(i)]; begin != 0 || !bytes.Equal(it.text, text) {
					t.Errorf("task %d: stored %d bytes, written %d", i, len(it.text), len(text))
				}
			}
			if s.resent > 0 {
				t.Errorf("%d bytes came again although they had been acknowledged", s.resent)
			}
			if ship.bytesInFlight != 0 {
				t.Errorf("%d bytes are counted as unacknowledged", ship.bytesInFlight)
			}
		})
	}
}

func TestShipper_ReportsLostBytes(t *testing.T) {
	dir := t.TempDir()
	w := record.NewWriter(dir, record.Options{SegmentSize: 8 << 10, Keep: 3})
	for i := range 10000 {
		w.Write(record.Stdout, fmt.Appendf(nil, "line %d\n", i), time.Now())
	}
	w.Close(time.Now())
	s := newServer(t, 1, 0)
	ship, _ := s.run(Config{})
	a := Attempt{UID: "task", Attempt: 1}
	ship.AddLog(a, dir)
	ship.EndLog(a)
	eventually(t, "all is acknowledged", func() bool { return s.isDone(1) })
	begin, text := onRobot(t, dir)
	if it := s.logs[a]; it.lost != begin || begin == 0 || !bytes.Equal(it.text, text) {
		t.Errorf("lost %d of %d, and %d bytes of %d", it.lost, begin, len(it.text), len(text))
	}
}

// After a power cut the server has more of the log than the robot. All of the next run must arrive.
func TestShipper_SendsTheRunAfterAPowerCut(t *testing.T) {
	for name, left := range map[string]int64{"half is on the disk": 2, "nothing is": 0} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, 1, 0)
			dir, a := t.TempDir(), Attempt{UID: "task", Attempt: 1}
			ship, stop := s.run(Config{})
			ship.AddLog(a, dir)
			w := record.NewWriter(dir, record.Options{})
			w.Write(record.Stdout, []byte(strings.Repeat("run 1\n", 1000)), time.Now())
			w.Close(time.Now())
			_, text := onRobot(t, dir)
			size := int64(len(text))
			eventually(t, "the first run is acknowledged", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.logs[a] != nil && s.logs[a].acked == size
			})
			stop()
			if left > 0 {
				left = size / left
			}
			if err := os.Truncate(filepath.Join(dir, "00000000000000000000.log"), left); err != nil {
				t.Fatal(err)
			}
			w, err := record.OpenWriter(dir, record.Options{Gap: 1 << 20}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			w.Write(record.Stdout, []byte(strings.Repeat("run 2\n", 500)), time.Now())
			w.Close(time.Now())
			ship, _ = s.run(Config{})
			ship.AddLog(a, dir)
			ship.EndLog(a)
			eventually(t, "all is acknowledged", func() bool { return s.isDone(1) })
			if it := s.logs[a]; bytes.Count(it.text, []byte("stdout F run 1\n")) != 1000 || bytes.Count(it.text, []byte("stdout F run 2\n")) != 500 || it.lost == 0 {
				t.Errorf("%d bytes are lost, and the server has\n%s", it.lost, it.text[size:])
			}
		})
	}
}

func TestShipper_ResendsWhatTheServerLost(t *testing.T) {
	dir, a := t.TempDir(), Attempt{UID: "task", Attempt: 1}
	w := record.NewWriter(dir, record.Options{})
	s := newServer(t, 1, 0)
	s.honest = false
	ship, _ := s.run(Config{})
	ship.AddLog(a, dir)
	w.Write(record.Stdout, []byte(strings.Repeat("before\n", 10000)), time.Now())
	_, text := onRobot(t, dir)
	eventually(t, "it is there", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.logs[a] != nil && s.logs[a].want == int64(len(text))
	})
	s.mu.Lock()
	s.logs[a].text, s.logs[a].want = nil, 0 // another disk
	s.mu.Unlock()
	w.Write(record.Stdout, []byte("after\n"), time.Now())
	w.Close(time.Now())
	ship.EndLog(a)
	eventually(t, "all is acknowledged", func() bool { return s.isDone(1) })
	if _, text = onRobot(t, dir); !bytes.Equal(s.logs[a].text, text) {
		t.Errorf("%d bytes of %d", len(s.logs[a].text), len(text))
	}
}

func TestShipper_DropsUnwantedLog(t *testing.T) {
	dir, a := t.TempDir(), Attempt{UID: "task", Attempt: 1}
	w := record.NewWriter(dir, record.Options{})
	s := newServer(t, 1, 0)
	s.logs[a] = &stored{last: true}
	ship, _ := s.run(Config{})
	ship.AddLog(a, dir)
	w.Write(record.Stdout, []byte("hello\n"), time.Now())
	eventually(t, "it is let go", func() bool {
		ship.mu.Lock()
		defer ship.mu.Unlock()
		return ship.logs[a].rejected
	})
	if s.isDone(1) {
		t.Error("it is done while it runs")
	}
	ship.EndLog(a)
	eventually(t, "it is done", func() bool { return s.isDone(1) })
}

// sentMessage is a message that a shipper has published.
type sentMessage struct {
	task string
	wire.Logs
}

// floodedShipper is a Shipper whose rounds the test runs, with a log that is flooded and a quiet
// one.
type floodedShipper struct {
	*Shipper
	t            *testing.T
	flood, quiet *record.Writer
	sent         []sentMessage
}

func newFloodedShipper(t *testing.T) *floodedShipper {
	root, f := t.TempDir(), &floodedShipper{t: t}
	var err error
	f.Shipper, err = New(Config{RepeatAfter: time.Hour, Publish: func(_ context.Context, a Attempt, l wire.Logs) error {
		data, err := l.Unpack()
		l.Data = bytes.Clone(data)
		f.sent = append(f.sent, sentMessage{a.UID, l})
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.watch.closeWatch)
	f.SetConnected(true)
	f.flood = record.NewWriter(filepath.Join(root, "flood"), record.Options{})
	f.quiet = record.NewWriter(filepath.Join(root, "quiet"), record.Options{})
	for _, task := range []string{"flood", "quiet"} {
		f.AddLog(Attempt{UID: task, Attempt: 1}, filepath.Join(root, task))
	}
	for range 20 * f.cfg.Window / 10_000 {
		f.flood.Write(record.Stdout, bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 100), time.Now())
	}
	return f
}

// sendLine writes a line to the quiet log, and checks that the next round sends it, beside at most
// one piece of the flood.
func (f *floodedShipper) sendLine(line string) {
	f.t.Helper()
	f.quiet.Write(record.Stdout, []byte(line), time.Now())
	f.sent = nil
	f.queueGrown(nil, true)
	f.sendRound(f.t.Context())
	pieces, found := 0, false
	for _, m := range f.sent {
		if m.task == "flood" {
			pieces++
		} else {
			found = found || bytes.Contains(m.Data, []byte(line))
		}
	}
	if !found || pieces > 1 {
		f.t.Errorf("a round sent %d pieces of the flood; %q was sent: %v", pieces, line, found)
	}
}

func TestShipper_FloodDoesNotDelayOtherLogs(t *testing.T) {
	t.Run("while the server stores the flood", func(t *testing.T) {
		f := newFloodedShipper(t)
		for i := range 40 {
			f.sendLine(fmt.Sprintf("line %d\n", i))
			for _, m := range f.sent {
				f.HandleAcks([]wire.LogAck{{UID: m.task, Attempt: m.Attempt, Seq: m.Seq, Offset: m.Offset + int64(len(m.Data))}}, false)
			}
		}
	})
	t.Run("while the server stores nothing", func(t *testing.T) {
		f := newFloodedShipper(t)
		for i := range 40 {
			f.sendLine(fmt.Sprintf("line %d\n", i))
		}
		if f.bytesInFlight > f.cfg.Window || f.bytesInFlight < f.cfg.Window/2 {
			t.Errorf("%d bytes are sent and not acknowledged, want most of the window of %d", f.bytesInFlight, f.cfg.Window)
		}
	})
}

func TestShipper_NeedsNoGoroutinePerTask(t *testing.T) {
	root := t.TempDir()
	s := newServer(t, 1, 0)
	ship, _ := s.run(Config{})
	before := runtime.NumGoroutine()
	for i := range 1000 {
		ship.AddLog(Attempt{UID: fmt.Sprintf("task-%d", i), Attempt: 1}, filepath.Join(root, fmt.Sprint(i)))
	}
	eventually(t, fmt.Sprintf("at most 100 goroutines more than %d", before), func() bool { return runtime.NumGoroutine() <= before+100 })
	w := record.NewWriter(filepath.Join(root, "7"), record.Options{})
	w.Write(record.Stdout, []byte("hello\n"), time.Now())
	eventually(t, "the line is there", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		it := s.logs[Attempt{UID: "task-7", Attempt: 1}]
		return it != nil && len(it.text) > 0
	})
}

// TestShipper_PollsWithoutInotify simulates a user without inotify watches left.
func TestShipper_PollsWithoutInotify(t *testing.T) {
	dir, a := t.TempDir(), Attempt{UID: "task", Attempt: 1}
	s := newServer(t, 1, 0)
	ship, _ := s.run(Config{})
	ship.watch.mu.Lock()
	ship.watch.fd = -1
	ship.watch.mu.Unlock()
	ship.AddLog(a, dir)
	w := record.NewWriter(dir, record.Options{})
	for i := range 3 {
		w.Write(record.Stdout, []byte("hello\n"), time.Now())
		eventually(t, "the line is there", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.logs[a] != nil && bytes.Count(s.logs[a].text, []byte("hello")) == i+1
		})
	}
}

// A server of the previous version does not know the topic of runs.
func TestShipper_KeepsRunsFromEarlierServers(t *testing.T) {
	dir, output, runs := t.TempDir(), Attempt{UID: "task", Attempt: 1}, Attempt{UID: "task", Attempt: 1, OfRuns: true}
	s := newServer(t, 1, 0)
	ship, _ := s.run(Config{})
	ship.SetConnected(false)
	for _, a := range []Attempt{runs, output} {
		ship.AddLog(a, filepath.Join(dir, fmt.Sprint(a.OfRuns)))
		w := record.NewWriter(filepath.Join(dir, fmt.Sprint(a.OfRuns)), record.Options{})
		w.Write(record.Stdout, []byte("line\n"), time.Now())
		w.Close(time.Now())
		ship.EndLog(a)
	}
	ship.SetConnected(true) // to another server
	eventually(t, "the output is acknowledged", func() bool { return s.isDone(1) })
	s.mu.Lock()
	if s.logs[runs] != nil || !s.done[output] {
		t.Errorf("sent %v, done %v", s.logs, s.done)
	}
	s.mu.Unlock()
	ship.SetSendsRuns(true)
	eventually(t, "the runs are acknowledged", func() bool { return s.isDone(2) && ship.unsentCount() == 0 })
}
