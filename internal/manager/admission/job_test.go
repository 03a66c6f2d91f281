package admission

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// badTasks are fields of a task that runs the driver exec, and the expected error below
// spec.taskGroups[a].tasks[t].
var badTasks = []struct{ name, fields, want string }{
	{"template syntax", `templates: [{destPath: a, embeddedTmpl: "{{ if }}"}]`, `templates\[0\]:1: missing value for if`},
	{"an unknown function", `templates: [{destPath: a, embeddedTmpl: "{{ secret }}"}]`, `templates\[0\]:1: function "secret" not defined`},
	{"a destination that climbs", `templates: [{destPath: ../a, embeddedTmpl: x}]`, `templates\[0\]: destPath "../a" is outside the task's directory`},
	{"a source that climbs", `templates: [{destPath: a, sourcePath: ../a}]`, `templates\[0\]: sourcePath "../a" is outside`},
	{"an absolute destination", `templates: [{destPath: /etc/a, embeddedTmpl: x}]`, `templates\[0\]: destPath "/etc/a" is an absolute path`},
	{"an unknown signal", `templates: [{destPath: a, embeddedTmpl: x, changeMode: signal, changeSignal: SIGFOO}]`, `templates\[0\].changeSignal: unknown signal "SIGFOO"`},
	{"changeMode signal without one", `templates: [{destPath: a, embeddedTmpl: x, changeMode: signal}]`, `templates\[0\].changeSignal: unknown signal ""; changeMode signal needs one`},
	{"a signal that is never sent", `templates: [{destPath: a, embeddedTmpl: x, changeSignal: SIGHUP}]`, `templates\[0\].changeSignal: has no effect without changeMode signal`},
	{"an unknown scheme", `artifacts: [{getterSource: "git::x"}]`, `artifacts\[0\].*: getterSource must begin with http://, https:// or file:///`},
	{"a malformed checksum", `artifacts: [{getterSource: "http://a/b", getterOptions: {checksum: "sha256:12"}}]`, `artifacts\[0\] http://a/b: getterOptions.checksum must be sha256: followed by 64 hexadecimal digits`},
	{"malformed permissions", `artifacts: [{getterSource: "http://a/b", getterOptions: {perms: "999"}}]`, `getterOptions.perms "999" must be octal`},
	{"an unknown option", `artifacts: [{getterSource: "http://a/b", getterOptions: {depth: "1"}}]`, `getterOptions.depth is not supported`},
	{"an artifact that climbs", `artifacts: [{getterSource: "http://a/b", relativeDest: ../x}]`, `artifacts\[0\] http://a/b: relativeDest "../x" is outside`},
	{"a NUL in an argument", `config: {execConfig: {command: x, args: ["a\u0000b"]}}`, `config: "a\\x00b" contains a NUL character`},
	{"an argument that is too long", `config: {execConfig: {command: x, args: ["` + strings.Repeat("a", 131072) + `"]}}`, `config: .*has 131072 bytes, and Linux accepts at most 131071`},
	{"a variable that is too long", `env: {A: "` + strings.Repeat("a", 131070) + `"}`, `env\[A\]: .*has 131072 bytes`},
	{"a task above the size of a message", `env: {A: "` + strings.Repeat("a", 110000) + `", B: "` + strings.Repeat("b", 110000) + `"}`, `task t is too large for a message to a robot`},
	{"undefined meta", `env: {A: "${meta.none}"}`, `env\[A\]: "\$\{meta.none\}": \$\{meta.none\} is not known`},
	{"an attribute that no robot has", `config: {execConfig: {command: "${robot.attr.mood}"}}`, `config: .*\$\{robot.attr.mood\} is not known`},
	{"a reference to what robots do not have", `env: {A: "${robot.label.x}"}`, `\$\{robot.label.x\} is not known`},
	{"a port above 65535", `driver: docker, config: {dockerConfig: {image: x, ports: ["70000:80"]}}`, `config.dockerConfig.ports\[0\] "70000:80" is not host:container\[/udp\]: "70000" is not a port from 1 to 65535`},
	{"a relative volume", `driver: docker, config: {dockerConfig: {image: x, volumes: ["data:/b"]}}`, `volumes\[0\] "data:/b" is not`},
	{"ports without a network", `driver: docker, config: {dockerConfig: {image: x, networkMode: host, ports: ["80:80"]}}`, `ports has no effect with networkMode "host"`},
	{"two commands of a container", `driver: docker, config: {execConfig: {command: x}, dockerConfig: {image: x, command: y}}`, `config.execConfig: is another spelling of command and args in dockerConfig`},
	{"a classpath without a class", `driver: java, config: {javaConfig: {jarPath: x, classpath: [y]}}`, `config.javaConfig.class is required with classpath`},
	{"a NUL in the path of a jar", `driver: java, config: {javaConfig: {jarPath: "a\u0000.jar"}}`, `config.javaConfig: "a\\x00.jar" contains a NUL character`},
	{"a NUL in a class", `driver: java, config: {javaConfig: {jarPath: x, class: "a\u0000b"}}`, `config.javaConfig: "a\\x00b" contains a NUL character`},
	{"a classpath that is too long", `driver: java, config: {javaConfig: {jarPath: x, class: Main, classpath: ["` + strings.Repeat("a", 131070) + `"]}}`, `config.javaConfig: .*has 131072 bytes`},
	{"two ports of one name", `resources: {networks: [{ports: [{name: http-api}], reservedPorts: [{label: HTTP_API, value: 80}]}]}`, `resources.networks: two ports are named "http-api"`},
}

// longItem is an item of an array that takes six times as many bytes in a message.
var longItem = `"` + strings.Repeat(`\u0001`, 12000) + `"`

// jobWith returns a Job with fields of its only task, of its group, and of its spec.
func jobWith(t *testing.T, task, group, spec string) *robotv1.JobSpec {
	t.Helper()
	if !strings.Contains(task, "config:") {
		task = strings.Trim("config: {execConfig: {command: x}}, "+task, ", ")
	}
	if !strings.Contains(task, "driver:") {
		task = "driver: exec, " + task
	}
	out := &robotv1.JobSpec{}
	text := "meta: {team: blue}\n" + spec + "\ntaskGroups: [{name: a, meta: {site: x}, " + group + " tasks: [{name: t, " + task + "}]}]\n"
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err, text[:min(len(text), 500)])
	}
	return out
}

func requireError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Errorf("got %.500v, want %s", err, want)
	}
}

func TestValidate_RefusesTasksThatNoRobotCanStart(t *testing.T) {
	for _, row := range badTasks {
		t.Run(row.name, func(t *testing.T) {
			spec := jobWith(t, row.fields, "", "")
			requireError(t, ValidateJob(spec), `(?s)^spec\.taskGroups\[a\]\.tasks\[t\]\..*`+row.want)
			one := &robotv1.TaskSpec{TaskDefinition: spec.TaskGroups[0].Tasks[0]}
			requireError(t, ValidateTask(one), `(?s)^spec\..*`+row.want)
		})
	}
}

func TestValidate_RefusesJobsThatNoRobotCanMatch(t *testing.T) {
	for _, row := range []struct{ name, group, spec, want string }{
		{"a selector with a space", "", `robotSelector: {site: "a b"}`, `^spec.robotSelector: no robot can have the label "site=a b": `},
		{"a selector without a name", "", `robotSelector: {"": a}`, `^spec.robotSelector: no robot can have the label "=a"`},
		{"a datacenter with a space", "", `datacenters: ["a b"]`, `^spec.datacenters: no robot can have the label "datacenter=a b"`},
		{"affinity to a label with a space", `placement: {affinity: [{robotLabels: {site: "a b"}}]},`, "", `^spec.taskGroups\[a\].placement.affinity\[0\].robotLabels: no robot`},
		{"a pattern that does not compile", `constraints: [{lTarget: "${attr.os}", operand: regexp, rTarget: "("}],`, "", `^spec.taskGroups\[a\].constraints\[0\]: .*rTarget is not a pattern of RE2: missing closing \)`},
		{"a label with a space", `constraints: [{lTarget: "${robot.labels.a b}", operand: "=", rTarget: x}],`, "", `no robot can have a label "a b"`},
		{"the value of a label with a space", `constraints: [{lTarget: "${robot.labels.a}", operand: "=", rTarget: "x y"}],`, "", `no label can have the value "x y"`},
		{"an array of a service", "array: {size: 3},", "type: service", `^spec.taskGroups\[a\].array: each index must end`},
		{"indexes that are none", "array: {indexes: 5-3},", "", `^spec.taskGroups\[a\].array.indexes: "5-3": the range ends before it begins`},
		{"items that no message can hold", "array: {rangeSize: 3, items: [" + longItem + ", " + longItem + ", " + longItem + "]},", "", `^spec.taskGroups\[a\].array.items: task t is too large .*, or set a lower rangeSize`},
		{"two texts", `constraints: [{lTarget: linux, operand: "=", rTarget: darwin}],`, "", `compares two texts, and holds on no robot`},
		{"a range that is none", `constraints: [{lTarget: "${robot.attr.kernel}", operand: version, rTarget: new}],`, "", `"new" is not a version`},
	} {
		t.Run(row.name, func(t *testing.T) { requireError(t, ValidateJob(jobWith(t, "", row.group, row.spec)), row.want) })
	}
}

func TestValidate_AcceptsWhatRobotsUnderstand(t *testing.T) {
	spec := jobWith(t, `env: {A: "${meta.team} ${meta.site} ${robot.labels.a/b} ${robot.attr.os} ${attr.os} ${HOME} $${meta.none} ${a:-b}"},`+
		` templates: [{destPath: a/b, embeddedTmpl: '{{ env "A" }}', changeMode: signal, changeSignal: SIGHUP}],`+
		` artifacts: [{getterSource: "https://a/b.tar.gz", relativeDest: x, getterOptions: {checksum: "sha256:`+strings.Repeat("0", 64)+`"}}]`,
		`constraints: [{lTarget: "${robot.labels.a}", operand: "=", rTarget: "8Gi"}, {lTarget: "${robot.labels.a}", operand: "!=", rTarget: "x y"}, {lTarget: a, operand: "=", rTarget: a}],`,
		`robotSelector: {example.com/site: hall-1, empty: ""}`)
	if err := ValidateJob(spec); err != nil {
		t.Error(err)
	}
}

// The patch of a workflow may add meta to a template.
func TestValidate_AcceptsTemplateWithoutMeta(t *testing.T) {
	if err := ValidateTemplate(jobWith(t, `env: {A: "${meta.none}"}`, "", "")); err != nil {
		t.Error(err)
	}
}

func TestValidate_AcceptsExampleTemplates(t *testing.T) {
	files, err := filepath.Glob("../../../examples/jobflow/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		for name, template := range readExample(t, file).robots {
			if err := ValidateTemplate(&template.Spec); err != nil {
				t.Errorf("%s: %s: %v", file, name, err)
			}
		}
	}
}
