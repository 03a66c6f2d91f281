package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// enders is how many Jobs are ended at a time, and creators how many flows are created.
const (
	enders   = 16
	creators = 16
)

// jobTimes records when this program saw each Job first, and when the write of its end returned.
type jobTimes struct {
	mu             sync.Mutex
	created, ended map[string]time.Time // by name of the Job
}

func newJobTimes() *jobTimes {
	return &jobTimes{created: map[string]time.Time{}, ended: map[string]time.Time{}}
}

// recordCreated reports whether the Job is new.
func (t *jobTimes) recordCreated(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, seen := t.created[name]; seen {
		return false
	}
	t.created[name] = time.Now()
	return true
}

func (t *jobTimes) recordEnded(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended[name] = time.Now()
}

// edgesOfChain returns for each edge of a chain how long after the end of a Job the next one was
// there.
func (t *jobTimes) edgesOfChain(flow string, steps int) []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []time.Duration
	for i := range steps - 1 {
		all = append(all, t.created[jobName(flow, i+1)].Sub(t.ended[jobName(flow, i)]))
	}
	return all
}

// edgesOfFan returns how long after the end of the first step the others were there, and after the
// last of those the last step. Both are divided by the number of the others.
func (t *jobTimes) edgesOfFan(flow string, others int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lastCreated, lastEnded time.Time
	for i := 1; i <= others; i++ {
		lastCreated = latest(lastCreated, t.created[jobName(flow, i)])
		lastEnded = latest(lastEnded, t.ended[jobName(flow, i)])
	}
	all := lastCreated.Sub(t.ended[jobName(flow, 0)]) + t.created[jobName(flow, others+1)].Sub(lastEnded)
	return all / time.Duration(others)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func jobName(flow string, step int) string { return fmt.Sprintf("%s-s%d", flow, step) }

// median returns the middle of the durations; zero of none.
func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// endJobs ends each Job once, as soon as it is created, as the controller of Jobs would end a Job whose
// Pods take no time.
func (s *bench) endJobs() *jobTimes {
	times := newJobTimes()
	jobs := make(chan *batchv1.Job, 10000)
	for range enders {
		go func() {
			for j := range jobs {
				j.Status.State = batchv1.JobState{Phase: batchv1.JobCompleted, LastTransitionTime: metav1.Now()}
				j.Status.RunningDuration = &metav1.Duration{Duration: time.Second}
				err := s.Status().Update(context.Background(), j)
				times.recordEnded(j.Name)
				if client.IgnoreNotFound(err) != nil {
					s.Errorf("end job %s: %v", j.Name, err)
				}
			}
		}()
	}
	stop := testkit.WatchObjects(s, s.WithWatch, "default", func() client.ObjectList { return &batchv1.JobList{} }, func(j *batchv1.Job) {
		if times.recordCreated(j.Name) && j.Labels[endsBy] == "" {
			jobs <- j
		}
	})
	s.Cleanup(stop)
	return times
}

// endsBy labels Jobs that are not ended.
const endsBy = "bench/ends-by"

// rawEdge returns the median time from the creation of a Job by this program until it sees the Job.
// It is the part of an edge that no controller can avoid.
func (s *bench) rawEdge(times *jobTimes, n int) time.Duration {
	var all []time.Duration
	for i := range n {
		name := fmt.Sprintf("edge-%d", i)
		start := time.Now()
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{endsBy: "nothing"}}, Spec: jobSpec()}
		if err := s.Create(context.Background(), j); err != nil {
			s.Fatal(err)
		}
		all = append(all, s.awaitCreated(times, name).Sub(start))
	}
	return median(all)
}

func (s *bench) awaitCreated(times *jobTimes, name string) (at time.Time) {
	testkit.EventuallyNoError(s, time.Minute, "watch of "+name, func() error {
		times.mu.Lock()
		defer times.mu.Unlock()
		if at = times.created[name]; at.IsZero() {
			return fmt.Errorf("not seen yet")
		}
		return nil
	})
	return at
}

// runAll creates flows of one spec side by side and waits until all have succeeded.
func (s *bench) runAll(name string, n int, spec flowv1.JobFlowSpec) {
	waits := make(chan string, 100000)
	stop := testkit.WatchObjects(s, s.WithWatch, "default", func() client.ObjectList { return &flowv1.JobFlowList{} }, func(f *flowv1.JobFlow) {
		if f.Status.State.Phase == flowv1.Succeed || f.Status.State.Phase == flowv1.Failed {
			waits <- f.Name + " " + string(f.Status.State.Phase)
		}
	})
	defer stop()
	todo := make(chan int)
	var group sync.WaitGroup
	for range creators {
		group.Go(func() {
			for i := range todo {
				f := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", name, i)}, Spec: spec}
				if err := s.Create(context.Background(), f); err != nil {
					s.Errorf("create flow: %v", err)
				}
			}
		})
	}
	open := map[string]bool{}
	for i := range n {
		open[fmt.Sprintf("%s-%d %s", name, i, flowv1.Succeed)] = true
		todo <- i
	}
	close(todo)
	group.Wait()
	for deadline := time.After(10 * time.Minute); len(open) > 0; {
		select {
		case ended := <-waits:
			delete(open, ended)
		case <-deadline:
			s.Fatalf("%d of %d flows have not succeeded", len(open), n)
		}
	}
}

// rawRate returns how often per second the API server accepts one create and one status write of a Job
// without an owner.
func (s *bench) rawRate(n int) float64 {
	todo := make(chan int)
	var group sync.WaitGroup
	start := time.Now()
	for range 2 * creators {
		group.Go(func() {
			for i := range todo {
				j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "raw", Name: fmt.Sprintf("raw-%d", i)}, Spec: jobSpec()}
				if err := s.Create(context.Background(), j); err != nil {
					s.Errorf("raw write: %v", err)
					continue
				}
				j.Status.State.Phase = batchv1.JobCompleted
				if err := s.Status().Update(context.Background(), j); err != nil {
					s.Errorf("raw write: %v", err)
				}
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	group.Wait()
	rate := float64(n) / time.Since(start).Seconds()
	if err := s.DeleteAllOf(context.Background(), &batchv1.Job{}, client.InNamespace("raw")); err != nil {
		s.Errorf("remove the raw objects: %v", err)
	}
	return rate
}
