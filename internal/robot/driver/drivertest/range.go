package drivertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	tasklog "k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// overIndexes returns the spec of a range that runs a script.
func (s Suite) overIndexes(script string, indexes ...int32) shim.Spec {
	return shim.Spec{
		Config: s.Shell(script), Range: &shim.Range{Indexes: indexes, Items: make([]string, len(indexes))},
		Env: map[string]string{wire.EnvTaskIndex: shim.IndexMark, wire.EnvTaskItem: "item:" + shim.ItemMark}, KillTimeout: time.Minute,
	}
}

func (s Suite) runsRange(t *testing.T) {
	spec := s.overIndexes(`echo "$K8S4R_TASK_INDEX $K8S4R_TASK_ITEM" | tee -a ran; setsid sleep 600 & case $K8S4R_TASK_INDEX in 4) exit 3;; 7) kill -9 ${LEADER:-$$}; sleep 600;; esac`, 3, 4, 7, 8)
	spec.Range.Items = []string{"a", "b c", "", "d"}
	r := s.start(t, spec)
	if e := r.end(); e.Code != 0 || e.StopReason != "" || e.Error != "" {
		t.Errorf("exit = %+v, want 0", e)
	}
	const want = "3 item:a\n4 item:b c\n7 item:\n8 item:d\n"
	if ran, out := r.read("ran"), r.output(tasklog.Stdout); ran != want || out != want {
		t.Errorf("ran %q with output %q, want %q", ran, out, want)
	}
	r.requireEnds("3:0:0:", "4:3:0:", "7:137:9:", "8:0:0:")
}

// requireEnds checks how the indexes of a range have ended: INDEX:CODE:SIGNAL:REASON.
func (r started) requireEnds(want ...string) {
	r.t.Helper()
	var got []string
	for _, e := range r.state.Indexes.Ends {
		got = append(got, fmt.Sprintf("%d:%d:%d:%s", e.Index, e.Code, e.Signal, e.Reason))
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("indexes ended as %q, want %q", got, want)
	}
}

// enforcesTimeoutOfIndex tries longer timeouts until an index can start and end before it: on a busy
// machine the start of a JVM alone takes seconds.
func (s Suite) enforcesTimeoutOfIndex(t *testing.T) {
	for timeout := time.Second; ; timeout *= 2 {
		spec := s.overIndexes("[ $K8S4R_TASK_INDEX != 1 ] || { trap '' TERM; echo ready > ready; while :; do sleep 600; done; }", 1, 2)
		spec.Timeout, spec.KillTimeout = timeout, 50*time.Millisecond
		r := s.start(t, spec)
		r.end()
		if timeout < testTimeout/4 && r.wasTooSlowFor(timeout) {
			continue
		}
		r.requireEnds("1:137:9:Timeout", "2:0:0:")
		if ends := r.state.Indexes.Ends; len(ends) > 0 && ends[0].Duration < timeout {
			t.Errorf("index 1 ended after %v, before its timeout of %v", ends[0].Duration, timeout)
		}
		return
	}
}

// wasTooSlowFor reports whether index 1 was not ready at its timeout, or index 2 took as long as that.
func (r started) wasTooSlowFor(timeout time.Duration) bool {
	ends := r.state.Indexes.Ends
	return r.read("ready") == "" || len(ends) == 2 && ends[1].Duration >= timeout
}

func (s Suite) sweepsRangeAfterShimKill(t *testing.T) {
	r := s.start(t, s.overIndexes("[ $K8S4R_TASK_INDEX != 1 ] || { echo ready > ready; sleep 600; }", 0, 1, 2))
	r.await("index 1 to run", func() bool { return r.read("ready") != "" })
	s.sweepAfterShimKill(t, r)
	state, err := r.shims.ReadState(r.shim)
	if err != nil {
		t.Fatal(err)
	}
	*r.state = state
	r.requireEnds("0:0:0:")
}
