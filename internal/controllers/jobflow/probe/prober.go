package probe

import (
	"context"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// State is the state of a probe.
type State string

// States of a probe.
const (
	// Waiting: not all checks pass yet.
	Waiting State = "Waiting"
	// Ready: all checks pass. The state may return to Waiting.
	Ready State = "Ready"
	// Failed: failureThreshold rounds in a row have failed. Final until the target
	// changes.
	Failed State = "Failed"
)

// Result is the current state of a probe. The zero value means that there is no such
// probe.
type Result struct {
	State State
	// Message names what is missing or has failed. Empty if ready.
	Message string
}

// Target is a probe and the Jobs whose Pods it checks.
type Target struct {
	Probe flowv1.Probe
	// Jobs that the step depends on and that exist.
	Jobs []Job
	// Ended is set if the Jobs have ended or were deleted. Checks that fail then fail for
	// good.
	Ended bool
}

// Job is a Job whose Pods are checked.
type Job struct {
	Name string
	// UID distinguishes its Pods from those of an earlier Job of that name.
	UID types.UID
}

// Config configures a Prober.
type Config struct {
	// ListPods returns all Pods of a namespace whose label volcano.sh/job-name names one
	// of the Jobs. They are not modified.
	ListPods func(ctx context.Context, namespace string, jobs []Job) ([]corev1.Pod, error)
	// OnChange is called with a flow when the Result of one of its steps has changed. May
	// be nil.
	OnChange func(flow types.NamespacedName)
	// MaxParallel bounds concurrent requests and connections. 0 means 64.
	MaxParallel int
}

// Prober checks the Pods of many flows' steps.
type Prober struct {
	config Config
	slots  chan struct{} // bounds concurrent remote checks

	mu      sync.Mutex
	ctx     context.Context // of all probes; nil before Start
	running map[types.NamespacedName]map[string]*probe
}

// probe is the probe of one step.
type probe struct {
	target Target
	result Result
	stop   context.CancelFunc // nil until started
}

// New returns a Prober that runs no checks before Start.
func New(c Config) *Prober {
	if c.MaxParallel == 0 {
		c.MaxParallel = 64
	}
	if c.OnChange == nil {
		c.OnChange = func(types.NamespacedName) {}
	}
	return &Prober{config: c, slots: make(chan struct{}, c.MaxParallel), running: map[types.NamespacedName]map[string]*probe{}}
}

// Start runs the probes until ctx is done. The manager calls it on the leader only.
func (p *Prober) Start(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	for flow, steps := range p.running {
		for _, one := range steps {
			p.runProbeLocked(flow, one)
		}
	}
	p.mu.Unlock()
	<-ctx.Done()
	return nil
}

// NeedLeaderElection lets the manager start the Prober on the leader only.
func (p *Prober) NeedLeaderElection() bool { return true }

// Result returns the state of a step's probe.
func (p *Prober) Result(flow types.NamespacedName, step string) Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.running[flow][step]; one != nil {
		return one.result
	}
	return Result{}
}

// SetTargets replaces the probes of a flow. Probes whose target has not changed continue.
func (p *Prober) SetTargets(flow types.NamespacedName, steps map[string]Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, one := range p.running[flow] {
		if target, kept := steps[name]; !kept || !reflect.DeepEqual(one.target, target) {
			one.stopProbe()
			delete(p.running[flow], name)
		}
	}
	for name, target := range steps {
		if p.running[flow][name] == nil {
			p.startProbeLocked(flow, name, target)
		}
	}
	if len(p.running[flow]) == 0 {
		delete(p.running, flow)
	}
}

// startProbeLocked adds a probe and runs it if the Prober was started.
func (p *Prober) startProbeLocked(flow types.NamespacedName, step string, target Target) {
	if p.running[flow] == nil {
		p.running[flow] = map[string]*probe{}
	}
	one := &probe{target: target, result: Result{State: Waiting, Message: "not checked yet"}}
	p.running[flow][step] = one
	if p.ctx != nil {
		p.runProbeLocked(flow, one)
	}
}

func (p *Prober) runProbeLocked(flow types.NamespacedName, one *probe) {
	ctx, stop := context.WithCancel(p.ctx)
	one.stop = stop
	go p.runRounds(ctx, flow, one)
}

func (o *probe) stopProbe() {
	if o.stop != nil {
		o.stop()
	}
}

// runRounds runs rounds until ctx is done or the probe has failed.
func (p *Prober) runRounds(ctx context.Context, flow types.NamespacedName, one *probe) {
	ticker := time.NewTicker(secondsOr(one.target.Probe.PeriodSeconds, 5))
	defer ticker.Stop()
	counter := roundCounter{probe: &one.target.Probe, ended: one.target.Ended}
	for {
		result := counter.addRound(p.runRound(ctx, flow.Namespace, &one.target))
		if ctx.Err() != nil {
			return // the round was interrupted
		}
		p.setResult(ctx, flow, one, result)
		if result.State == Failed {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// setResult stores a result unless the probe was stopped, and reports changes to the flow.
func (p *Prober) setResult(ctx context.Context, flow types.NamespacedName, one *probe, result Result) {
	p.mu.Lock()
	changed := ctx.Err() == nil && one.result != result
	if changed {
		one.result = result
	}
	p.mu.Unlock()
	if changed {
		p.config.OnChange(flow)
	}
}

// secondsOr returns set as a duration, or the default if it is unset.
func secondsOr(set *int32, otherwise int32) time.Duration {
	if set != nil && *set > 0 {
		otherwise = *set
	}
	return time.Duration(otherwise) * time.Second
}
