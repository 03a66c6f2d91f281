package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// steady is a steady state of a number of robots.
type steady struct {
	robots int
	rss    map[string]int     // bytes
	cores  map[string]float64 // processors in use
	// writes by what they write, for each robot and hour.
	writes map[string]float64
}

// measureSteady measures the fleet while nothing happens but heartbeats.
func (s *system) measureSteady() steady {
	time.Sleep(*settle)
	before := s.readUsage()
	time.Sleep(*window)
	after := s.readUsage()
	seconds := after.at.Sub(before.at).Seconds()
	m := steady{robots: len(s.fleet.robots), rss: after.rss, cores: map[string]float64{}, writes: map[string]float64{}}
	for _, name := range parts {
		m.cores[name] = (after.cpu[name] - before.cpu[name]).Seconds() / seconds
	}
	for w, n := range after.writes {
		isOurs := strings.HasSuffix(w.Group, "k8s4r.io") || w.Resource == "events"
		if more := n - before.writes[w]; more > 0 && isOurs {
			m.writes[strings.Trim(w.Resource+"/"+w.Subresource, "/")] += float64(more) * 3600 / seconds / float64(m.robots)
		}
	}
	if n := int(s.fleet.registered.Load()); n < m.robots {
		s.Errorf("only %d of %d robots are connected after the steady state; errors %v", n, m.robots, s.fleet.readErrors())
	}
	return m
}

// totalCores returns the processors that broker, server, manager, API server and etcd use together.
func (m steady) totalCores() (sum float64) {
	for name, cores := range m.cores {
		if name != "k8s4r-console" {
			sum += cores
		}
	}
	return sum
}

func (m steady) totalWrites() (sum float64) {
	for n := range maps.Values(m.writes) {
		sum += n
	}
	return sum
}

// kbPerRobot returns by how many kB a process grows for each robot, from one measurement to another.
// With only one, its whole memory counts.
func kbPerRobot(all []steady, part string) float64 {
	first, last := all[0], all[len(all)-1]
	if len(all) == 1 {
		first = steady{}
	}
	return float64(last.rss[part]-first.rss[part]) / 1024 / float64(last.robots-first.robots)
}

// startTimes are the times from the submission of Jobs to the starts of their tasks. A task that did
// not start has the time for which it was awaited.
type startTimes []time.Duration

// startTimeout is how long a start is awaited.
const startTimeout = 30 * time.Second

// measureStarts submits a Job for one idle robot after the other until n are submitted or stop
// returns true.
func (s *system) measureStarts(name string, n int, stop func() bool) startTimes {
	type submitted struct {
		task string
		at   time.Time
	}
	var all []submitted
	pace := time.NewTicker(*startInterval)
	defer pace.Stop()
	for i := 0; i < n && !stop(); i++ {
		<-pace.C
		r := s.fleet.idleRobot()
		if r == nil {
			continue
		}
		job := newJob(fmt.Sprintf("%s-%d", name, i), map[string]string{"robot": r.id})
		at := time.Now()
		if err := s.Create(context.Background(), job); err != nil {
			s.Fatal(err)
		}
		all = append(all, submitted{job.Name + "-main-0-work", at})
	}
	var times startTimes
	for _, job := range all {
		for s.fleet.startOf(job.task).IsZero() && time.Since(job.at) < startTimeout {
			time.Sleep(10 * time.Millisecond)
		}
		started := s.fleet.startOf(job.task)
		if started.IsZero() {
			s.Logf("%s has not started within %s", job.task, startTimeout)
			started = job.at.Add(startTimeout)
		}
		times = append(times, started.Sub(job.at))
	}
	return times
}

// quantileMs returns a quantile in milliseconds. Without times it is not a number.
func (t startTimes) quantileMs(q float64) float64 {
	if len(t) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(t))
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Microseconds()) / 1000
}

// newJob returns a Job with one task for the robots that a selector matches.
func newJob(name string, selector map[string]string) *v1alpha1.Job {
	count := int32(1)
	return &v1alpha1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.JobSpec{RobotSelector: selector, TaskGroups: []v1alpha1.TaskGroupDefinition{{
			Name: "main",
			TaskGroupTemplate: v1alpha1.TaskGroupTemplate{Count: &count, Tasks: []v1alpha1.TaskDefinition{{
				Name: "work", Driver: v1alpha1.DriverExec, Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/true"}},
			}}},
		}}},
	}
}

// measureFlapping measures starts while a share of the robots breaks its connections.
func (s *system) measureFlapping() startTimes {
	ctx, stop := context.WithCancel(context.Background())
	wait := s.fleet.flap(ctx, flappingShare)
	times := s.measureStarts("flap", *starts, func() bool { return false })
	stop()
	wait()
	return times
}

// storm is the return of all robots after a restart of the broker.
type storm struct {
	robots int
	took   time.Duration // from the start of the broker until all are registered
	resume float64       // share of the TLS sessions that were resumed
	starts startTimes    // on robots that were back, meanwhile
}

// measureStorm kills the broker, starts it again, and waits until all robots are registered.
func (s *system) measureStorm() storm {
	out := storm{robots: len(s.fleet.robots)}
	resumed, postponed := s.fleet.resumed.Load(), s.fleet.postponed.Load()
	s.broker.Kill()
	testkit.Eventually(s, time.Minute, "all robots are disconnected", func() bool { return s.fleet.registered.Load() == 0 })
	began := time.Now()
	s.broker.Start()
	ended := make(chan time.Time, 1)
	go func() { ended <- s.fleet.awaitRegistered(out.robots, 10*time.Minute) }()
	s.fleet.awaitRegistered(max(1, out.robots/100), time.Minute)
	out.starts = s.measureStarts("storm", math.MaxInt, func() bool {
		select {
		case at := <-ended:
			out.took = at.Sub(began)
			return true
		default:
			return false
		}
	})
	sessions := float64(out.robots) + float64(s.fleet.postponed.Load()-postponed)
	out.resume = float64(s.fleet.resumed.Load()-resumed) / sessions
	return out
}

// systemJobName is the Job whose tasks robots run until they are stopped.
const systemJobName = "everywhere"

// measureSystemJob runs a Job of type system on all robots, and returns how long it takes until all of
// its tasks have started and until the Job shows that.
func (s *system) measureSystemJob() (started, shown time.Duration) {
	job := newJob(systemJobName, map[string]string{"fleet": "bench"})
	job.Spec.Type = v1alpha1.JobTypeSystem
	job.Spec.TaskGroups[0].Count = nil
	began := time.Now()
	if err := s.Create(context.Background(), job); err != nil {
		s.Fatal(err)
	}
	testkit.EventuallyNoError(s, 10*time.Minute, "the tasks of the system Job start", func() error {
		if n := s.fleet.countStarts(job.Name + "-"); n < len(s.fleet.robots) {
			return fmt.Errorf("%d of %d", n, len(s.fleet.robots))
		}
		return nil
	})
	started = time.Since(began)
	testkit.EventuallyNoError(s, 10*time.Minute, "the system Job shows its tasks", func() error {
		if err := s.Get(context.Background(), client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if n := job.Status.RunningTasks; int(n) < len(s.fleet.robots) {
			return fmt.Errorf("%d of %d run; the Job is %s", n, len(s.fleet.robots), cmp.Or(job.Status.State, "new"))
		}
		return nil
	})
	return started, time.Since(began)
}
