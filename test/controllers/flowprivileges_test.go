package controllers

import (
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// privilegedTemplate is a template of a trusted user. Its command contains meta and a param.
const privilegedTemplate = `{apiVersion: robot.k8s4r.io/v1alpha1, kind: JobTemplate, metadata: {name: tour}, spec: {taskGroups: [{name: g, tasks: [
  {name: raw, driver: raw_exec, config: {execConfig: {command: echo, args: ["${meta.script}", "$(params.script)"]}}}]}]}}`

// patchedFlow is a workflow whose step tour has a patch.
func patchedFlow(name, patch string) string {
	return `{apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, metadata: {name: ` + name + `}, spec: {params: {script: theirs},
	  flows: [{name: tour, templateRef: {apiGroup: robot.k8s4r.io, kind: JobTemplate, name: tour}` + patch + `}]}}`
}

// named is an object of this namespace that keeps its name.
func (s *space) named(manifest string) *unstructured.Unstructured {
	s.Helper()
	o := s.object(manifest)
	o.SetGenerateName("")
	return o
}

// TestJobFlow_PatchesReachPrivilegedTemplatesOnlyWithThePermission has a tenant who may edit a
// namespace that has a privileged template of another user.
func TestJobFlow_PatchesReachPrivilegedTemplatesOnlyWithThePermission(t *testing.T) {
	t.Parallel()
	s := share(t, flowServer, flowsOnly).flows(t, "flow-privileges")
	s.bind("edits", "tenant", "k8s4r-edit")
	s.bind("edits-too", "trusted", "k8s4r-edit")
	s.bind("trusts", "trusted", "k8s4r-privileged-tasks")
	tenant, trusted := s.as("tenant"), s.as("trusted")
	awaitPolicies(t, s)
	testkit.EventuallyNoError(s, waitTimeout, "the rights of trusted are in force", func() error {
		return trusted.Create(t.Context(), s.named(privilegedTemplate))
	})
	testkit.EventuallyNoError(s, waitTimeout, "the rights of tenant are in force", func() error {
		return s.submit(tenant, patchedFlow("any", ""))
	})
	const (
		raw    = `{name: raw, driver: raw_exec}`
		added  = `{name: new, driver: exec, config: {execConfig: {command: mine}}}`
		remedy = "set driver: raw_exec in patch.jobSpec.taskGroups[g].tasks[raw], too"
	)
	for i, c := range []struct{ name, patch, repeated, field string }{
		{"meta of the Job", `{meta: {script: mine}}`, `{meta: {script: mine}, taskGroups: [{name: g, tasks: [` + raw + `]}]}`, "patch.jobSpec.meta: also changes "},
		{"meta of the group", `{taskGroups: [{name: g, meta: {script: mine}}]}`, `{taskGroups: [{name: g, meta: {script: mine}, tasks: [` + raw + `]}]}`, "patch.jobSpec.taskGroups[g].meta: also changes "},
		{"an added task", `{taskGroups: [{name: g, tasks: [` + added + `]}]}`, `{taskGroups: [{name: g, tasks: [` + added + `, ` + raw + `]}]}`, "patch.jobSpec.taskGroups[g].tasks[new]: also changes "},
	} {
		t.Run(c.name, func(t *testing.T) {
			silent, loud := fmt.Sprint("silent-", i), fmt.Sprint("loud-", i)
			s.must(tenant.Create(t.Context(), s.named(patchedFlow(silent, `, patch: {jobSpec: `+c.patch+`}`))))
			s.awaitRefusedStep(silent, "spec.flows[tour]."+c.field+"taskGroups[g].tasks[raw]", remedy)
			repeating := patchedFlow(loud, `, patch: {jobSpec: `+c.repeated+`}`)
			if err := tenant.Create(t.Context(), s.named(repeating)); err == nil || !strings.Contains(err.Error(), privileged["raw_exec"].want) {
				t.Errorf("a tenant repeats the privilege: %v", err)
			}
			s.must(trusted.Create(t.Context(), s.named(repeating)))
			s.awaitRobotJob(loud + "-tour")
		})
	}
	t.Run("params are what the template offers", func(t *testing.T) {
		s.must(tenant.Create(t.Context(), s.named(patchedFlow("params", `, params: {script: mine}`))))
		if j := s.awaitRobotJob("params-tour"); j.Spec.TaskGroups[0].Tasks[0].Config.ExecConfig.Args[1] != "mine" {
			t.Errorf("%+v", j.Spec.TaskGroups[0].Tasks[0].Config.ExecConfig)
		}
	})
}

// awaitRefusedStep waits until a flow's condition and an event have all of these texts, and checks
// that the step tour has no Job.
func (s *flows) awaitRefusedStep(flow string, texts ...string) {
	s.Helper()
	missing := func(message string) error {
		for _, text := range texts {
			if !strings.Contains(message, text) {
				return fmt.Errorf("%q does not contain %q", message, text)
			}
		}
		return nil
	}
	f := s.await(flow, "its step is refused", func(f *flowv1.JobFlow) error {
		c := meta.FindStatusCondition(f.Status.FlowConditions, flowv1.ConditionValid)
		if c == nil || c.Status != "False" || c.Reason != "TemplateInvalid" {
			return fmt.Errorf("condition %+v", c)
		}
		return missing(c.Message)
	})
	testkit.EventuallyNoError(s, waitTimeout, "an event", func() error {
		var list eventsv1.EventList
		if err := s.List(s.Context(), &list, client.InNamespace(s.name)); err != nil {
			return err
		}
		err := fmt.Errorf("no event of %s among %d", flow, len(list.Items))
		for _, e := range list.Items {
			if e.Regarding.UID == f.UID && e.Type == "Warning" {
				if err = missing(e.Note); err == nil {
					return nil
				}
			}
		}
		return err
	})
	if err := s.Get(s.Context(), s.key(flow+"-tour"), &robotv1.Job{}); client.IgnoreNotFound(err) != nil || err == nil {
		s.Errorf("the Job of flow %s exists: %v", flow, err)
	}
}

// awaitRobotJob waits for a Job on robots.
func (s *flows) awaitRobotJob(name string) *robotv1.Job {
	s.Helper()
	var j robotv1.Job
	testkit.EventuallyNoError(s, waitTimeout, "job "+name+" exists", func() error { return s.Get(s.Context(), s.key(name), &j) })
	return &j
}

// TestAdmission_PatchesOfFlowsNeedTheRightToCreateJobs has users who may write workflows and no
// Jobs, or only Jobs of one kind.
func TestAdmission_PatchesOfFlowsNeedTheRightToCreateJobs(t *testing.T) {
	t.Parallel()
	s := share(t, flowServer, flowsOnly).namespace(t, "flow-patches")
	const flow, robot, pod = "flow.volcano.sh/jobflows", "robot.k8s4r.io/jobs", "batch.volcano.sh/jobs"
	for user, resources := range map[string][]string{
		"author": {flow, "flow.k8s4r.io/cronjobflows"}, "of-robots": {flow, robot}, "of-pods": {flow, pod, "/pods"}, "no-pods": {flow, pod},
	} {
		for _, resource := range resources {
			s.allowIn(user, resource, "create", "patch")
		}
	}
	s.allowIn("operator", flow, "patch")
	awaitPolicies(t, s)
	author, ofRobots, ofPods, operator := s.as("author"), s.as("of-robots"), s.as("of-pods"), s.as("operator")
	jobsOnly := s.as("no-pods")
	const (
		pods   = `{name: train, patch: {jobSpec: {tasks: [{name: main, template: {spec: {serviceAccountName: admin}}}]}}}`
		robots = `{name: drive, templateRef: {apiGroup: robot.k8s4r.io}, patch: {jobSpec: {robotSelector: {a: b}}}}`
		claims = `{name: store, patch: {jobSpec: {volumes: [{mountPath: /data, volumeClaim: {}}]}}}`
		none   = `{name: plain, params: {a: b}, patch: {}}`
	)
	jobFlow := func(step string) *unstructured.Unstructured {
		return s.object(`{apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, spec: {flows: [` + step + `]}}`)
	}
	cron := func(step string) *unstructured.Unstructured {
		return s.object(`{apiVersion: flow.k8s4r.io/v1alpha1, kind: CronJobFlow, spec: {schedule: "0 0 1 1 *", jobFlowTemplate: {spec: {flows: [` + step + `]}}}}`)
	}
	const suffix = " in namespace flow-patches; remove the patch, or ask an administrator for the permission"
	noPods := "spec.flows[].patch of train: changes what its Job runs, and you may not create jobs.batch.volcano.sh" + suffix
	noRobots := "spec.flows[].patch of drive: changes what its Job runs, and you may not create jobs.robot.k8s4r.io" + suffix
	creates := []creation{
		{"a flow without a patch", author, jobFlow(none), ""},
		{"a cron without a patch", author, cron(none), ""},
		{"a patch of pods", author, jobFlow(none + ", " + pods), noPods},
		{"a patch of pods in a cron", author, cron(pods), noPods},
		{"a patch of robots", author, jobFlow(robots), noRobots},
		{"a patch of robots in a cron", author, cron(robots), noRobots},
		{"a patch of pods by an author who may create those Jobs", ofPods, jobFlow(pods), ""},
		{"a patch of robots by an author who may create the other Jobs", ofPods, jobFlow(robots), noRobots},
		{"a patch of pods by an author who may create Jobs and no Pods", jobsOnly, jobFlow(pods), "spec.flows[].patch of train: changes what its Pods run, and you may not create pods" + suffix},
		{"a patch with a claim by an author who may not create claims", ofPods, jobFlow(claims), "spec.flows[].patch of store: creates claims from volumeClaim, and you may not create persistentvolumeclaims"},
		{"a patch of robots by an author who may create those Jobs", ofRobots, jobFlow(robots), ""},
		{"a patch of pods by an author who may create the other Jobs", ofRobots, jobFlow(pods), noPods},
	}
	awaitResponses(s, creates)
	plain, patched := jobFlow(none), jobFlow(pods)
	s.must(s.Create(t.Context(), plain))
	s.must(s.Create(t.Context(), patched))
	addPatch := `[{"op":"replace","path":"/spec/flows/0/patch","value":{"jobSpec":{"queue":"mine"}}}]`
	awaitResponses(s, []change{
		{"author adds a patch", author, plain, addPatch, "spec.flows[].patch of plain: changes what its Job runs, and you may not create jobs.batch.volcano.sh"},
		{"author changes the params of a patched step", author, patched, `{"spec":{"params":{"a":"b"}}}`, noPods},
		{"an author who may create those Jobs adds a patch", ofPods, plain, addPatch, ""},
		{"author suspends a patched flow", author, patched, `{"spec":{"suspend":true}}`, ""},
		{"operator suspends a patched flow", operator, patched, `{"spec":{"suspend":true}}`, ""},
	})
}
