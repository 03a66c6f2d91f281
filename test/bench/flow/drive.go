package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// spent is the time that was used to end Jobs.
type spent struct {
	mu  sync.Mutex
	n   int
	sum time.Duration
}

func (e *spent) add(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n++
	e.sum += d
}

// meanOf is the mean of those that f has ended.
func (e *spent) meanOf(f func()) time.Duration {
	n, sum := e.read()
	f()
	after, all := e.read()
	return (all - sum) / time.Duration(max(1, after-n))
}

func (e *spent) read() (int, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n, e.sum
}

// endJobs ends each Job once, as soon as it is created, as the controller of Jobs would end a Job whose
// Pods take no time.
func (s *bench) endJobs() *spent {
	ended := &spent{}
	jobs := make(chan *batchv1.Job, 10000)
	for range enders {
		go func() {
			for j := range jobs {
				start := time.Now()
				j.Status.State = batchv1.JobState{Phase: batchv1.JobCompleted, LastTransitionTime: metav1.Now()}
				j.Status.RunningDuration = &metav1.Duration{Duration: time.Second}
				if err := s.Status().Update(context.Background(), j); err != nil && client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // a Job may be delivered twice
					s.Errorf("end job %s: %v", j.Name, err)
				}
				ended.add(time.Since(start))
			}
		}()
	}
	stop := testkit.WatchObjects(s, s.WithWatch, "default", func() client.ObjectList { return &batchv1.JobList{} }, func(j *batchv1.Job) {
		if j.Status.State.Phase == "" {
			jobs <- j
		}
	})
	s.Cleanup(stop)
	return ended
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
