package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestArchive_HasEveryJobOnceAfterKills kills the whole system again and again while jobs run, end, are
// archived and removed: every job is in the archive in the end, once and as it ended.
func TestArchive_HasEveryJobOnceAfterKills(t *testing.T) {
	t.Parallel()
	const jobs, kills = 20, 4
	s := start(t, "--robots=2")
	reader := s.bearer("reader", "k8s4r-view")
	answers := func() {
		testkit.EventuallyNoError(t, 30*time.Second, "the console answers", func() error {
			if code, text := s.browser(t, reader).ask(http.MethodGet, "/api/v1/objects/tasks?namespace=default", nil); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, text)
			}
			return nil
		})
	}
	soon := int32(0)
	uids := map[string]string{}
	dice := rand.New(rand.NewPCG(1, 2))
	for kill := range kills {
		answers()
		enough := make(chan struct{})
		left := atomic.Int32{}
		left.Store(int32(20 + dice.IntN(130)))
		done := s.browser(t, reader).follow("/api/v1/events", func(e consoleEvent) {
			if e.event == "change" && left.Add(-1) == 0 {
				close(enough)
			}
		})
		for i := range jobs {
			job := jobOf(fmt.Sprintf("killed-%d-%d", kill, i), 1, shell("main", "true"))
			job.Spec.TTLSecondsAfterFinished = &soon
			s.create(job)
			uids[string(job.UID)] = job.Name
		}
		select {
		case <-enough:
		case <-time.After(time.Minute):
			t.Fatal("nothing happens any more")
		}
		s.Kill()
		<-done
		s.Start()
	}
	for _, name := range uids {
		testkit.EventuallyNoError(t, 2*time.Minute, "its ttl removes job "+name, func() error {
			err := s.Get(t.Context(), nameOf("default", name), &v1alpha1.Job{})
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err == nil:
				return errors.New("it is there")
			}
			return err
		})
	}
	archiveHasEach(t, filepath.Join(s.DataDir, "history.db"), uids)
}

// archiveHasEach checks that the archive has every job by its UID, and no other of the same name.
func archiveHasEach(t *testing.T, file string, uids map[string]string) {
	t.Helper()
	store, err := archive.Open("sqlite:" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p, err := store.List(t.Context(), archive.Filter{Kind: archive.Job, Prefix: "killed-", Limit: archive.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Items {
		if uids[o.UID] != o.Name || o.Outcome != archive.Succeeded {
			t.Errorf("the archive has a job %s of uid %s, %s", o.Name, o.UID, o.Phase)
		}
		delete(uids, o.UID)
	}
	if len(uids) > 0 {
		t.Errorf("the archive lacks %v", uids)
	}
}
