package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestAdmission_ScriptsWithReferencesAreWarnedAbout has a tenant whose scripts contain values that
// robots and programs choose.
func TestAdmission_ScriptsWithReferencesAreWarnedAbout(t *testing.T) {
	t.Parallel()
	s := share(t, flowServer, flowsOnly).namespace(t, "shell-references")
	s.bind("edits", "tenant", "edit")
	awaitPolicies(t, s)
	exec := func(args string) string {
		return `{name: t, driver: exec, config: {execConfig: {command: sh, args: [` + args + `]}}}`
	}
	docker := func(args string) string {
		return `{name: t, driver: docker, config: {dockerConfig: {image: x, command: sh, args: [` + args + `]}}}`
	}
	pods := func(command, args string) string {
		return `{tasks: [{name: main, template: {spec: {containers: [{name: c, image: x, command: [` + command + `], args: [` + args + `]}]}}}]}`
	}
	template := func(spec string) string {
		return `{apiVersion: flow.volcano.sh/v1alpha1, kind: JobTemplate, spec: ` + spec + `}`
	}
	patchOfPods := func(spec string) string {
		return `{apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, spec: {params: {a: b}, flows: [{name: a, patch: {jobSpec: ` + spec + `}}]}}`
	}
	const (
		label    = `"-c", "echo ${robot.labels.site}"`
		attr     = `"-ec", "\necho\n${robot.attr.hostname}"`
		older    = `"-c", "echo ${attr.hostname}"`
		output   = `"-c", "echo $(flows.a.outputs.x)"`
		param    = `"-c", "echo $(params.a)"`
		literal  = `"-c", "echo $${robot.labels.site} $$(params.a) $(date) ${meta.a} ${HOME}"`
		behind   = `"-c", "echo $1", sh, "${robot.labels.site}"`
		without  = `"${robot.labels.site}", "$(params.a)"`
		onRobots = `taskGroups[].tasks[].config of %sg/t: the script after -c contains a reference`
		inPods   = `tasks[].template.spec.containers[] of %smain/c: the script after -c contains a reference`
	)
	for i, c := range []struct{ name, manifest, want string }{
		{"a label in a Job", carriers["Job"](exec(label)), fmt.Sprintf(onRobots, "")},
		{"an attribute in an init task of a Job", carriers["Job with init tasks"](docker(attr)), fmt.Sprintf(onRobots, "")},
		{"an attribute in the spelling of the older protocol", carriers["Job"](exec(older)), fmt.Sprintf(onRobots, "")},
		{"a command that is a list", carriers["Job"](`{name: t, driver: docker, config: {dockerConfig: {image: x, command: [sh, ` + label + `]}}}`), fmt.Sprintf(onRobots, "")},
		{"an output in a JobTemplate", carriers["JobTemplate"](exec(output)), fmt.Sprintf(onRobots, "")},
		{"a label in a patch", carriers["patch of a JobFlow"](exec(label)), fmt.Sprintf(onRobots, "step a ")},
		{"a label in a patch of a cron", carriers["patch of a CronJobFlow"](exec(label)), fmt.Sprintf(onRobots, "step a ")},
		{"an output in a template of pods", template(pods("sh", output)), fmt.Sprintf(inPods, "")},
		{"a param in args after a command", template(pods(`bash, "-c"`, `"echo $(params.a)"`)), fmt.Sprintf(inPods, "")},
		{"a param in a patch of pods", patchOfPods(pods("sh", param)), fmt.Sprintf(inPods, "step a ")},
		{"literal text", carriers["Job"](exec(literal)), ""},
		{"an argument of the script", carriers["Job"](exec(behind)), ""},
		{"no script", carriers["JobTemplate"](exec(without)), ""},
		{"no script in pods", template(pods("cat", without)), ""},
		{"no patch", `{apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, spec: {flows: [{name: a}]}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var warnings warningRecorder
			tenant := s.warned("tenant", &warnings)
			hasWarning := func() bool {
				return slices.ContainsFunc(warnings.list(), func(w string) bool { return strings.Contains(w, c.want) })
			}
			if i == 0 {
				testkit.EventuallyNoError(t, waitTimeout, "the right and the policy are in force", func() error {
					if err := s.submit(tenant, c.manifest); err != nil {
						return err
					}
					if !hasWarning() {
						return fmt.Errorf("warnings %q, want %q", warnings.list(), c.want)
					}
					return nil
				})
				return
			}
			if err := s.submit(tenant, c.manifest); err != nil {
				t.Fatal(err)
			}
			if got := warnings.list(); c.want == "" && len(got) > 0 || !hasWarning() && c.want != "" {
				t.Errorf("warnings %q, want %q", got, c.want)
			}
		})
	}
}

// warned returns a client that acts as another user and records warnings in w.
func (s *space) warned(user string, w *warningRecorder) client.Client {
	s.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate, config.WarningHandler = rest.ImpersonationConfig{UserName: user}, w
	c, err := client.New(config, client.Options{Scheme: manager.NewScheme()})
	s.must(err)
	return c
}
