package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestParseVersionRuns_FindsRunsThatAreTwiceOrAtOnce(t *testing.T) {
	for _, c := range []struct {
		name, trace, problem string
	}{
		{"runs one after another", "start a good-1 u 1 1\nstart a good-1 u 1 2\nstart a bad-2 u 2 1\n", ""},
		{"a run starts twice", "start a good-1 u 1 1\nstart a good-1 u 1 1\n", "it has started before: start a good-1 u 1 1"},
		{"two runs at once", "start a good-1 u 1 1\noverlap a bad-2 v 1 1\nstart a bad-2 v 1 1\n", "another run of the robot goes on: overlap a bad-2 v 1 1"},
	} {
		ran, err := parseVersionRuns([]byte(c.trace))
		if got := strings.Join(ran.problems, "; "); err != nil || got != c.problem {
			t.Errorf("%s: problems %q, %v", c.name, got, err)
		}
	}
	if _, err := parseVersionRuns([]byte("start a good-1\n")); err == nil {
		t.Error("a line without a run is accepted")
	}
}

func TestFindBeyondFirstWave(t *testing.T) {
	newEnded := func(version string, bounds ...int64) finishedRollout {
		r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}}
		for _, bound := range bounds {
			r.Spec.Waves = append(r.Spec.Waves, v1alpha1.RolloutWave{})
			r.Status.Waves = append(r.Status.Waves, v1alpha1.RolloutWaveStatus{Bound: bound})
		}
		return finishedRollout{r, version}
	}
	ran, err := parseVersionRuns([]byte("start a bad-2 u 1 1\nstart a good-1 u 2 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	const all = 1 << 32
	for _, c := range []struct {
		name     string
		ended    finishedRollout
		problems int
	}{
		{"in the first wave", newEnded("bad-2", all), 0},
		{"in the second wave", newEnded("bad-2", 0, all), 1},
		{"in no wave that has started", newEnded("bad-2", 0), 1},
		{"a good version", newEnded("good-1", 0, all), 0},
	} {
		if got := findBeyondFirstWave(ran, []finishedRollout{c.ended}); len(got) != c.problems {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
