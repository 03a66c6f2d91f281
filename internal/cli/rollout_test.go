package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// waveNames are the waves of rolloutOf.
var waveNames = []string{"canary", "hall", "fleet"}

// rolloutOf returns a Rollout in the phase, whose first wave is finished and whose second one runs.
func rolloutOf(name, job, phase string, changes ...func(*robotv1.Rollout)) *robotv1.Rollout {
	ten, all := int32(10), int32(100)
	r := &robotv1.Rollout{ObjectMeta: metaOf(name)}
	r.Spec = robotv1.RolloutSpec{
		Target: robotv1.RolloutTarget{Kind: "Job", Name: job},
		Waves: []robotv1.RolloutWave{
			{Name: waveNames[0], Percent: &ten},
			{Name: waveNames[1], RobotSelector: map[string]string{"site": "hall", "arm": ""}},
			{Name: waveNames[2], Percent: &all, Approval: "manual"},
		},
	}
	r.Status = robotv1.RolloutStatus{Phase: phase, Revision: 5, FromRevision: 2, StartedAt: at(-time.Minute), CurrentWave: waveNames[1],
		Counts: robotv1.RolloutCounts{Total: 30, Waiting: 17, OutOfContact: 1, OutsideWindow: 2, Held: 1, Updating: 2, Updated: 5, Failed: 2},
		Waves: []robotv1.RolloutWaveStatus{
			{Name: waveNames[0], FinishedAt: at(-30 * time.Second), RolloutCounts: robotv1.RolloutCounts{Total: 3, Updated: 3}},
			{Name: waveNames[1], Retries: 1, RolloutCounts: robotv1.RolloutCounts{Total: 10, OutOfContact: 1, OutsideWindow: 2, Held: 1, Updating: 2, Updated: 2, Failed: 2}},
		}}
	for _, change := range changes {
		change(r)
	}
	return r
}

func wants(state string) func(*robotv1.Rollout) {
	return func(r *robotv1.Rollout) { r.Spec.DesiredState = state }
}

func failedUnits(r *robotv1.Rollout) {
	r.Status.FailedUnits = []robotv1.RolloutFailure{
		{Unit: "rover-7", Wave: "hall", Reason: "DeadlineExceeded", Message: "not healthy after 10m"},
		{Unit: "rover-9", Wave: "hall", Task: "demo-inspect-9-main", Reason: "TaskFailed", Message: "exit code 3\x1b[2J"},
	}
}

func ended(r *robotv1.Rollout) { r.Status.CompletedAt = at(0) }

// rollouts returns Rollouts in several phases. Those of demo are old, which is complete, and newer.
func rollouts(t *testing.T) []client.Object {
	older := func(r *robotv1.Rollout) { r.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour)) }
	fresh := &robotv1.Rollout{ObjectMeta: metaOf("fresh")}
	fresh.Spec.Target.Name, fresh.Spec.Waves = "other", rolloutOf("x", "x", "").Spec.Waves
	return append(revised(t),
		rolloutOf("old", "demo", robotv1.RolloutComplete, older, ended), rolloutOf("newer", "demo", robotv1.RolloutProgressing, failedUnits),
		rolloutOf("held", "other", robotv1.RolloutPaused, older, wants("paused")),
		rolloutOf("bad", "other", robotv1.RolloutAborted, older, ended, failedUnits, func(r *robotv1.Rollout) { r.Status.Message = "2 of 7 finished units have failed" }),
		rolloutOf("waits", "other", robotv1.RolloutWaitingForApproval, older),
		rolloutOf("back", "other", robotv1.RolloutReverted, older), rolloutOf("past", "other", robotv1.RolloutSuperseded, older), fresh,
		typedJob("web", robotv1.JobTypeService))
}

// typedJob returns a Job of the type whose changes wait for a Rollout.
func typedJob(name, jobType string) *robotv1.Job {
	return surveyJob(name, "1", func(j *robotv1.Job) { j.Spec.Type = jobType })
}

func TestRollout_PrintsResult(t *testing.T) {
	for _, row := range []struct {
		name, golden string
		args         []string
	}{
		{"status shows waves and failed units", "rollout-status", []string{"rollout", "status", "newer"}},
		{"status of the newest rollout of a job", "rollout-status-job", []string{"rollout", "status", "job/demo"}},
		{"status before the first wave", "rollout-status-pending", []string{"rollout", "status", "fresh"}},
		{"status of an aborted rollout has the next commands", "rollout-status-aborted", []string{"rollout", "status", "bad"}},
		{"status of a waiting rollout has the approval", "rollout-status-waiting", []string{"rollout", "status", "rro/wai"}},
		{"status of a job without a rollout", "rollout-status-none", []string{"rollout", "status", "job/lone"}},
		{"list", "rollout-list", []string{"rollout", "list"}},
		{"get by the short name", "rollout-get", []string{"get", "rro", "bad", "-o", "wide"}},
		{"pause", "rollout-pause", []string{"rollout", "pause", "newer", "held", "job/demo"}},
		{"resume is refused after an abort", "rollout-resume", []string{"rollout", "resume", "held", "newer", "bad"}},
		{"abort", "rollout-abort", []string{"rollout", "abort", "newer", "fresh", "bad", "back"}},
		{"revert is refused after completion", "rollout-revert", []string{"rollout", "revert", "waits", "bad", "old", "past"}},
		{"approve", "rollout-approve", []string{"rollout", "approve", "waits", "fleet", "fleet"}},
		{"approve of an unknown wave lists the waves", "rollout-approve-unknown", []string{"rollout", "approve", "job/demo", "flee"}},
		{"approve of a wave that needs none", "rollout-approve-needless", []string{"rollout", "approve", "waits", "canary"}},
		{"approve after the end", "rollout-approve-ended", []string{"rollout", "approve", "old", "fleet"}},
		{"start", "rollout-start", []string{"rollout", "start", "demo"}},
		{"start adds the last wave", "rollout-start-waves", []string{"rollout", "start", "demo", "--wave", "1,name=canary,healthy-for=10m", "--wave", "10%,pause=1h,abort-at=20%:5",
			"--wave", "label=site:hall,label=example.com/arm:left,approval", "--max-unavailable", "5%", "--abort-at", "10%", "--on-abort", "revert", "--deadline", "5m", "--retry", "2",
			"--max-waiting", "1m30s", "--rate", "60", "--no-follow", "--ignore-windows", "--revision", "2", "--name", "r5", "--dry-run", "-o", "yaml"}},
		{"start asks the server for a dry run", "rollout-start-server", []string{"rollout", "start", "demo", "--dry-run=server", "-o", "name"}},
		{"start of an unknown revision", "rollout-start-unknown", []string{"rollout", "start", "demo", "--revision", "3"}},
		{"start of a job that changes at once", "rollout-start-immediate", []string{"rollout", "start", "quick"}},
		{"start of a batch job", "rollout-start-batch", []string{"rollout", "start", "plain"}},
		{"start of a service by label", "rollout-start-service", []string{"rollout", "start", "web", "--wave", "label=site:hall"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, rollouts(t)...)
			golden.Equal(t, row.golden, b.transcript(b.run(row.args...)))
		})
	}
}

func TestRolloutVerbs_PatchSpec(t *testing.T) {
	for _, row := range []struct {
		args    []string
		rollout string
		want    string
	}{
		{[]string{"rollout", "pause", "job/demo"}, "newer", "paused"},
		{[]string{"rollout", "resume", "held"}, "held", "running"},
		{[]string{"rollout", "abort", "newer"}, "newer", "aborted"},
		{[]string{"rollout", "revert", "bad"}, "bad", "reverted"},
		{[]string{"rollout", "resume", "bad"}, "bad", ""},
		{[]string{"rollout", "approve", "waits", "fleet"}, "waits", "fleet"},
	} {
		b := newBench(t, rollouts(t)...)
		b.run(row.args...)
		r := read(b, &robotv1.Rollout{}, row.rollout)
		if got := r.Spec.DesiredState + strings.Join(r.Spec.ApprovedWaves, ","); got != row.want {
			t.Errorf("%v: %q, want %q", row.args, got, row.want)
		}
	}
}

func TestRolloutStatus_WatchExitsWithTheOutcome(t *testing.T) {
	for phase, want := range map[string]int{
		robotv1.RolloutComplete: 0, robotv1.RolloutAborted: 1, robotv1.RolloutReverted: 1, robotv1.RolloutSuperseded: 1,
	} {
		t.Run(phase, func(t *testing.T) {
			b := newBench(t, rolloutOf("newer", "demo", robotv1.RolloutProgressing))
			done := b.start("rollout", "status", "newer", "--watch")
			b.awaitWatches(1)
			change(b, &robotv1.Rollout{}, "newer", func(r *robotv1.Rollout) {
				r.Status.Waves[1].Updated, r.Status.Waves[1].Updating = 4, 0
				r.Status.Phase = phase
			})
			golden.Equal(t, "rollout-watch-"+strings.ToLower(phase), b.transcript(b.awaitExit(done)))
			if status := exitOf(b); status != want {
				t.Errorf("exit %d, want %d", status, want)
			}
		})
	}
}

// exitOf returns the exit status for the watch of the Rollout as it is now.
func exitOf(b *bench) int { return b.run("rollout", "status", "newer", "--watch") }

func TestRolloutStatus_WatchContinuesUntilARevertHasEnded(t *testing.T) {
	b := newBench(t, rolloutOf("newer", "demo", robotv1.RolloutAborted, wants("reverted")))
	done := b.start("rollout", "status", "newer", "-w")
	b.awaitWatches(1)
	change(b, &robotv1.Rollout{}, "newer", func(r *robotv1.Rollout) { r.Status.Phase = robotv1.RolloutReverted })
	if status := b.awaitExit(done); status != ExitFailed || !strings.Contains(b.out.String(), "is Reverted") {
		t.Errorf("exit %d: %s", status, b.out.String())
	}
}

func TestRolloutStart_WaitsUntilItIsComplete(t *testing.T) {
	b := newBench(t, rollouts(t)...)
	done := b.start("rollout", "start", "demo", "--name", "r5", "--wait")
	b.awaitWatches(1)
	change(b, &robotv1.Rollout{}, "r5", func(r *robotv1.Rollout) { r.Status.Phase = robotv1.RolloutComplete })
	if status := b.awaitExit(done); status != 0 {
		t.Errorf("exit %d: %s", status, b.err.String())
	}
}

func TestRolloutStatus_WatchStops(t *testing.T) {
	b := newBench(t, rolloutOf("newer", "demo", robotv1.RolloutProgressing))
	done := b.start("rollout", "status", "newer", "--watch")
	b.awaitWatches(1)
	close(b.interrupt)
	golden.Equal(t, "rollout-watch-interrupt", b.transcript(b.awaitExit(done)))
}

func TestRolloutView_FitsTheTerminal(t *testing.T) {
	v := rolloutView{rolloutOf("newer", "demo", robotv1.RolloutProgressing), noon}
	if lines := fitLines(v.lines(), 4); len(lines) != 4 || !strings.HasPrefix(lines[3][0].text, "… 4 lines more") {
		t.Errorf("%v", lines)
	}
	if lines := fitLines(v.lines(), 40); len(lines) != 7 || lines[0][0].color != cyan {
		t.Errorf("%v", lines)
	}
}

func TestRolloutStart_RejectsInvalidInput(t *testing.T) {
	many := []string{"rollout", "start", "demo"}
	for range maxWaves {
		many = append(many, "--wave", "label=a:b")
	}
	start := func(args ...string) []string { return append([]string{"rollout", "start", "demo"}, args...) }
	for want, args := range map[string][]string{
		"--wave=0%: \"0%\": must be a wave such as 10%":         start("--wave", "0%"),
		"--wave=101%: \"101%\": must be a wave":                 start("--wave", "101%"),
		"--wave=1000001: \"1000001\": must be a wave":           start("--wave", "1000001"),
		"--wave=5,6: \"6\": the wave has a size already":        start("--wave", "5,6"),
		"--wave=pause=1h: selects no units":                     start("--wave", "pause=1h"),
		"--wave=5,label=a:b: a wave has either":                 start("--wave", "5,label=a:b"),
		"--wave=label=site: label=site: must be KEY:VALUE":      start("--wave", "label=site"),
		"the label a is given twice":                            start("--wave", "label=a:b,label=a:c"),
		"--wave=5,color=red: unknown option color":              start("--wave", "5,color=red"),
		"--wave=5,name=A: name=A: must be lower case":           start("--wave", "5,name=A"),
		"--wave=5,pause=1: pause=1: must be a duration":         start("--wave", "5,pause=1"),
		"--wave=5,pause=-1s: pause=-1s: must be a duration":     start("--wave", "5,pause=-1s"),
		"--wave=5,pause=1000000h: pause=1000000h":               start("--wave", "5,pause=1000000h"),
		"abort-at=5: must be a percentage":                      start("--wave", "5,abort-at=5"),
		"abort-at=5%:0: must be a percentage":                   start("--wave", "5,abort-at=5%:0"),
		"abort-at=5%:1000001: must be a percentage":             start("--wave", "5,abort-at=5%:1000001"),
		"--wave=10%: must be above the 20% of wave wave-1":      start("--wave", "20%", "--wave", "10%"),
		"--wave=5: must be above the 5 of wave wave-1":          start("--wave", "5", "--wave", "5"),
		"--wave=5: wave wave-1 has 100% already":                start("--wave", "100%", "--wave", "5"),
		"another wave has the name wave-2":                      start("--wave", "5,name=wave-2", "--wave", "6"),
		"--wave: at most 32 waves":                              many,
		"--max-unavailable=0: must be a number from 1":          start("--max-unavailable", "0"),
		"--abort-at=x: must be a percentage":                    start("--abort-at", "x"),
		"--on-abort=stop: must be pause or revert":              start("--on-abort", "stop"),
		"--deadline=soon: must be a duration":                   start("--deadline", "soon"),
		"--max-waiting=soon: must be a duration":                start("--max-waiting", "soon"),
		"--retry=11: must be from 0 to 10":                      start("--retry", "11"),
		"--rate=1000001: must be from 0":                        start("--rate", "1000001"),
		"--revision=-1: must be from 0":                         start("--revision", "-1"),
		"--name=A_b: must be lower case":                        start("--name", "A_b"),
		"--wait: cannot be combined with --dry-run":             start("--wait", "--dry-run"),
		"--wait: cannot be combined with --output=yaml":         start("--wait", "-o", "yaml"),
		"--wait-timeout=1s: requires --wait":                    start("--wait-timeout", "1s"),
		"--dry-run=maybe: must be client or server":             start("--dry-run=maybe"),
		"does not name a job":                                   {"rollout", "start", "robot/r1"},
		"names neither a rollout nor, as job/NAME":              {"rollout", "pause", "robot/r1"},
		"--wait-timeout=1s: must not be negative, and requires": {"rollout", "status", "r5", "--wait-timeout", "1s"},
		"approve: requires at least 2 arg(s)":                   {"rollout", "approve", "r5"},
		"revision \"0\": must be a number from 1":               {"job", "diff", "demo", "0"},
		"revision \"9007199254740992\": must be":                {"job", "diff", "demo", "9007199254740992"},
		"--to-revision=9007199254740992: must be":               {"job", "rollback", "demo", "--to-revision", "9007199254740992"},
		"--to-revision=-1: must be":                             {"job", "rollback", "demo", "--to-revision", "-1"},
		"--output=name: must be json, yaml":                     {"job", "history", "demo", "-o", "name"},
		"unknown command \"paus\"; did you mean pause":          {"rollout", "paus"},
	} {
		t.Run(want, func(t *testing.T) {
			b := newBench(t)
			if status := b.run(args...); status != ExitUsage || !strings.Contains(b.err.String(), want) {
				t.Errorf("%v: exit %d, stderr lacks %q:\n%s", args, status, want, b.err.String())
			}
		})
	}
}

func TestGetAll_WorksOnAClusterWithoutRollouts(t *testing.T) {
	b := newBench(t, job("demo"))
	b.hooks.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*robotv1.RolloutList); ok {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404}}
		}
		return c.List(ctx, list, opts...)
	}
	if status := b.run("get"); status != 0 || !strings.Contains(b.out.String(), "demo") {
		t.Errorf("exit %d: %s%s", status, b.out.String(), b.err.String())
	}
}

func TestRolloutView_NamesWhatAWaveWaitsFor(t *testing.T) {
	for _, c := range []struct {
		counts  robotv1.RolloutCounts
		isShort bool // that it waits only for a time
		want    string
	}{
		{robotv1.RolloutCounts{OutsideWindow: 2}, false, "waits for windows"},
		{robotv1.RolloutCounts{OutsideWindow: 2, Updating: 1}, false, "running"},
		{robotv1.RolloutCounts{OutOfContact: 1, Held: 1}, true, "waits for contact for 10s"},
		{robotv1.RolloutCounts{OutsideWindow: 1, Held: 1}, true, "waits for holds for 10s"},
		{robotv1.RolloutCounts{OutsideWindow: 1}, true, "waits for windows for 10s"},
		{robotv1.RolloutCounts{}, true, "waits for contact for 10s"},
	} {
		r := rolloutOf("r", "j", robotv1.RolloutProgressing)
		r.Status.Waves[1].RolloutCounts, r.Status.Waves[1].Retries = c.counts, 0
		if c.isShort {
			r.Status.Waves[1].WaitingSince = at(-10 * time.Second)
		}
		if got := (rolloutView{r, noon}).waveState(1); got != c.want {
			t.Errorf("%+v: %q, want %q", c.counts, got, c.want)
		}
	}
}
