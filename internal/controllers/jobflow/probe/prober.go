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

// State is what a probe has come to.
type State string

// The states of a probe.
const (
	// Waiting: not all that was asked for holds yet.
	Waiting State = "Waiting"
	// Ready: all of it holds. It may fall back to Waiting.
	Ready State = "Ready"
	// Failed: too many rounds in a row have failed. It stays so, and nothing more is
	// asked, until the target changes.
	Failed State = "Failed"
)

// Result is what is known of a probe. The zero value: it is not kept.
type Result struct {
	State State
	// Message says what is waited for, or has failed. Empty when ready.
	Message string
}

// Target is what to ask, and whose Pods.
type Target struct {
	Probe flowv1.Probe
	// Jobs that the step depends on and that exist.
	Jobs []Job
	// Over: the Jobs have ended, or are gone. What does not hold now never will.
	Over bool
}

// Job whose Pods are asked.
type Job struct {
	Name string
	// UID tells its Pods from those of an earlier Job of that name.
	UID types.UID
}

// Config of a Prober.
type Config struct {
	// Pods are all Pods of a namespace that bear the name of one of the Jobs in their
	// label volcano.sh/job-name. They are not changed.
	Pods func(ctx context.Context, namespace string, jobs []Job) ([]corev1.Pod, error)
	// Changed is told of a flow when the Result of one of its steps has changed. Nil:
	// nobody is.
	Changed func(flow types.NamespacedName)
	// Parallel bounds the requests and connections at any time. 0: 64.
	Parallel int
}

// Prober asks the Pods of many flows' steps.
type Prober struct {
	config Config
	places chan struct{} // a place each for what is under way

	mu      sync.Mutex
	life    context.Context // of all probes; nil before Start
	running map[types.NamespacedName]map[string]*probe
}

// probe is one step's.
type probe struct {
	target Target
	result Result
	stop   context.CancelFunc // nil until it runs
}

// New makes a Prober that asks nothing until it is started.
func New(c Config) *Prober {
	if c.Parallel == 0 {
		c.Parallel = 64
	}
	if c.Changed == nil {
		c.Changed = func(types.NamespacedName) {}
	}
	return &Prober{config: c, places: make(chan struct{}, c.Parallel), running: map[types.NamespacedName]map[string]*probe{}}
}

// Start asks until ctx is done. It is a Runnable of a manager; only the leader asks.
func (p *Prober) Start(ctx context.Context) error {
	p.mu.Lock()
	p.life = ctx
	for flow, steps := range p.running {
		for _, one := range steps {
			p.run(flow, one)
		}
	}
	p.mu.Unlock()
	<-ctx.Done()
	return nil
}

// NeedLeaderElection tells the manager that a second replica does not ask too.
func (p *Prober) NeedLeaderElection() bool { return true }

// Result is what is known of a step's probe.
func (p *Prober) Result(flow types.NamespacedName, step string) Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.running[flow][step]; one != nil {
		return one.result
	}
	return Result{}
}

// Keep asks for exactly these steps of a flow from now on. Those that are asked for
// already go on, unless their target has changed.
func (p *Prober) Keep(flow types.NamespacedName, steps map[string]Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, one := range p.running[flow] {
		if target, kept := steps[name]; !kept || !reflect.DeepEqual(one.target, target) {
			one.end()
			delete(p.running[flow], name)
		}
	}
	for name, target := range steps {
		if p.running[flow][name] == nil {
			p.begin(flow, name, target)
		}
	}
	if len(p.running[flow]) == 0 {
		delete(p.running, flow)
	}
}

// begin needs the lock.
func (p *Prober) begin(flow types.NamespacedName, step string, target Target) {
	if p.running[flow] == nil {
		p.running[flow] = map[string]*probe{}
	}
	one := &probe{target: target, result: Result{State: Waiting, Message: "has not been asked yet"}}
	p.running[flow][step] = one
	if p.life != nil {
		p.run(flow, one)
	}
}

// run needs the lock.
func (p *Prober) run(flow types.NamespacedName, one *probe) {
	ctx, stop := context.WithCancel(p.life)
	one.stop = stop
	go p.ask(ctx, flow, one)
}

func (o *probe) end() {
	if o.stop != nil {
		o.stop()
	}
}

// ask makes rounds until ctx is done or the probe has failed for good.
func (p *Prober) ask(ctx context.Context, flow types.NamespacedName, one *probe) {
	ticker := time.NewTicker(seconds(one.target.Probe.PeriodSeconds, 5))
	defer ticker.Stop()
	tally := tally{probe: &one.target.Probe, over: one.target.Over}
	for {
		result := tally.count(p.round(ctx, flow.Namespace, &one.target))
		if ctx.Err() != nil {
			return // what a round finds as it is cut short is nothing
		}
		p.note(ctx, flow, one, result)
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

// note keeps a result. It is not of a probe that has been ended.
func (p *Prober) note(ctx context.Context, flow types.NamespacedName, one *probe, result Result) {
	p.mu.Lock()
	changed := ctx.Err() == nil && one.result != result
	if changed {
		one.result = result
	}
	p.mu.Unlock()
	if changed {
		p.config.Changed(flow)
	}
}

// seconds are a length of time, or else the default.
func seconds(set *int32, otherwise int32) time.Duration {
	if set != nil && *set > 0 {
		otherwise = *set
	}
	return time.Duration(otherwise) * time.Second
}
