package diagnose

import (
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/robot/hwclock"
)

func TestJudgeHardwareClock(t *testing.T) {
	now := time.Unix(1700000000, 0)
	for name, c := range map[string]struct {
		hardware time.Time
		err      error
		want     Level
		message  string
	}{
		"it agrees":     {now.Add(-time.Second), nil, OK, "agrees"},
		"it is empty":   {time.Unix(0, 0), nil, Warn, "the hardware clock shows 1970-01-01 00:00:00 UTC"},
		"there is none": {time.Time{}, hwclock.ErrNone, Warn, "has no hardware clock"},
	} {
		t.Run(name, func(t *testing.T) {
			f := judgeHardwareClock(now, c.hardware, c.err)
			if f.Level != c.want || !strings.Contains(f.Message, c.message) || (f.Remedy == "") != (c.want == OK) {
				t.Errorf("%+v", f)
			}
		})
	}
	if found := checkDeclaredClock(Subject{}); len(found) > 0 {
		t.Errorf("%+v, want nothing about a robot without such a clock", found)
	}
	if found := checkDeclaredClock(Subject{BatteryBackedClock: true}); len(found) != 1 {
		t.Errorf("%+v, want one finding", found)
	}
}
