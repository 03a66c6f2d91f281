package shim

import (
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/robot/driver"
)

func TestJudgeFailure(t *testing.T) {
	terminated, jvm, exited, killed := driver.End{Code: 143, Signal: 15}, driver.End{Code: 143}, driver.End{Code: 5}, driver.End{Code: 137, Signal: 9}
	const left = time.Millisecond
	for name, c := range map[string]struct {
		end        driver.End
		isStopping bool
		left       time.Duration
		want       verdict
	}{
		"ended by SIGTERM":                      {terminated, false, left, undecided},
		"ended by SIGTERM, time over":           {terminated, false, 0, faultOfTask},
		"ended by SIGTERM, the robot stops":     {terminated, true, left, robotShutsDown},
		"ended by SIGTERM, it stops, time over": {terminated, true, -left, robotShutsDown},
		"code 143":                              {jvm, false, left, undecided},
		"code 143, time over":                   {jvm, false, 0, faultOfTask},
		"code 143, the robot stops":             {jvm, true, left, robotShutsDown},
		"another code":                          {exited, false, left, faultOfTask},
		"another code, the robot stops":         {exited, true, left, robotShutsDown},
		"SIGKILL":                               {killed, false, left, faultOfTask},
		"SIGKILL, the robot stops":              {killed, true, left, robotShutsDown},
		"out of memory, the robot stops":        {driver.End{Code: 137, Signal: 9, OOM: true}, true, left, faultOfTask},
		"code 0, the robot stops":               {driver.End{}, true, left, faultOfTask},
	} {
		if got := judgeFailure(c.end, c.isStopping, c.left); got != c.want {
			t.Errorf("%s: verdict %d, want %d", name, got, c.want)
		}
	}
}
