package hostnode

import "testing"

func TestProbeCounter_Thresholds(t *testing.T) {
	for _, c := range []struct {
		name    string
		counter probeCounter
		results string // + and -
		want    string // y where the threshold is reached
	}{
		{"unset thresholds are 1", probeCounter{}, "+-+--", "yyyyy"},
		{"the first result may be a failure", probeCounter{successes: 1, failures: 3}, "---", "nny"},
		{"a success resets the failures", probeCounter{successes: 1, failures: 3}, "--+--+---", "nnynnynny"},
		{"a failure resets the successes", probeCounter{successes: 3, failures: 1}, "++-++-+++", "nnynnynny"},
		{"it stays reached", probeCounter{successes: 2, failures: 2}, "++++---+", "nyyynyyn"},
		{"negative thresholds are 1", probeCounter{successes: -1, failures: -1}, "+-", "yy"},
	} {
		got := ""
		for _, r := range c.results {
			reached := "n"
			if c.counter.countResult(r == '+') {
				reached = "y"
			}
			got += reached
		}
		if got != c.want {
			t.Errorf("%s: %s gives %s, want %s", c.name, c.results, got, c.want)
		}
	}
}
