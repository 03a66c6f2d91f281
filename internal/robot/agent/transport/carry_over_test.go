package transport

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/robot/hwclock"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// clockRobot is a robot whose clocks a test sets. Time passes only in the test.
type clockRobot struct {
	dir          string
	time         time.Duration // what really has passed
	bootedAt     time.Duration
	contact      time.Duration // when the last acknowledged heartbeat was sent
	system       time.Duration // how much the system clock is ahead
	hardware     time.Duration // how much the hardware clock is ahead
	hasHardware  bool
	journaled    time.Time // of the last record
	seq          uint64
	lastSeen     *LastSeen
	wasClockSet  bool
	wasClockLost bool // it did not run while the robot was off
}

var clockEpoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newClockRobot(t fataler, dir string) *clockRobot {
	r := &clockRobot{dir: dir, time: time.Hour, hasHardware: true}
	r.openLastSeen(t)
	r.lastSeen.AddReader()
	return r
}

// fataler is a test or a check of rapid.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func (r *clockRobot) openLastSeen(t fataler) {
	t.Helper()
	l, err := OpenLastSeen(r.dir, Clocks{
		SinceBoot: func() time.Duration { return r.time - r.bootedAt },
		Now:       r.systemTime,
		Hardware: func() (time.Time, error) {
			if !r.hasHardware {
				return time.Time{}, hwclock.ErrNone
			}
			return clockEpoch.Add(r.time + r.hardware).Truncate(time.Second), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.lastSeen = l
}

func (r *clockRobot) systemTime() time.Time { return clockEpoch.Add(r.time + r.system) }

// beat sends a heartbeat that is acknowledged later.
func (r *clockRobot) beat(delay time.Duration) {
	r.seq++
	sent := r.time
	r.lastSeen.RecordHeartbeat(r.seq)
	r.time += delay
	r.lastSeen.RecordAck(r.seq)
	r.contact = sent
}

// cutPower lets the robot be off for a time.
func (r *clockRobot) cutPower(t fataler, off, untilAgent time.Duration) {
	t.Helper()
	r.lastSeen.Close()
	path := filepath.Join(r.dir, "last-seen")
	if b, err := os.ReadFile(path); err == nil {
		if err := os.WriteFile(path, []byte(strings.Replace(string(b), proc.BootID(), "an-earlier-boot", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.time += off
	r.bootedAt = r.time
	r.system = r.hardware // as the kernel sets it
	r.time += untilAgent
}

func duration(t *rapid.T, least, most time.Duration, name string) time.Duration {
	return time.Duration(rapid.Int64Range(int64(least/time.Millisecond), int64(most/time.Millisecond)).Draw(t, name)) * time.Millisecond
}

// A task never starts after its self-stop deadline, whatever the clocks do before, during and after the time
// without power. Clocks that run and are right let it start.
func TestCarryOver_NeverStartsAfterTheDeadline(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newClockRobot(rt, t.TempDir())
		defer func() { r.lastSeen.Close() }()
		stopAfter := duration(rt, time.Second, 4*time.Hour, "stop after")
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			r.liveOneStep(rt)
		}
		if rapid.Bool().Draw(rt, "beat") {
			r.beat(duration(rt, 0, time.Second, "delay"))
		}
		r.cutPower(rt, duration(rt, 0, 3*time.Hour, "off"), duration(rt, 0, time.Minute, "until the agent"))
		r.upsetClocks(rt)
		r.openLastSeen(rt)
		if err := r.lastSeen.CarryOver(r.journaled); err != nil {
			if !r.wasClockSet && !r.wasClockLost && r.contact > 0 {
				rt.Fatalf("clocks that run are refused: %v", err)
			}
			return
		}
		for range 5 {
			isPast, silence := r.lastSeen.IsPastDeadline(stopAfter), r.time-r.contact
			if !isPast && (r.contact == 0 || silence >= stopAfter) {
				rt.Fatalf("starts %s after the last contact, with a deadline of %s", silence, stopAfter)
			}
			if isPast && !r.wasClockSet && !r.wasClockLost && silence+2*clockError < stopAfter {
				rt.Fatalf("does not start %s after the last contact, with a deadline of %s", silence, stopAfter)
			}
			r.time += duration(rt, 0, time.Hour, "wait")
			r.system += duration(rt, -time.Hour, time.Hour, "set the clock") // it counts no more
			r.lastSeen.followClock()
		}
	})
}

// liveOneStep lets something happen while the robot and its agent run.
func (r *clockRobot) liveOneStep(t *rapid.T) {
	switch rapid.IntRange(0, 3).Draw(t, "step") {
	case 0:
		r.beat(duration(t, 0, time.Minute, "delay"))
	case 1:
		r.time += duration(t, 0, time.Hour, "pass")
	case 2:
		r.journaled = r.systemTime()
	case 3:
		d := duration(t, -2*time.Hour, 2*time.Hour, "set")
		if d > -10*time.Second && d < 10*time.Second {
			d /= 10 // a small adjustment, as of a time service
		}
		r.system, r.wasClockSet = r.system+d, true
		if rapid.Bool().Draw(t, "set the hardware clock, too") {
			r.hardware = r.system
		}
		r.lastSeen.followClock()
	}
}

// upsetClocks lets the clocks be wrong after the boot, in ways that they themselves show.
func (r *clockRobot) upsetClocks(t *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(t, "clocks") {
	case 0: // an empty battery: both start in the past
		r.hardware = -26*365*24*time.Hour - r.time
		r.system, r.wasClockLost = r.hardware, true
	case 1: // the system clock goes on from a saved time
		r.hardware = -26*365*24*time.Hour - r.time
		r.system, r.wasClockLost = r.journaled.Sub(clockEpoch)-r.time, true
	case 2: // no hardware clock, and the system clock stands still
		r.hasHardware, r.wasClockLost = false, true
		r.system -= r.time - r.contact
	case 3: // the system clock jumps
		r.system, r.wasClockSet = r.system+duration(t, -2*time.Hour, 2*time.Hour, "jump"), true
	default:
	}
}

func TestCarryOver_Reasons(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *clockRobot)
		want   error
	}{
		"all is right":                      {func(*clockRobot) {}, nil},
		"no battery-backed clock":           {func(r *clockRobot) { r.lastSeen.clocks.Hardware = nil }, hwclock.ErrNone},
		"the hardware clock has gone":       {func(r *clockRobot) { r.hasHardware = false }, hwclock.ErrNone},
		"it starts before the last contact": {func(r *clockRobot) { r.hardware -= 6 * time.Hour; r.system = r.hardware }, errClockWentBack},
		"the journal is newer":              {func(r *clockRobot) { r.journaled = r.systemTime().Add(time.Second) }, errClockWentBack},
		"the file is of an earlier agent":   {func(r *clockRobot) { writeLine(r.dir, "an-earlier-boot 5\n") }, errContactUnknown},
		"the file is cut off":               {func(r *clockRobot) { writeLine(r.dir, "") }, errContactUnknown},
		"another agent has done it in this boot": {func(r *clockRobot) {
			writeLine(r.dir, proc.BootID()+" -5\n")
			r.journaled = r.systemTime().Add(time.Hour)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newClockRobot(t, t.TempDir())
			r.beat(0)
			r.cutPower(t, time.Hour, time.Second)
			r.openLastSeen(t)
			defer r.lastSeen.Close()
			c.change(r)
			if err := r.lastSeen.CarryOver(r.journaled); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
	t.Run("the clocks differ", func(t *testing.T) {
		r := newClockRobot(t, t.TempDir())
		r.beat(0)
		r.cutPower(t, time.Hour, time.Second)
		r.openLastSeen(t)
		defer r.lastSeen.Close()
		r.system += 2 * hwclock.MaxDifference
		if err := r.lastSeen.CarryOver(r.journaled); err == nil || !strings.Contains(err.Error(), "the hardware clock shows") {
			t.Errorf("%v, want that the clocks differ", err)
		}
	})
}

// A clock that is set while the robot runs neither shortens nor prolongs the time since the last contact.
func TestCarryOver_FollowsAClockThatIsSet(t *testing.T) {
	for _, set := range []time.Duration{-30 * time.Minute, 30 * time.Minute} {
		r := newClockRobot(t, t.TempDir())
		r.beat(0)
		r.hardware += set
		r.system += set
		r.lastSeen.followClock()
		r.cutPower(t, time.Hour, 0)
		r.openLastSeen(t)
		defer r.lastSeen.Close()
		if err := r.lastSeen.CarryOver(r.journaled); err != nil {
			t.Fatal(err)
		}
		r.requireSilence(t, time.Hour)
	}
}

// A hardware clock that stands still hides how long the robot was off, but not how long it is on.
func TestCarryOver_CountsTheTimeSinceBoot(t *testing.T) {
	r := newClockRobot(t, t.TempDir())
	r.beat(0)
	r.cutPower(t, 0, time.Hour)
	r.hardware -= time.Hour
	r.system = r.hardware
	r.openLastSeen(t)
	defer r.lastSeen.Close()
	if err := r.lastSeen.CarryOver(r.journaled); err != nil {
		t.Fatal(err)
	}
	r.requireSilence(t, time.Hour)
}

// requireSilence checks how long the robot has had no contact according to CarryOver: at least so long, and
// little longer.
func (r *clockRobot) requireSilence(t *testing.T, want time.Duration) {
	t.Helper()
	if !r.lastSeen.IsPastDeadline(want) || r.lastSeen.IsPastDeadline(want+2*clockError) {
		t.Errorf("past a deadline of %s: %v, of %s: %v", want, r.lastSeen.IsPastDeadline(want), want+2*clockError, r.lastSeen.IsPastDeadline(want+2*clockError))
	}
}

func writeLine(dir, line string) {
	_ = os.WriteFile(filepath.Join(dir, "last-seen"), []byte(line), 0o600)
}
