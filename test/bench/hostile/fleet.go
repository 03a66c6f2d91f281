package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

const (
	namespace = "default"
	// taskDuration is long enough that the start of a task is written before its end.
	taskDuration = 500 * time.Millisecond
	// joiners is how many robots join at a time: the join API limits one address.
	joiners     = 8
	waitTimeout = 2 * time.Minute
)

// fleet is the robots of one system, and the times of their tasks.
type fleet struct {
	client.WithWatch
	t       testing.TB
	mqttURL string
	robots  []string // that are measured

	mu    sync.Mutex
	times map[string]*taskTimes // by task
	// hostileWrites counts the changes of the hostile robot's tasks.
	hostileWrites int
}

// taskTimes are when this program has seen a state of a task. Zero: not yet.
type taskTimes struct{ dispatching, running, ended time.Time }

// startFleet starts the simulated robots, and waits until all are online.
func startFleet(t testing.TB, up *testkit.Up) *fleet {
	f := &fleet{WithWatch: testkit.NewClient(t, up.RESTConfig()), t: t, mqttURL: up.MQTTSURL, times: map[string]*taskTimes{}}
	all := make(chan int)
	errs := make(chan error, *robots)
	var wg sync.WaitGroup
	for range joiners {
		wg.Go(func() {
			for i := range all {
				errs <- f.startRobot(fmt.Sprintf("sim-%d", i+1))
			}
		})
	}
	for i := range *robots {
		f.robots = append(f.robots, fmt.Sprintf("sim-%d", i+1))
		all <- i
	}
	close(all)
	wg.Wait()
	for range *robots {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	f.watchTasks()
	return f
}

func (f *fleet) startRobot(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	credentials, err := testkit.JoinRobot(ctx, f, id)
	if err != nil {
		return err
	}
	robot, err := simrobot.Start(ctx, simrobot.Config{RobotID: id, Broker: f.mqttURL, TLS: credentials, Run: taskDuration})
	if err == nil {
		f.mu.Lock()
		f.t.Cleanup(robot.Stop)
		f.mu.Unlock()
	}
	return err
}

// watchTasks records when tasks change their state, until the benchmark ends.
func (f *fleet) watchTasks() {
	w, err := f.Watch(context.Background(), &v1alpha1.TaskList{}, client.InNamespace(namespace))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			if task, ok := e.Object.(*v1alpha1.Task); ok && e.Type != watch.Deleted {
				f.recordState(task, time.Now())
			}
		}
	}()
}

func (f *fleet) recordState(task *v1alpha1.Task, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if task.Spec.TargetRobot == hostileID {
		f.hostileWrites++
	}
	times := f.times[task.Name]
	if times == nil {
		return
	}
	state := lifecycle.TaskState(task.Status.State)
	setOnce(&times.dispatching, at, state == lifecycle.TaskDispatching)
	setOnce(&times.running, at, state == lifecycle.TaskRunning || state.IsTerminal())
	setOnce(&times.ended, at, state.IsTerminal())
}

func (f *fleet) countHostileWrites() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hostileWrites
}

func setOnce(t *time.Time, at time.Time, is bool) {
	if is && t.IsZero() {
		*t = at
	}
}

// measureLatencies runs tasks on the robots in turn, at a steady rate, and returns the time from
// dispatch to running of each.
func (f *fleet) measureLatencies(name string) (took []time.Duration) {
	pace := time.NewTicker(*interval)
	defer pace.Stop()
	var names []string
	for i := range *tasks {
		task := newTask(fmt.Sprintf("%s-%d", name, i), f.robots[i%len(f.robots)])
		names = append(names, task.Name)
		f.mu.Lock()
		f.times[task.Name] = &taskTimes{}
		f.mu.Unlock()
		if err := f.Create(context.Background(), task); err != nil {
			f.t.Fatal(err)
		}
		<-pace.C
	}
	for _, name := range names {
		took = append(took, f.awaitEnd(name))
	}
	return took
}

// awaitEnd blocks until a task has ended, and returns the time from its dispatch to running.
func (f *fleet) awaitEnd(name string) (latency time.Duration) {
	testkit.Eventually(f.t, waitTimeout, "task "+name+" ends", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		times := f.times[name]
		latency = times.running.Sub(times.dispatching)
		return !times.ended.IsZero()
	})
	return latency
}

// newTask returns a task for one robot.
func newTask(name, robot string) *v1alpha1.Task {
	return &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.TaskSpec{TargetRobot: robot, TaskDefinition: v1alpha1.TaskDefinition{
			Name: "work", Driver: v1alpha1.DriverExec,
			Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "/bin/true"}},
		}},
	}
}
