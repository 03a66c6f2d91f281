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

func (s Suite) enforcesTimeoutOfIndex(t *testing.T) {
	spec := s.overIndexes("[ $K8S4R_TASK_INDEX != 1 ] || { trap '' TERM; while :; do sleep 600; done; }", 1, 2)
	spec.Timeout, spec.KillTimeout = 3*time.Second, 50*time.Millisecond
	r := s.start(t, spec)
	r.end()
	r.requireEnds("1:137:9:Timeout", "2:0:0:")
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
