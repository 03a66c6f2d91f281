package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestEvents_ContinueAfterConsoleRestarts kills a console again and again while tasks run, fail, are called off
// and vanish, also while it is dead. Of its readers one keeps up, one lags, and one stays away for
// longer than a console goes back. The first two are told every state of every task in order, as the
// archive has them; the third is told to load its lists, and all three end with what is there.
func TestEvents_ContinueAfterConsoleRestarts(t *testing.T) {
	t.Parallel()
	const rounds = 3
	s := start(t, "--robots=3", "--without=console")
	c := s.restartable()
	fast, slow, away := c.follower("the fast one"), c.follower("the slow one"), c.follower("the one that was away")
	slow.lagBehind(fast, 40)
	away.leaveAfter(20)
	for _, f := range []*follower{fast, slow, away} {
		f.come()
	}
	s.create(jobOf("early", 20, shell("main", "true")))
	<-away.gone
	fast.awaitTold(40)
	for round := range rounds {
		position := c.notePosition(fast)
		s.startWork(round)
		fast.awaitTold(fast.count() + 100)
		slow.awaitPast(position)
		c.Kill()
		s.workUnseen(round)
		c.Start()
		if round == 0 {
			away.leaveAfter(never)
			away.come()
			away.awaitLists()
		}
	}
	want := s.awaitEndOfWork()
	slow.hurry()
	for _, f := range []*follower{fast, slow, away} {
		f.awaitPicture(want)
	}
	for f, want := range map[*follower]int{fast: 0, slow: 0, away: 1} {
		if got := f.loads(); got != want {
			t.Errorf("%s was told to load its lists %d times, want %d", f.name, got, want)
		}
	}
	if fast.gathered() == 0 {
		t.Error("jobs of ten tasks were called off, and each task was told of")
	}
	archived := s.archivedTasks()
	fast.agreesWith(archived)
	slow.agreesWith(archived)
}

// restartable is a console of its own that finds its file again after a kill -9.
type restartable struct {
	*program
	s          *system
	url, token string
	stateFile  string
}

func (s *system) restartable() *restartable {
	s.t.Helper()
	address, file := testkit.FreeAddr(s.t), filepath.Join(s.t.TempDir(), "events.json")
	p := run(s.t, "k8s4r-console", "--kubeconfig", s.serviceAccountKubeconfig("k8s4r-console"), "--bind-address", address, "--state-file", file,
		"--archive", "sqlite:"+filepath.Join(s.DataDir, "history.db"), "--metrics-bind-address=0", "--health-probe-bind-address=0")
	return &restartable{p, s, "http://" + address + "/api/v1", s.bearer("reader", "k8s4r-view"), file}
}

// Start returns when it serves, and so has read its file.
func (c *restartable) Start() {
	c.s.t.Helper()
	c.program.Start()
	testkit.Eventually(c.s.t, time.Minute, "the console serves", func() bool {
		code, _ := get(c.s.t, c.url+"/me", c.token)
		return code == http.StatusOK
	})
}

// notePosition writes what the console itself writes a minute from now, for which a test has no
// time: how far the world has come. In that minute a reader was told of everything, also of what
// is gathered for a second.
func (c *restartable) notePosition(f *follower) (position uint64) {
	c.s.t.Helper()
	testkit.EventuallyNoError(c.s.t, time.Minute, f.name+" was told of all that there is", func() error {
		known := f.states()
		var all v1alpha1.TaskList
		if err := c.s.List(c.s.t.Context(), &all); err != nil {
			return err
		}
		position = number(all.ResourceVersion)
		for i := range all.Items {
			t := &all.Items[i]
			if is := string(lifecycle.TaskState(t.Status.State).OrPending()); known[string(t.UID)] != is {
				return fmt.Errorf("%s is %s, it knows it as %q", t.Name, is, known[string(t.UID)])
			}
		}
		return nil
	})
	if err := os.WriteFile(c.stateFile, fmt.Appendf(nil, `{"version": 2, "position": "%d", "last": "0"}`, position), 0o600); err != nil {
		c.s.t.Fatal(err)
	}
	return position
}

// startWork submits jobs that succeed, jobs that vanish with their end, one that fails on robot after
// robot, and one that runs until it is called off.
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

// brief is a job that is removed as soon as it has ended.
func brief(name string) *v1alpha1.Job {
	job := jobOf(name, 4, shell("main", "true"))
	job.Spec.TTLSecondsAfterFinished = new(int32)
	return job
}

// workUnseen calls off the job that runs, and lets another one come, run and go.
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

// awaitEndOfWork returns when each job has ended and is in the archive, and what is to vanish has
// with all of its tasks. The states that the tasks have then are by their UIDs.
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
				return fmt.Errorf("%s outlives its job", t.Name)
			}
		}
		return nil
	})
	return states
}

// archivedTask is what the archive has of a task.
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
		s.t.Fatalf("the archive's tasks: %v, more to come: %q", err, page.Next)
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
