package stepjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

func TestEvaluateWhen(t *testing.T) {
	v := Values{
		Params: map[string]string{"mode": "full", "n": "3"},
		Flows: map[string]StepValues{
			"train":   {State: "Completed", Outputs: map[string]string{"accuracy": "0.93"}},
			"my-step": {State: "Skipped"},
		},
	}
	for when, want := range map[string]bool{
		"":     true,
		"true": true,
		"double(flows.train.outputs.accuracy) > 0.9":                               true,
		"double(flows.train.outputs.accuracy) > 0.95":                              false,
		"int(params.n) == 3 && params['mode'] == 'full'":                           true,
		"flows['my-step'].state == 'Skipped'":                                      true,
		"has(flows['my-step'].outputs.x) && flows['my-step'].outputs.x == 'y'":     false,
		"flows.train.state in ['Completed', 'Failed'] && !has(params.nosuch)":      true,
		"flows.all(s, flows[s].state != 'Failed')":                                 true,
		"'nosuch' in params || flows.exists(s, has(flows[s].outputs.accuracy))":    true,
		"params.mode.startsWith('f') && params.mode.matches('^f.*l$')":             true,
		"timestamp('2026-01-01T00:00:00Z') < timestamp('2027-01-01T00:00:00Z')":    true,
		"size(flows) == 2 && flows.train.outputs == {'accuracy': '0.93'}":          true,
		"(has(params.flag) ? params.flag : 'off') == 'on'":                         false,
		"dyn(flows.train.outputs.accuracy) == '0.93' ? dyn(true) : dyn('neither')": true,
	} {
		t.Run(when, func(t *testing.T) {
			got, err := EvaluateWhen(&flowv1.Flow{Name: "next", When: when}, v)
			if err != nil || got != want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestEvaluateWhen_Errors(t *testing.T) {
	v := Values{Params: map[string]string{"s": strings.Repeat("x", 1000)}, Flows: map[string]StepValues{"train": {}}}
	for _, c := range []struct {
		name, when string
		want       []string
	}{
		{"syntax", "params.x ==", []string{"spec.flows[next].when: does not compile: column 12"}},
		{"unknown variable", "param.x == 'y'", []string{"does not compile", "undeclared reference to 'param'"}},
		{"unknown field of a step", "flows.train.output.x == 'y'", []string{"does not compile", "undefined field 'output'"}},
		{"a dash without brackets", "flows.my-step.outputs.x == 'y'", []string{"does not compile", "flows['my-step'].outputs.x"}},
		{"a number without double", "flows.train.outputs.x > 0.9", []string{"does not compile", "double(…)"}},
		{"no bool", "params.s", []string{"returns string", "true or false"}},
		{"no bool, as is seen too late for the compiler", "dyn(params.s)", []string{"returns string", "true or false"}},
		{"missing output", "flows.train.outputs.x == 'y'", []string{"no such key: x", "has(…)"}},
		{"not a number", "double(params.s) > 1.0", []string{"spec.flows[next].when:"}},
		{"too long", "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, a+b+c+d+e >= 0)))))",
			[]string{"cost limit", "simplify the expression"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := EvaluateWhen(&flowv1.Flow{Name: "next", When: c.when}, v)
			wantError(t, err, c.want...)
		})
	}
}

func TestCheckFlow(t *testing.T) {
	for _, c := range []struct {
		name, flow string
		want       []string // nil: fine
	}{
		{"the flow of Volcano's example", `flows: [{name: a}, {name: b, dependsOn: {targets: [a]}}]`, nil},
		{"empty", `{}`, nil},
		{"references that hold", `
params: {p: x}
flows:
- name: a
- {name: b, dependsOn: {targets: [a]}}
- name: c
  dependsOn: {targets: [b]}
  params: {q: "$(params.p)$(flows.a.outputs.y)"}
  when: params.q == params.p && flows.a.outputs.y == 'z' && flows['b'].state == 'Completed'
  patch: {jobSpec: {tasks: [{template: {spec: {containers: [{name: x, args: ["$(params.q)", "$(flows.a.outputs.y)"]}]}}}]}}`, nil},
		{"a param that may be missing", `flows: [{name: a, when: "has(params.x) && 'y' in params"}]`, nil},
		{"a param that is nowhere", `flows: [{name: a, params: {x: $(params.nosuch)}}]`,
			[]string{"spec.flows[a].params[x]: $(params.nosuch)", "spec.params"}},
		{"a param of the step's own in its params", `flows: [{name: a, params: {x: y, z: $(params.x)}}]`,
			[]string{"spec.flows[a].params[z]: $(params.x)"}},
		{"a step that it does not depend on", `flows: [{name: a}, {name: b, params: {x: $(flows.a.outputs.y)}}]`,
			[]string{"spec.flows[b].params[x]", "does not depend on a", "dependsOn.targets"}},
		{"a when of a step that it does not depend on", `flows: [{name: a}, {name: b, when: "flows.a.state == 'Failed'"}]`,
			[]string{"spec.flows[b].when", "does not depend on a"}},
		{"the same in brackets", `flows: [{name: a-a}, {name: b, when: "flows['a-a'].state == 'Failed'"}]`,
			[]string{"spec.flows[b].when", "does not depend on a-a"}},
		{"a when with a param that is nowhere", `flows: [{name: a, when: params.x == 'y'}]`,
			[]string{"spec.flows[a].when: unknown param x", "spec.params"}},
		{"a when that does not compile", `flows: [{name: a, when: "1 +"}]`, []string{"spec.flows[a].when: does not compile"}},
		{"a negative backoff", `flows: [{name: a, retry: {limit: 1, backoff: -1s}}]`, []string{`spec.flows[a].retry.backoff: "-1s" is no duration, or negative`}},
		{"a backoff that is no duration", `flows: [{name: a, retry: {limit: 1, backoff: soon}}]`, []string{`spec.flows[a].retry.backoff: "soon" is no duration, or negative; use one such as 10s`}},
		{"a patch that does not fit", `flows: [{name: a, patch: {jobSpec: {spec: {}}}}]`,
			[]string{"spec.flows[a].patch.jobSpec.spec:", "no such field"}},
		{"a patch for the other kind", `flows: [{name: a, templateRef: {apiGroup: robot.k8s4r.io}, patch: {jobSpec: {queue: x}}}]`,
			[]string{"spec.flows[a].patch.jobSpec.queue: a Job on robots has no such field"}},
		{"a patch for robots", `flows: [{name: a, templateRef: {apiGroup: robot.k8s4r.io}, patch: {jobSpec: {priority: 3}}}]`, nil},
		{"a probe without targets", `flows: [{name: a, dependsOn: {probe: {tcpSocketList: [{taskName: x, port: 1}]}}}]`,
			[]string{"spec.flows[a].dependsOn.probe: has no Pods to check", "dependsOn.targets"}},
		{"a probe of robots alone", `flows: [{name: r, templateRef: {apiGroup: robot.k8s4r.io}}, {name: a, dependsOn: {targets: [r], probe: {httpGetList: [{port: 1}]}}}]`,
			[]string{"spec.flows[a].dependsOn.probe: all targets run on robots and have no Pods", "condition: Running"}},
		{"a probe of robots and pods", `flows: [{name: r, templateRef: {apiGroup: robot.k8s4r.io}}, {name: b}, {name: a, dependsOn: {targets: [r, b], probe: {httpGetList: [{port: 1}]}}}]`, nil},
		{"a probe that asks nothing", `flows: [{name: a, dependsOn: {probe: {}}}]`, nil},
		{"a phase that there is not", `flows: [{name: b}, {name: a, dependsOn: {targets: [b], probe: {taskStatusList: [{taskName: x, phase: Runs}]}}}]`,
			[]string{`spec.flows[a].dependsOn.probe.taskStatusList[0].phase: unknown Pod phase "Runs"`, "Running"}},
		{"a reference in a patch", `flows: [{name: a, patch: {jobSpec: {tasks: [{template: {spec: {containers: [{name: x, args: [$(params.y)]}]}}}]}}}]`,
			[]string{"spec.flows[a].patch.jobSpec.tasks[0].template.spec.containers[x].args[0]: $(params.y)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckFlow(read[flowv1.JobFlowSpec](t, c.flow))
			if c.want != nil {
				wantError(t, err, c.want...)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckTasks(t *testing.T) {
	for _, c := range []struct {
		name, step string
		want       []string // nil: fine
	}{
		{"no probe", `{name: a}`, nil},
		{"all tasks", `{name: a, dependsOn: {probe: {tcpSocketList: [{port: 1}]}}}`, nil},
		{"tasks that there are", `{name: a, dependsOn: {probe: {tcpSocketList: [{taskName: ps, port: 1}], taskStatusList: [{taskName: default1, phase: Running}]}}}`, nil},
		{"one that there is not", `{name: a, dependsOn: {probe: {tcpSocketList: [{taskName: ps, port: 1}, {taskName: sp, port: 1}]}}}`,
			[]string{"spec.flows[a].dependsOn.probe.tcpSocketList[1].taskName: the Jobs of its targets have no task sp; use one of [ps default1]"}},
		{"in another list", `{name: a, dependsOn: {probe: {httpGetList: [{taskName: sp}]}}}`, []string{"probe.httpGetList[0].taskName"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := &batchv1.JobSpec{Tasks: []batchv1.TaskSpec{{Name: "ps"}, {}}}
			err := CheckTasks(read[flowv1.Flow](t, c.step), TaskNames(spec))
			if c.want != nil {
				wantError(t, err, c.want...)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// A flow of a thousand steps is validated while its user waits.
func TestCheckFlow_ThousandSteps(t *testing.T) {
	spec := &flowv1.JobFlowSpec{Params: map[string]string{"p": "v"}}
	for i := range 1000 {
		spec.Flows = append(spec.Flows, flowv1.Flow{
			Name: fmt.Sprint("s", i), Params: map[string]string{"q": "$(params.p)"}, DependsOn: &flowv1.DependsOn{Targets: []string{fmt.Sprint("s", i+1)}},
		})
	}
	spec.Flows = append(spec.Flows, flowv1.Flow{Name: "s1000"})
	took := time.Hour // the best of three: a machine may pause
	for range 3 {
		start := time.Now()
		if err := CheckFlow(spec); err != nil {
			t.Error(err)
		}
		took = min(took, time.Since(start))
	}
	if took > time.Second {
		t.Errorf("it took %s", took)
	}
}
