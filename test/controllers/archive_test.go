package controllers

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	archiver "k8s4r.io/k8s4r/internal/controllers/archive"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// history is an archive that a manager writes and a test reads.
type history struct {
	*space
	store *archive.Store
}

func (h *history) find(f archive.Filter) []archive.Object {
	h.Helper()
	p, err := h.store.List(h.Context(), f)
	if err != nil {
		h.Fatal(err)
	}
	return p.Items
}

// namespaces returns the namespace of the test as it exists now.
func (h *history) namespaces() []archive.Namespace {
	h.Helper()
	var ns corev1.Namespace
	h.must(h.Get(h.Context(), client.ObjectKey{Name: h.name}, &ns))
	return []archive.Namespace{{Name: ns.Name, UID: string(ns.UID)}}
}

func historyAt(t *testing.T, address string) *archive.Store {
	t.Helper()
	store, err := archive.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// TestArchive checks with a real API server how objects are archived and deleted.
func TestArchive(t *testing.T) {
	t.Parallel()
	address := "sqlite:" + filepath.Join(t.TempDir(), "history.db")
	sys := startApart(t, apartServer, manager.Config{OfflineAfter: time.Hour, Archive: address}, caseNamespaces("history", 9)...)
	store := historyAt(t, address)
	for i, c := range []struct {
		name string
		run  func(*history)
	}{
		{"an ended job is archived with all of its tasks, and has the condition", archivesAJob},
		{"a job is deleted after its ttl, and stays in the archive", deletesAfterTTL},
		{"a ttl that is set after the end deletes the job", takesALateTTL},
		{"a requeued job is archived again before it is deleted", archivesTheSecondEnd},
		{"a job that is deleted while running is archived with its last state", archivesWhatIsDeleted},
		{"the next namespace of that name does not get the rows", bindsRowsToNamespace},
		{"changes of a robot are archived, heartbeats are not", archivesRobots},
		{"a flow and its jobs are deleted once all are archived", archivesAFlow},
		{"a pod job is marked by an annotation and deleted after its ttl", archivesPods},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(&history{space: sys.namespace(t, caseNamespace("history", i)), store: store})
		})
	}
}

// brief creates a job of one group with a ttl in seconds. If negative, it has none.
func (h *history) brief(name string, ttl int32, count int32) *v1alpha1.Job {
	h.Helper()
	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: name}}
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{group("g", count, "t")}
	if ttl >= 0 {
		j.Spec.TTLSecondsAfterFinished = &ttl
	}
	h.must(h.Create(h.Context(), j))
	return j
}

func (h *history) awaitArchived(name string) *v1alpha1.Job {
	h.Helper()
	var j v1alpha1.Job
	testkit.EventuallyNoError(h, waitTimeout, "job "+name+" is archived", func() error {
		if err := h.Get(h.Context(), h.key(name), &j); err != nil {
			return err
		}
		if !j.Status.IsArchived() {
			return fmt.Errorf("it is %s, conditions %+v", j.Status.State, j.Status.Conditions)
		}
		return nil
	})
	return &j
}

// awaitGone waits until an object is deleted.
func (h *history) awaitGone(o client.Object) {
	h.Helper()
	testkit.Eventually(h, waitTimeout, o.GetName()+" is gone", func() bool {
		return apierrors.IsNotFound(h.Get(h.Context(), client.ObjectKeyFromObject(o), o))
	})
}

// checkArchivedOnce checks that a job is in the archive exactly once, with this number of completed
// tasks.
func (h *history) checkArchivedOnce(uid string, tasks int) {
	h.Helper()
	job, err := h.store.GetByUID(h.Context(), nil, uid)
	if err != nil || job.Outcome != archive.Succeeded || job.Finished.IsZero() || !strings.Contains(string(job.Manifest), `"kind":"Job"`) {
		h.Errorf("job %s: %+v, %v", uid, job, err)
	}
	groups := h.find(archive.Filter{Kind: archive.TaskGroup, Owner: uid})
	if len(groups) != 1 {
		h.Fatalf("job %s has %d groups", job.Name, len(groups))
	}
	all := h.find(archive.Filter{Kind: archive.Task, Owner: groups[0].UID})
	if len(all) != tasks {
		h.Errorf("job %s has %d tasks, want %d", job.Name, len(all), tasks)
	}
	for _, t := range all {
		whole, err := h.store.GetByUID(h.Context(), nil, t.UID)
		if err != nil || whole.Outcome != archive.Succeeded || whole.Template != job.Template || whole.Step != "g/t" ||
			len(whole.Attempts) == 0 || whole.Attempts[0].Robot == "" || whole.Labels["job"] != job.Name {
			h.Errorf("task %+v, %v", whole, err)
		}
		if n, _ := h.store.ListTransitions(h.Context(), t.UID); len(n) == 0 || n[len(n)-1].To != "completed" {
			h.Errorf("task %s has the transitions %+v", t.Name, n)
		}
	}
}

func archivesAJob(h *history) {
	h.robots("hist-a", "hist-b")
	h.server(succeed)
	h.brief("j", -1, 5)
	j := h.awaitArchived("j")
	if j.Status.State != "completed" {
		h.Errorf("it was archived as %s", j.Status.State)
	}
	h.checkArchivedOnce(string(j.UID), 5)
}

func deletesAfterTTL(h *history) {
	h.robots("out-a")
	h.server(succeed)
	j := h.brief("j", 0, 3)
	uid := string(j.UID)
	h.awaitGone(j)
	h.checkArchivedOnce(uid, 3)
	testkit.Eventually(h, waitTimeout, "the archive records the deletion", func() bool {
		o, err := h.store.GetByUID(h.Context(), nil, uid)
		return err == nil && !o.Deleted.IsZero()
	})
}

func takesALateTTL(h *history) {
	h.robots("late-a")
	h.server(succeed)
	h.brief("j", -1, 1)
	j := h.awaitArchived("j")
	testkit.EventuallyNoError(h, waitTimeout, "give a ttl", func() error {
		h.must(h.Get(h.Context(), h.key("j"), j))
		soon := int32(0)
		j.Spec.TTLSecondsAfterFinished = &soon
		return h.Update(h.Context(), j)
	})
	h.awaitGone(j)
}

func archivesTheSecondEnd(h *history) {
	h.robots("two-x")
	h.server(succeed)
	h.brief("j", -1, 1)
	first := h.awaitArchived("j")
	h.must(h.updateJobSpec("j", func(spec *v1alpha1.JobSpec) {
		soon := int32(0)
		spec.Requeue, spec.TTLSecondsAfterFinished = &v1alpha1.Requeue{Generation: 1}, &soon
	}))
	uid, end := string(first.UID), first.Status.CompletedAt.Time
	h.awaitGone(first)
	tasks := h.find(archive.Filter{Kind: archive.Task, Namespaces: h.namespaces()})
	o, err := h.store.GetByUID(h.Context(), nil, uid)
	if err != nil || o.Outcome != archive.Succeeded || !o.Finished.After(end) || len(tasks) != 1 {
		h.Fatalf("the job %+v, %d tasks, %v", o, len(tasks), err)
	}
	if t, err := h.store.GetByUID(h.Context(), nil, tasks[0].UID); err != nil || len(t.Attempts) != 2 || t.Phase != "completed" {
		h.Errorf("the task %+v, %v", t, err)
	}
}

func archivesWhatIsDeleted(h *history) {
	h.robots("del-a")
	j := h.brief("j", -1, 1)
	h.awaitTask("j-g-0-t", lifecycle.TaskDispatching)
	h.report("j-g-0-t", lifecycle.TaskStarted)
	h.awaitTask("j-g-0-t", lifecycle.TaskRunning)
	h.must(h.Delete(h.Context(), j))
	testkit.EventuallyNoError(h, waitTimeout, "the archive has both", func() error {
		for _, f := range []archive.Filter{{Kind: archive.Job, Name: "j"}, {Kind: archive.Task, Name: "j-g-0-t"}} {
			f.Namespaces = h.namespaces()
			all := h.find(f)
			if len(all) != 1 || all[0].Deleted.IsZero() || all[0].Outcome == archive.Succeeded {
				return fmt.Errorf("of kind %s there are %+v", f.Kind, all)
			}
		}
		return nil
	})
}

// bindsRowsToNamespace deletes the namespace of an archived job and creates another of that name.
func bindsRowsToNamespace(h *history) {
	h.robots("two-tenants")
	h.server(succeed)
	h.brief("first", -1, 1)
	uid := string(h.awaitArchived("first").UID)
	before := h.namespaces()
	h.must(h.Delete(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.name}}))
	h.awaitGone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.name}})
	h.must(h.Create(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.name}}))
	after := h.namespaces()
	h.robots("two-tenants")
	h.brief("second", -1, 1)
	h.awaitArchived("second")
	for _, c := range []struct {
		of   []archive.Namespace
		want string
	}{{before, "first"}, {after, "second"}} {
		jobs := h.find(archive.Filter{Kind: archive.Job, Namespaces: c.of})
		if len(jobs) != 1 || jobs[0].Name != c.want {
			h.Errorf("namespace %s has %+v, want %s", c.of[0].UID, jobs, c.want)
		}
	}
	if _, err := h.store.GetByUID(h.Context(), after, uid); !errors.Is(err, archive.ErrNotFound) {
		h.Errorf("the next namespace has the first job: %v", err)
	}
}

func archivesRobots(h *history) {
	h.robots("seen-a")
	var r v1alpha1.Robot
	h.must(h.Get(h.Context(), h.key("seen-a"), &r))
	for range 5 {
		h.recordHeartbeat("seen-a")
	}
	h.updateRobotStatus("seen-a", func(st *v1alpha1.RobotStatus) {
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: v1alpha1.ConditionConnected, Status: "False", Reason: v1alpha1.ReasonLastWill})
	})
	h.awaitPhase("seen-a", lifecycle.RobotUnknown)
	var changes []archive.Transition
	testkit.EventuallyNoError(h, waitTimeout, "the archive knows that the robot is Unknown", func() (err error) {
		changes, err = h.store.ListTransitions(h.Context(), string(r.UID))
		if err == nil && (len(changes) == 0 || changes[len(changes)-1].To != string(lifecycle.RobotUnknown)) {
			err = fmt.Errorf("changes %+v", changes)
		}
		return err
	})
	if len(changes) > 3 { // Pending may have been too short to be seen
		h.Errorf("a heartbeat is a change: %+v", changes)
	}
	h.must(h.Delete(h.Context(), &r))
	testkit.Eventually(h, waitTimeout, "the archive records the deletion", func() bool {
		o, err := h.store.GetByUID(h.Context(), nil, string(r.UID))
		return err == nil && !o.Deleted.IsZero()
	})
}

func archivesAFlow(h *history) {
	h.robots("flow-a")
	h.server(succeed)
	h.must(h.Create(h.Context(), &v1alpha1.JobTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: "tour"},
		Spec:       v1alpha1.JobSpec{TaskGroups: []v1alpha1.TaskGroupDefinition{group("g", 2, "t")}},
	}))
	ttl := int32(0)
	f := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: "f"}, Spec: flowv1.JobFlowSpec{
		JobRetainPolicy: flowv1.Delete, TTLSecondsAfterFinished: &ttl,
		Flows: []flowv1.Flow{{Name: "drive", TemplateRef: &flowv1.TemplateReference{APIGroup: flowv1.TemplateGroupRobots, Name: "tour"}}},
	}}
	h.must(h.Create(h.Context(), f))
	uid := string(f.UID)
	h.awaitGone(f)
	if o, err := h.store.GetByUID(h.Context(), nil, uid); err != nil || o.Outcome != archive.Succeeded {
		h.Errorf("flow %+v, %v", o, err)
	}
	jobs := h.find(archive.Filter{Kind: archive.Job, Owner: uid})
	if len(jobs) != 1 || jobs[0].Template != "tour" || jobs[0].Step != "drive" {
		h.Fatalf("its jobs %+v", jobs)
	}
	h.checkArchivedOnce(jobs[0].UID, 2)
	times, _, err := h.store.StepTimes(h.Context(), archive.Job, archive.Span{Namespaces: h.namespaces()})
	if err != nil || len(times) != 1 || times[0].Step != "drive" || times[0].Count != 1 {
		h.Errorf("times %+v, %v", times, err)
	}
}

func archivesPods(h *history) {
	j := h.vcjob("pods", func(j *batchv1.Job) {
		zero := int32(0)
		j.Spec.TTLSecondsAfterFinished = &zero
	}, vctask("t", 1))
	uid := string(j.UID)
	h.pod("pods-t-0", corev1.PodRunning, 0)
	h.pod("pods-t-0", corev1.PodSucceeded, 0)
	h.awaitGone(j)
	if o, err := h.store.GetByUID(h.Context(), nil, uid); err != nil || o.Kind != archive.VCJob || o.Outcome != archive.Succeeded {
		h.Errorf("%+v, %v", o, err)
	}
}

// TestArchive_RecordsAfterAnOutage checks that deletions wait, that a condition reports it, and
// that nothing is lost.
func TestArchive_RecordsAfterAnOutage(t *testing.T) {
	t.Parallel()
	postgres := testkit.StartPostgres(t)
	cfg := manager.Config{OfflineAfter: time.Hour, Archive: postgres.Address}
	sys := startApart(t, apartServer, cfg, "down")
	h := &history{space: sys.namespace(t, "down"), store: historyAt(t, postgres.Address)}
	h.robots("down-a")
	h.server(succeed)
	awaitDelay := func(name string) *v1alpha1.Job {
		var j v1alpha1.Job
		testkit.EventuallyNoError(h, waitTimeout, "job "+name+" reports that the archive is down", func() error {
			if err := h.Get(h.Context(), h.key(name), &j); err != nil {
				return err
			}
			c := meta.FindStatusCondition(j.Status.Conditions, v1alpha1.ConditionArchived)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != archiver.ReasonUnavailable {
				return fmt.Errorf("condition %+v", c)
			}
			return nil
		})
		return &j
	}

	postgres.Stop()
	uid := string(h.brief("delayed", 0, 3).UID)
	j := awaitDelay("delayed")
	testkit.EventuallyNoError(h, waitTimeout, "the event", func() error {
		var all eventsv1.EventList
		h.must(h.List(h.Context(), &all, client.InNamespace(h.name)))
		for _, e := range all.Items {
			if e.Reason == archiver.ReasonUnavailable && e.Regarding.Name == "delayed" {
				return nil
			}
		}
		return errors.New("no event")
	})

	h.stop() // the manager is killed meanwhile
	h.manage(cfg)
	h.must(h.Get(h.Context(), h.key("delayed"), j))
	postgres.Start()
	h.awaitGone(j)
	h.checkArchivedOnce(uid, 3)

	postgres.Stop()
	h.brief("uninstalled", 0, 1)
	j = awaitDelay("uninstalled")
	if len(j.Finalizers) > 0 {
		t.Errorf("finalizers %v", j.Finalizers)
	}
	h.stop()
	cfg.Archive = ""
	h.manage(cfg) // nothing waits for an archive that there is not
	h.awaitGone(j)
}

// TestArchive_HasEveryJobOnce stops the manager at many points of archiving.
func TestArchive_HasEveryJobOnce(t *testing.T) {
	t.Parallel()
	address := "sqlite:" + filepath.Join(t.TempDir(), "history.db")
	cfg := manager.Config{OfflineAfter: time.Hour, Archive: address}
	sys := startApart(t, apartServer, cfg, "once")
	h := &history{space: sys.namespace(t, "once"), store: historyAt(t, address)}
	h.robots("once-a", "once-b", "once-c")
	h.server(succeed)
	uids := map[string]string{}
	for n := range 12 {
		name := fmt.Sprintf("j%d", n)
		uids[name] = string(h.brief(name, 0, 4).UID)
		if n%3 == 2 {
			h.stop()
			h.manage(cfg)
		}
	}
	testkit.EventuallyNoError(h, waitTimeout, "every job is gone", func() error {
		var jobs v1alpha1.JobList
		h.must(h.List(h.Context(), &jobs, client.InNamespace(h.name)))
		if len(jobs.Items) > 0 {
			return fmt.Errorf("%d jobs, one is %+v", len(jobs.Items), jobs.Items[0].Status)
		}
		return nil
	})
	for _, uid := range uids {
		h.checkArchivedOnce(uid, 4)
	}
	if all := h.find(archive.Filter{Kind: archive.Job, Limit: 100}); len(all) != len(uids) {
		t.Errorf("%d jobs are in the archive, want %d", len(all), len(uids))
	}
}
