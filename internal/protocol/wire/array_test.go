package wire

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

func TestArrayReport_WithinLimits(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want ArrayReport
	}{
		{"nothing", ArrayReport{}, ArrayReport{}},
		{"what an agent reports stays",
			ArrayReport{Succeeded: "0-57,60", Failed: "58", Failures: []IndexFailure{{Index: 58, ExitCode: 3}}, Durations: []int32{0, 59}},
			ArrayReport{Succeeded: "0-57,60", Failed: "58", Failures: []IndexFailure{{Index: 58, ExitCode: 3}}, Durations: []int32{0, 59}}},
		{"a set that does not parse is empty", ArrayReport{Succeeded: "3,1", Failed: "7"}, ArrayReport{Failed: "7"}},
		{"so is one that is too long", ArrayReport{Succeeded: "1," + strings.Repeat("0", maxIndexText) + "2"}, ArrayReport{}},
		{"an index has one end", ArrayReport{Succeeded: "1-3", Failed: "3-4"}, ArrayReport{Succeeded: "1-3", Failed: "4"}},
		{"only failed indexes are described, each once",
			ArrayReport{Succeeded: "1", Failed: "2", Failures: []IndexFailure{{Index: 1}, {Index: 2, ExitCode: 1}, {Index: 2, ExitCode: 9}, {Index: 3}}},
			ArrayReport{Succeeded: "1", Failed: "2", Failures: []IndexFailure{{Index: 2, ExitCode: 1}}}},
		{"counts are bounded", ArrayReport{Durations: []int32{-1, math.MaxInt32, 5}}, ArrayReport{Durations: []int32{0, 1000, 5}}},
	} {
		if got := c.got.WithinLimits(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestArrayReport_WithinLimitsBoundsLists(t *testing.T) {
	r := ArrayReport{Failed: "0-99", Durations: make([]int32, 100)}
	for i := range int32(100) {
		r.Failures = append(r.Failures, IndexFailure{Index: i, Reason: strings.Repeat("x", 1000)})
	}
	got := r.WithinLimits()
	if len(got.Failures) != MaxIndexFailures || len(got.Durations) != MaxDurationCounts || len(got.Failures[0].Reason) != maxToken {
		t.Errorf("%d failures with reasons of %d bytes, %d durations", len(got.Failures), len(got.Failures[0].Reason), len(got.Durations))
	}
}

// TestStatus_WithinLimitsOfAnyArray checks reports that no agent sends.
func TestStatus_WithinLimitsOfAnyArray(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9]{1,7}(-[0-9]{1,7})?(,[0-9]{1,7}){0,4}`))
	rapid.Check(t, func(t *rapid.T) {
		got := Status{State: ReportRunning, Array: &ArrayReport{
			Succeeded: text.Draw(t, "succeeded"), Failed: text.Draw(t, "failed"), Durations: rapid.SliceOf(rapid.Int32()).Draw(t, "durations"),
		}}.WithinLimits().Array
		succeeded, err := indexset.Parse(got.Succeeded)
		failed, err2 := indexset.Parse(got.Failed)
		if err != nil || err2 != nil || !succeeded.Intersect(failed).IsEmpty() {
			t.Fatal(fmt.Sprintf("%+v: %v, %v", got, err, err2))
		}
		if again := got.WithinLimits(); !reflect.DeepEqual(again, *got) {
			t.Fatalf("%+v becomes %+v", *got, again)
		}
	})
}
