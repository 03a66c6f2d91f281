package placement

import (
	"fmt"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/policy"
)

// allowing sets the policy of a robot.
func allowing(r policy.Rules) func(*Robot) {
	return func(b *Robot) { b.Policy = NewPolicy(&policy.Policy{Allow: r}) }
}

// evaluated returns a task that policies evaluate as this.
func evaluated(name string, s policy.Subject) Task {
	return Task{Name: name, Driver: s.Driver, Subject: s.Key()}
}

func running(command string) policy.Subject {
	return policy.Subject{Namespace: "prod", Driver: "exec", Command: command}
}

func TestDecide_ObeysPolicies(t *testing.T) {
	robots := []Robot{
		robot("closed", allowing(policy.Rules{Namespaces: []string{}})),
		robot("open"),
		robot("scans", allowing(policy.Rules{Commands: []string{"/opt/scan"}})),
		robot("broken", func(b *Robot) { b.Policy = NewPolicy(policy.AllowNothing("line 3")) }),
	}
	for name, c := range map[string]struct {
		in   Demand
		want string // robot, or the diagnosis
	}{
		"any robot":               {Demand{Tasks: []Task{evaluated("t", running("/bin/sh"))}}, "open"},
		"a robot that allows it":  {Demand{Tasks: []Task{evaluated("t", running("/opt/scan"))}, Failed: []string{"open"}}, "scans"},
		"all tasks of a replica":  {Demand{Tasks: []Task{evaluated("t", running("/opt/scan")), evaluated("u", running("/bin/sh"))}, Robot: "scans"}, "robot scans: its policy does not allow config.execConfig.command /bin/sh (allow.commands)"},
		"a robot that is chosen":  {Demand{Tasks: []Task{evaluated("t", running("/bin/sh"))}, Robot: "scans"}, "robot scans: its policy does not allow config.execConfig.command /bin/sh (allow.commands)"},
		"a robot with its files":  {Demand{Tasks: []Task{evaluated("t", running("/bin/sh"))}, Near: []string{"scans"}}, "open"},
		"a file that is unusable": {Demand{Tasks: []Task{evaluated("t", running("/bin/sh"))}, Robot: "broken"}, "robot broken: its policy file cannot be used, so it takes no tasks"},
		"no robot": {Demand{Tasks: []Task{evaluated("t", running("/bin/sh"))}, Failed: []string{"open"}},
			"0 of 4 robots: 1: the task failed on it; 1: its policy does not allow config.execConfig.command /bin/sh (allow.commands); " +
				"1: its policy does not allow metadata.namespace prod (allow.namespaces); 1: its policy file cannot be used, so it takes no tasks"},
	} {
		t.Run(name, func(t *testing.T) {
			out := Decide(Snapshot{Robots: robots, Demands: []Demand{c.in}})
			got := out.Rejected["t"].String()
			if len(out.Bind) == 1 {
				got = out.Bind[0].Robot
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestDecide_PoliciesDistinguishDemands shows that demands with equal needs are no longer alike for a
// robot with a policy, also when the planner has seen others before.
func TestDecide_PoliciesDistinguishDemands(t *testing.T) {
	planner := NewPlanner()
	robots := []Robot{robot("r", allowing(policy.Rules{Commands: []string{"/opt/"}}))}
	for cycle := range 2 {
		var demands []Demand
		for i := range 4 {
			command := []string{"/opt/scan", "/bin/sh"}[i%2]
			demands = append(demands, Demand{Tasks: []Task{evaluated(fmt.Sprint(i), running(command))}})
		}
		out := planner.Decide(Snapshot{Robots: robots, Demands: demands})
		if len(out.Bind) != 2 || out.Rejected["1"] == nil || out.Rejected["3"] == nil {
			t.Errorf("cycle %d: bound %+v, rejected %v", cycle, out.Bind, out.Rejected)
		}
	}
	robots[0] = robot("r", allowing(policy.Rules{Commands: []string{"/bin/"}}))
	out := planner.Decide(Snapshot{Robots: robots, Demands: []Demand{{Tasks: []Task{evaluated("t", running("/bin/sh"))}}}})
	if len(out.Bind) != 1 {
		t.Errorf("after a change of the policy: %v", out.Rejected["t"])
	}
}

func TestDecide_PreemptsOnlyWhereThePolicyAllows(t *testing.T) {
	full := func(name string, changes ...func(*Robot)) Robot {
		r := robot(name, append(changes, func(b *Robot) { b.Capacity.Tasks, b.Held.Tasks = 1, 1 })...)
		return r
	}
	holder := func(name string) []Holder { return []Holder{{Name: name, Priority: 1, Room: Room{Tasks: 1}}} }
	out := Decide(Snapshot{
		Robots:  []Robot{full("a", allowing(policy.Rules{Drivers: []string{}})), full("b")},
		Holders: map[string][]Holder{"a": holder("x"), "b": holder("y")},
		Demands: []Demand{{Tasks: []Task{evaluated("t", running("/bin/sh"))}, Priority: 9, Preempts: true}},
	})
	if len(out.Preempt) != 1 || out.Preempt[0].Robot != "b" {
		t.Errorf("preempts %+v", out.Preempt)
	}
}

func TestPolicy_DecidesWhoCanEverRunTask(t *testing.T) {
	never, sometimes := robot("r", allowing(policy.Rules{Drivers: []string{}})), robot("r", allowing(policy.Rules{Drivers: []string{"exec"}}))
	unusable := robot("r", func(b *Robot) { b.Policy = NewPolicy(policy.AllowNothing("line 3")) })
	task := evaluated("t", running("/bin/sh"))
	for name, c := range map[string]struct {
		in   Robot
		want bool
	}{"no": {never, false}, "yes": {sometimes, true}, "later": {unusable, true}} {
		if got := CanAnyRun(&Demand{Tasks: []Task{task}}, []Robot{c.in}); got != c.want {
			t.Errorf("%s: CanAnyRun = %v", name, got)
		}
		if got := NewMatcher(nil, []Task{task})(&c.in); got != c.want {
			t.Errorf("%s: the matcher returns %v", name, got)
		}
	}
	if never.Equal(sometimes.Offer) || !never.Equal(robot("r", allowing(policy.Rules{Drivers: []string{}})).Offer) || never.Equal(robot("r").Offer) {
		t.Error("offers are compared without their policies")
	}
}

func TestVerdicts_AreBounded(t *testing.T) {
	v, p := verdicts{}, NewPolicy(&policy.Policy{Allow: policy.Rules{Drivers: []string{}}})
	for i := range maxVerdicts + 10 {
		s := running(fmt.Sprint(i))
		v.rejectSubject(p, s.Key())
	}
	if len(v) > maxVerdicts {
		t.Errorf("%d entries", len(v))
	}
}
