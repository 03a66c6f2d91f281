package restart

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNewPolicy_OnReboot(t *testing.T) {
	for _, c := range []struct {
		taskType, value string
		want            OnReboot
	}{
		{"", "", RestartIfLeft},
		{"batch", "", RestartIfLeft},
		{typeSysbatch, "", RestartIfLeft},
		{typeService, "", AlwaysRestart},
		{typeSystem, "", AlwaysRestart},
		{"batch", "restart", AlwaysRestart},
		{typeSystem, "restart", AlwaysRestart},
		{"batch", "report", NeverRestart},
		{typeService, "report", NeverRestart},
		{"batch", "a value of a later version", RestartIfLeft},
		{typeService, "a value of a later version", AlwaysRestart},
	} {
		if got := NewPolicy(c.taskType, Fields{OnReboot: c.value}).OnReboot; got != c.want {
			t.Errorf("type %q, onReboot %q: %d, want %d", c.taskType, c.value, got, c.want)
		}
	}
	for taskType, want := range map[string]OnReboot{"": RestartIfLeft, typeService: AlwaysRestart, typeSystem: AlwaysRestart, typeSysbatch: RestartIfLeft} {
		if got := DefaultPolicy(taskType).OnReboot; got != want {
			t.Errorf("type %q without a policy: %d, want %d", taskType, got, want)
		}
	}
}

func TestAfterReboot(t *testing.T) {
	const s, m = time.Second, time.Minute
	reported := Decision{IsExhausted: true}
	atOnce := func(c Count) Decision { return Decision{At: noon, Count: c} }
	for _, c := range []struct {
		name   string
		policy Policy
		count  Count
		want   Decision
	}{
		{"the zero policy reports", Policy{}, Count{}, reported},
		{"restarts that are left do not wait", Policy{Attempts: 2, Delay: m}, Count{}, atOnce(Count{1, noon})},
		{"and count", Policy{Attempts: 2, Delay: m}, Count{1, after(-m)}, atOnce(Count{2, after(-m)})},
		{"used-up restarts are reported", Policy{Attempts: 2, Delay: m}, Count{2, noon}, reported},
		{"also if others follow in the next interval", Policy{Attempts: 2, Interval: m, WaitsForInterval: true}, Count{2, after(-s)}, reported},
		{"which has begun", Policy{Attempts: 2, Interval: m}, Count{2, after(-m)}, atOnce(Count{1, noon})},
		{"endless restarts are left", Policy{Attempts: 1, Delay: m, WaitsForInterval: true}, Count{9, after(-m)}, atOnce(Count{10, after(-m)})},

		{"a task that always restarts does so without a policy", Policy{OnReboot: AlwaysRestart}, Count{}, atOnce(Count{})},
		{"it does not wait while restarts are left", Policy{Attempts: 2, Delay: m, OnReboot: AlwaysRestart}, Count{1, after(-m)}, atOnce(Count{2, after(-m)})},
		{"then it waits for the next interval", Policy{Attempts: 2, Interval: m, WaitsForInterval: true, OnReboot: AlwaysRestart}, Count{2, after(-20 * s)},
			Decision{At: after(40 * s), Count: Count{1, after(40 * s)}, WaitsForInterval: true}},
		{"or for contact", Policy{Attempts: 2, Interval: m, OnReboot: AlwaysRestart}, Count{2, after(-20 * s)},
			Decision{At: after(40 * s), Count: Count{1, after(40 * s)}, WaitsForInterval: true, EndsWithContact: true}},
		{"for longer each time", Policy{Attempts: 2, Delay: 10 * s, OnReboot: AlwaysRestart}, Count{3, noon},
			Decision{At: after(40 * s), Count: Count{4, noon}, EndsWithContact: true}},

		{"a task that never restarts is reported", Policy{Attempts: 2, OnReboot: NeverRestart}, Count{}, reported},
		{"also if its restarts are endless", Policy{Attempts: 1, WaitsForInterval: true, OnReboot: NeverRestart}, Count{}, reported},
	} {
		if got := c.policy.AfterReboot(c.count, noon); got != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, got, c.want)
		}
	}
}

// A task whose robot reboots again and again has the restarts of its policy, and no others, unless its
// policy has none at all.
func TestAfterReboot_KeepsToPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		p.Attempts = rapid.Int32Range(0, 5).Draw(t, "attempts or none")
		p.OnReboot = OnReboot(rapid.IntRange(int(RestartIfLeft), int(NeverRestart)).Draw(t, "on reboot"))
		var c Count
		booted := noon
		for range 30 {
			d, next := p.AfterReboot(c, booted), p.Next(c, booted, false)
			if d.IsExhausted && p.OnReboot == AlwaysRestart || !d.IsExhausted && p.OnReboot == NeverRestart {
				t.Fatalf("%+v: %+v", p, d)
			}
			if d.IsExhausted {
				if p.OnReboot == RestartIfLeft && p.Attempts > 0 && c.Restarts < p.Attempts {
					t.Fatalf("%+v gives up with %+v", p, c)
				}
				return
			}
			if p.Attempts > 0 && d.Count != next.Count || p.Attempts == 0 && d.Count != c {
				t.Fatalf("%+v counts %+v after a reboot, and %+v after a failure", p, d.Count, next.Count)
			}
			if d.EndsWithContact != next.EndsWithContact || d.WaitsForInterval != next.WaitsForInterval {
				t.Fatalf("%+v: %+v after a reboot, %+v after a failure", p, d, next)
			}
			isUsedUp := d.WaitsForInterval || d.EndsWithContact
			if wait := d.At.Sub(booted); isUsedUp && !d.At.Equal(next.At) || !isUsedUp && wait != 0 {
				t.Fatalf("%+v waits %s with %+v", p, wait, c)
			}
			c, booted = d.Count, d.At.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "run"))*time.Second)
		}
	})
}
