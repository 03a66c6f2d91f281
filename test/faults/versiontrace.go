package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s4r.io/k8s4r/internal/testkit"
)

// versionTrace is a directory in which the runs of one Job's tasks record their version.
type versionTrace struct {
	t   testing.TB
	dir string
}

func newVersionTrace(t testing.TB) *versionTrace { return &versionTrace{t, t.TempDir()} }

func (l *versionTrace) path() string { return filepath.Join(l.dir, "trace") }

// versionScript is what a run does: it holds the lock of its robot, records its start, and runs until it is
// stopped. A bad version fails.
const versionScript = `
run="$K8S4R_ROBOT $VERSION $K8S4R_TASK_UID $K8S4R_ATTEMPT $K8S4R_RUN"
exec 9>>%[1]s/lock-$K8S4R_ROBOT
flock -n 9 || echo "overlap $run" >> %[1]s/trace
echo "start $run" >> %[1]s/trace
case $VERSION in bad-*) exit 1;; esac
exec sleep 3600`

func (l *versionTrace) script() string { return fmt.Sprintf(versionScript, l.dir) }

// versionRuns are the runs that have recorded themselves.
type versionRuns struct {
	starts, badStarts int
	last              map[string]string          // version of the last start, by robot
	byVersion         map[string]map[string]bool // robots that have started a version
	problems          []string                   // runs that started twice, or while another one ran on their robot
}

// versionRun identifies a run.
type versionRun struct {
	uid     string
	attempt int32
	number  int64
}

// read returns the runs so far.
func (l *versionTrace) read() versionRuns {
	text, _ := os.ReadFile(l.path()) // there is none until something has run
	ran, err := parseVersionRuns(text[:bytes.LastIndexByte(text, '\n')+1])
	if err != nil {
		l.t.Error(err)
	}
	return ran
}

// parseVersionRuns returns the runs in the lines of a trace.
func parseVersionRuns(text []byte) (versionRuns, error) {
	ran, seen := versionRuns{last: map[string]string{}, byVersion: map[string]map[string]bool{}}, map[versionRun]bool{}
	for _, line := range testkit.SplitLines(string(text)) {
		var what, robot, version string
		var r versionRun
		if n, err := fmt.Sscan(line, &what, &robot, &version, &r.uid, &r.attempt, &r.number); n != 6 {
			return ran, fmt.Errorf("line %q: %w", line, err)
		}
		if what != "start" {
			ran.problems = append(ran.problems, "another run of the robot goes on: "+line)
			continue
		}
		if seen[r] {
			ran.problems = append(ran.problems, "it has started before: "+line)
		}
		seen[r] = true
		ran.addStart(robot, version)
	}
	return ran, nil
}

func (ran *versionRuns) addStart(robot, version string) {
	ran.starts++
	if isBad(version) {
		ran.badStarts++
	}
	ran.last[robot] = version
	if ran.byVersion[version] == nil {
		ran.byVersion[version] = map[string]bool{}
	}
	ran.byVersion[version][robot] = true
}
