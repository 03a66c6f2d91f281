package manager

import (
	"bytes"
	"strings"
	"testing"
)

func TestMainRefusesFlagsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		wantStatus     int
	}{
		{"an unknown controller lists the known ones", "--controllers=*,-jbo", `no controller "jbo"; there are job, taskgroup, task, robot`, 2},
		{"an unknown way to approve", "--approve-robots=never", "--approve-robots=never: must be auto or manual", 2},
		{"no time before a robot is offline", "--offline-after=0s", "--offline-after=0s: must be more than nothing", 2},
		{"no workers", "--concurrency=0", "--concurrency=0: must be 1 or more", 2},
		{"an unknown flag", "--frobnicate", "unknown flag: --frobnicate", 2},
		{"a kubeconfig that is not there", "--kubeconfig=/does/not/exist", "kubeconfig", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if got := Main([]string{c.in}, &out, &errs); got != c.wantStatus || !strings.Contains(errs.String(), c.want) {
				t.Errorf("status %d, said %s", got, errs.String())
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if got := Main([]string{"--help"}, &out, &errs); got != 0 || !strings.Contains(out.String(), "--offline-after") {
		t.Errorf("status %d, said %s%s", got, out.String(), errs.String())
	}
}

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		name string
		in   selection
		want string
	}{
		{"the star is all", selection{"*"}, "job taskgroup task robot"},
		{"all but one", selection{"*", "-task"}, "job taskgroup robot"},
		{"only one", selection{"robot"}, "robot"},
		{"none", selection{"-robot"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, n := range Names {
				if c.in.runs(n) {
					got = append(got, n)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("runs %v", got)
			}
		})
	}
}
