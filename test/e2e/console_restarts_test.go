package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestEvents_ResyncAfterConsoleRestarts kills a console repeatedly while tasks run, fail, are
// canceled and are removed, also while no console runs. Of its readers one keeps up, one lags and
// one is away for a while. After each restart that a reader notices it gets one resync and loads
// its lists. Between restarts it receives every state of every task in order, as the archive has
// them, and at the end all readers know what exists.
func TestEvents_ResyncAfterConsoleRestarts(t *testing.T) {
	t.Parallel()
	const rounds = 3
	s := start(t, "--robots=3", "--without=console")
	c := s.restartable()
	fast, slow, away := c.follower("the fast reader"), c.follower("the slow reader"), c.follower("the reader that was away")
	slow.lagBehind(fast, 40)
	away.leaveAfter(20)
	for _, f := range []*follower{fast, slow, away} {
		f.come()
	}
	s.create(jobOf("early", 20, shell("main", "true")))
	<-away.gone
	fast.awaitTold(40)
	for round := range rounds {
		s.startWork(round)
		fast.awaitTold(fast.count() + 50) // about half of what the work leads to
		c.Kill()
		s.workUnseen(round)
		c.Start()
		fast.awaitLoads(round + 1)
	}
	away.leaveAfter(never)
	away.come()
	slow.hurry()
	want := s.awaitEndOfWork()
	for _, f := range []*follower{fast, slow, away} {
		f.awaitPicture(want)
	}
	if got := []int{fast.loads(), slow.loads(), away.loads()}; got[0] != rounds || got[1] < 1 || got[1] > rounds || got[2] != 1 {
		t.Errorf("the fast, slow and away readers loaded their lists %v times, want %d, 1 to %d, 1", got, rounds, rounds)
	}
	archived := s.archivedTasks()
	for _, f := range []*follower{fast, slow, away} {
		f.agreesWith(archived)
	}
}

// restartable is a console of its own that can be killed and started again.
type restartable struct {
	*program
	s          *system
	url, token string
}

func (s *system) restartable() *restartable {
	s.t.Helper()
	address := testkit.FreeAddr(s.t)
	p := run(s.t, "k8s4r-console", "--kubeconfig", s.serviceAccountKubeconfig("k8s4r-console"), "--bind-address", address,
		"--archive", "sqlite:"+filepath.Join(s.DataDir, "history.db"), "--metrics-bind-address=0", "--health-probe-bind-address=0")
	return &restartable{p, s, "http://" + address + "/api/v1", s.bearer("reader", "k8s4r-view")}
}

// Start returns when the console serves.
func (c *restartable) Start() {
	c.s.t.Helper()
	c.program.Start()
	testkit.Eventually(c.s.t, time.Minute, "the console serves", func() bool {
		code, _ := get(c.s.t, c.url+"/me", c.token)
		return code == http.StatusOK
	})
}

// startWork submits jobs that succeed, jobs that are removed when they end, one that fails on robot
// after robot, and one that runs until it is canceled.
func (s *system) startWork(round int) {
	s.t.Helper()
	for i := range 5 {
		s.create(jobOf(fmt.Sprintf("good-%d-%d", round, i), 5, shell("main", "sleep 0.2")))
	}
	for i := range 2 {
		s.create(brief(fmt.Sprintf("brief-%d-%d", round, i)))
	}
	s.create(jobOf(fmt.Sprintf("bad-%d", round), 2, shell("main", "exit 1")))
	s.create(jobOf(fmt.Sprintf("long-%d", round), 10, shell("main", "exec sleep 1000")))
}

// brief returns a job that is removed as soon as it has ended.
func brief(name string) *v1alpha1.Job {
	job := jobOf(name, 4, shell("main", "true"))
	job.Spec.TTLSecondsAfterFinished = new(int32)
	return job
}

// isBrief reports whether a task is of a job that is removed as soon as it has ended, so that it may
// be created and removed while no console runs.
func isBrief(task string) bool {
	return strings.HasPrefix(task, "brief-") || strings.HasPrefix(task, "unseen-")
}

// workUnseen cancels the job that runs, and creates another one that runs, ends and is removed.
func (s *system) workUnseen(round int) {
	s.t.Helper()
	unseen := brief(fmt.Sprintf("unseen-%d", round))
	s.create(unseen)
	long := fmt.Sprintf("long-%d", round)
	if out, err := s.RunProgram("k8s4r", "job", "cancel", long); err != nil {
		s.t.Fatalf("cancel %s: %v\n%s", long, err, out)
	}
	s.awaitJob(long, string(lifecycle.JobCanceled), 30*time.Second)
	s.awaitGone(unseen, 30*time.Second)
}

// awaitEndOfWork blocks until each job has ended and is in the archive, and the brief ones are removed
// with all of their tasks. It returns the states of the tasks by UID.
func (s *system) awaitEndOfWork() (states map[string]string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, time.Minute, "all jobs end", func() error {
		var jobs v1alpha1.JobList
		var tasks v1alpha1.TaskList
		if err := errors.Join(s.List(s.t.Context(), &tasks), s.List(s.t.Context(), &jobs)); err != nil {
			return err
		}
		there := map[string]bool{}
		for i := range jobs.Items {
			j := &jobs.Items[i]
			if there[j.Name] = true; j.Spec.TTLSecondsAfterFinished != nil || !j.Status.IsArchived() {
				return fmt.Errorf("%s is %s, archived: %v", j.Name, j.Status.State, j.Status.IsArchived())
			}
		}
		states = map[string]string{}
		for i := range tasks.Items {
			t := &tasks.Items[i]
			if states[string(t.UID)] = string(lifecycle.TaskState(t.Status.State).OrPending()); !there[t.Spec.JobName] {
				return fmt.Errorf("%s still exists, its job does not", t.Name)
			}
		}
		return nil
	})
	return states
}

// archivedTask is a task in the archive.
type archivedTask struct {
	archive.Object
	transitions []archive.Transition
}

func (s *system) archivedTasks() (out []archivedTask) {
	s.t.Helper()
	store, err := archive.Open("sqlite:" + filepath.Join(s.DataDir, "history.db"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer store.Close()
	page, err := store.List(s.t.Context(), archive.Filter{Kind: archive.Task, Limit: archive.MaxLimit})
	if err != nil || page.Next != "" {
		s.t.Fatalf("list the tasks of the archive: %v, next page: %q", err, page.Next)
	}
	for _, o := range page.Items {
		transitions, err := store.ListTransitions(s.t.Context(), o.UID)
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, archivedTask{o, transitions})
	}
	return out
}
