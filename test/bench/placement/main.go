// The program bench/placement measures the pure planner: cycles over many robots that place a hundred
// of ten thousand pending tasks with a hundred distinct specs, while other tasks end.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/protocol/policy"
)

var (
	cycles   = flag.Int("cycles", 200, "cycles to measure for each number of robots")
	pending  = flag.Int("pending", 10000, "pending tasks")
	specs    = flag.Int("specs", 100, "distinct specs among them")
	policies = flag.Int("policies", 0, "distinct policies of robots, all of which allow all tasks; 0: robots have none")
	free     = flag.Int("free", 100, "tasks that end before each cycle, and so are bound in it")
)

// result is the last line of the output.
type result struct {
	DecisionsPerS float64 `json:"decisions_per_s"`
	Cycle1000     float64 `json:"cycle_ms_1000"`
	Cycle10000    float64 `json:"cycle_ms_10000"`
}

func main() {
	flag.Parse()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "robots\tpending\tspecs\tbound/cycle\tfirst ms\tp50 ms\tp99 ms\tdecisions/s\t")
	var runs []measured
	for _, robots := range []int{1000, 10000} {
		m := measureCycles(robots)
		runs = append(runs, m)
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.0f\t\n",
			robots, *pending, *specs, *free, m.first, m.quantile(0.5), m.quantile(0.99), m.perSecond())
	}
	w.Flush()
	fmt.Println()
	json.NewEncoder(os.Stdout).Encode(result{
		DecisionsPerS: math.Round(runs[1].perSecond()),
		Cycle1000:     runs[0].quantile(0.99),
		Cycle10000:    runs[1].quantile(0.99),
	})
}

// measured has the times of one run in milliseconds.
type measured struct {
	first  float64 // the cycle of a planner that remembers nothing
	cycles []float64
	total  time.Duration
}

// quantile returns a quantile, rounded to a tenth of a millisecond.
func (m measured) quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(m.cycles))
	return math.Round(10*sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]) / 10
}

// perSecond returns the decisions per second: one for each task that was bound or rejected.
func (m measured) perSecond() float64 {
	return float64(len(m.cycles)**pending) / m.total.Seconds()
}

func measureCycles(robots int) measured {
	p, s := placement.NewPlanner(), newSnapshot(robots)
	var out measured
	for n := range *cycles + 1 {
		endTasks(&s, n)
		began := time.Now()
		got := p.Decide(s)
		took := time.Since(began)
		if len(got.Bind) != *free || len(got.Bind)+len(got.Rejected) != len(s.Demands) {
			fmt.Fprintf(os.Stderr, "cycle %d: %d bound and %d refused of %d\n", n, len(got.Bind), len(got.Rejected), len(s.Demands))
			os.Exit(1)
		}
		if n == 0 {
			out.first = float64(took.Microseconds()) / 1000
		} else {
			out.cycles = append(out.cycles, float64(took.Microseconds())/1000)
			out.total += took
		}
		fillRobots(&s)
	}
	return out
}

// places is the number of tasks that each robot can run. At the start all are taken.
const places = 4

// newSnapshot returns a fleet of full robots in four zones with tasks of many groups, and the pending
// tasks: a hundred of each spec, which has its own rules.
func newSnapshot(robots int) placement.Snapshot {
	var s placement.Snapshot
	for i := range robots {
		r := placement.Robot{Name: fmt.Sprintf("robot-%05d", i), Offer: newOffer(i), Groups: map[string]int{}}
		for n := range places {
			r.Groups[groupName(i*places+n)]++
		}
		s.Robots = append(s.Robots, r)
	}
	fillRobots(&s)
	all := make([]*placement.Rules, *specs)
	for i := range all {
		all[i] = newRules(i)
	}
	for i := range *pending {
		spec, index := i%*specs, i / *specs
		s.Demands = append(s.Demands, newDemand(spec, index, all[spec]))
	}
	return s
}

func newOffer(i int) *placement.Offer {
	return &placement.Offer{
		Policy: newPolicy(i),
		Phase:  lifecycle.RobotOnline,
		Labels: map[string]string{"zone": fmt.Sprint(i % 4), "env": "prod", "robot": fmt.Sprint(i), "datacenter": fmt.Sprint("hall-", i%3)},
		Attrs:  map[string]string{"os": "linux", "arch": "arm64", "cpu.cores": fmt.Sprint(2 + i%7), "kernel": fmt.Sprintf("6.%d.0-18-arm64", i%9)},
		Capacity: placement.Room{
			Tasks: places, CPU: 16000, Memory: 64 << 30, Disk: 1 << 40, IOPS: placement.Unlimited,
			Devices: placement.NewDevices(map[string]int64{"arm": places}),
		},
	}
}

// newPolicy returns one of the policies, each of which is distinct by a namespace of its own.
func newPolicy(robot int) *placement.Policy {
	if *policies == 0 {
		return nil
	}
	return placement.NewPolicy(&policy.Policy{Allow: policy.Rules{
		Namespaces: []string{"prod", fmt.Sprint("team-", robot%*policies)}, Drivers: []string{"exec", "docker"}, Commands: []string{"/usr/bin/", "/opt/robot/"},
	}})
}

func groupName(i int) string { return fmt.Sprintf("group-%03d", i%*specs) }

// newRules returns rules that many robots match. Each spec has different ones.
func newRules(spec int) *placement.Rules {
	return &placement.Rules{
		Selector: map[string]string{"env": "prod"},
		Constraints: []placement.Constraint{
			{Left: "${robot.attr.cpu.cores}", Operand: ">=", Right: fmt.Sprint(1 + spec%3)},
			{Left: "${robot.attr.kernel}", Operand: "version", Right: fmt.Sprintf(">= 6.%d", spec%2)},
			{Left: "${robot.labels.zone}", Operand: "regexp", Right: fmt.Sprintf("^[0-3]$|^%d$", spec)},
		},
	}
}

func resourcesOf(spec int) placement.Room {
	n := placement.Room{Tasks: 1, CPU: int64(500 + spec), Memory: 128 << 20, Disk: 1 << 20}
	if spec%5 == 0 {
		n.Devices = placement.Devices{{Name: "arm", Count: 1}}
	}
	return n
}

func newDemand(spec, index int, rules *placement.Rules) placement.Demand {
	subject := policy.Subject{Namespace: "prod", Driver: "exec", Command: fmt.Sprint("/opt/robot/", groupName(spec))}
	return placement.Demand{
		Tasks: []placement.Task{{Name: fmt.Sprintf("%s-%d-main", groupName(spec), index), Driver: "exec", Needs: resourcesOf(spec), Subject: subject.Key()}},
		Group: groupName(spec), Index: index, Priority: int32(50 + spec%3), Rules: rules,
	}
}

// endTasks ends one task on each of as many robots as tasks are to be bound, on other robots in each
// cycle.
func endTasks(s *placement.Snapshot, cycle int) {
	for i := range *free {
		r := &s.Robots[(cycle**free+i*7)%len(s.Robots)]
		r.Held = r.Held.Minus(resourcesOf(0))
	}
}

// fillRobots fills the robots again: tasks that were bound run, and end in a later cycle.
func fillRobots(s *placement.Snapshot) {
	var full placement.Room
	for range places {
		full = full.Plus(resourcesOf(0))
	}
	for i := range s.Robots {
		s.Robots[i].Held = full
	}
}
