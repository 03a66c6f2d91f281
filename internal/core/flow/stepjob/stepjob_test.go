package stepjob

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// read parses YAML strictly.
func read[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// patched returns a step with a patch.
func patched(t *testing.T, text string) *flowv1.Flow {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &flowv1.Flow{Name: "train", Patch: &flowv1.Patch{JobSpec: &runtime.RawExtension{Raw: raw}}}
}

// wantError checks that err contains all of the texts.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

const podTemplate = `
metadata: {name: train}
spec:
  minAvailable: 2
  queue: default
  maxRetry: 3
  plugins: {env: [], svc: [--publish-not-ready-addresses]}
  policies: [{event: PodFailed, action: RestartJob}]
  tasks:
  - replicas: 1
    template:
      spec:
        containers:
        - {name: main, image: python, command: [python, train.py], env: [{name: A, value: a}, {name: B, value: b}]}
        volumes: [{name: data, emptyDir: {}}]
        restartPolicy: Never
  - name: ps
    replicas: 1
    template: {spec: {containers: [{name: ps, image: python}]}}
`

func TestBuildPodJobSpec_Patch(t *testing.T) {
	for _, c := range []struct{ name, patch, want string }{
		{"a scalar of the spec", `{queue: gpu, minAvailable: 1}`,
			`{minAvailable: 1, queue: gpu}`},
		{"what is not set stays, of the values of Volcano's defaulting too", `{priorityClassName: high}`,
			`{priorityClassName: high, queue: default, maxRetry: 3}`},
		{"a map by its keys", `{plugins: {ssh: []}}`,
			`{plugins: {env: [], svc: [--publish-not-ready-addresses], ssh: []}}`},
		{"policies whole", `{policies: [{event: PodEvicted, action: AbortJob}]}`,
			`{policies: [{event: PodEvicted, action: AbortJob}]}`},
		{"nulls delete nothing", `{queue: null, tasks: null}`, `{queue: default}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			template := read[flowv1.JobTemplate](t, podTemplate)
			got, err := BuildPodJobSpec(template, patched(t, c.patch), Values{})
			if err != nil {
				t.Fatal(err)
			}
			want := template.Spec.DeepCopy()
			nameTasks(want.Tasks)
			over := read[batchv1.JobSpec](t, c.want)
			overlay(want, over)
			if !equality.Semantic.DeepEqual(&got, want) {
				t.Errorf("got %+v\nwant %+v", got, *want)
			}
		})
	}
}

// overlay replaces the fields of a spec that are set.
func overlay(spec, over *batchv1.JobSpec) {
	set := func(have, value *string) {
		if *value != "" {
			*have = *value
		}
	}
	set(&spec.Queue, &over.Queue)
	set(&spec.PriorityClassName, &over.PriorityClassName)
	if over.MinAvailable != 0 {
		spec.MinAvailable = over.MinAvailable
	}
	if over.Plugins != nil {
		spec.Plugins = over.Plugins
	}
	if over.Policies != nil {
		spec.Policies = over.Policies
	}
}

func TestBuildPodJobSpec_PatchesTasks(t *testing.T) {
	template := read[flowv1.JobTemplate](t, podTemplate)
	before := template.DeepCopy()
	got, err := BuildPodJobSpec(template, patched(t, `
tasks:
- replicas: 4
  template:
    spec:
      containers:
      - name: main
        args: [--fast]
        env: [{name: B, value: patched}, {name: C, value: c}]
      - {name: side, image: busybox}
- name: eval
  replicas: 1
  template: {spec: {containers: [{name: main, image: python}]}}
`), Values{})
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(template, before) {
		t.Error("the template was changed, and with it that of other flows")
	}
	var names []string
	tasks := map[string]batchv1.TaskSpec{}
	for _, task := range got.Tasks {
		names = append(names, task.Name)
		tasks[task.Name] = task
	}
	if strings.Join(names, " ") != "default0 ps eval" && len(names) != 3 {
		t.Errorf("tasks %v", names)
	}
	first := tasks["default0"]
	if first.Replicas != 4 || first.Template.Spec.RestartPolicy != "Never" || len(first.Template.Spec.Volumes) != 1 {
		t.Errorf("default0: %+v", first)
	}
	containers := map[string]string{}
	for _, ctr := range first.Template.Spec.Containers {
		containers[ctr.Name] = ctr.Image + " " + strings.Join(append(ctr.Command, ctr.Args...), " ")
		for _, e := range ctr.Env {
			containers[ctr.Name] += " " + e.Name + "=" + e.Value
		}
	}
	if got := containers["main"]; !strings.HasPrefix(got, "python python train.py --fast") ||
		!strings.Contains(got, "A=a") || !strings.Contains(got, "B=patched") || !strings.Contains(got, "C=c") {
		t.Errorf("main: %s", got)
	}
	if containers["side"] != "busybox " {
		t.Errorf("side: %s", containers["side"])
	}
}

func TestBuildPodJobSpec_RejectsInvalidPatch(t *testing.T) {
	for _, c := range []struct {
		name, patch string
		want        []string
	}{
		{"unknown field", `{queu: x}`, []string{"spec.flows[train].patch.jobSpec.queu:", "no such field"}},
		{"unknown field deep down", `{tasks: [{template: {spec: {containers: [{name: main, imag: x}]}}}]}`,
			[]string{"patch.jobSpec.tasks[0].template.spec.containers[0].imag:", "no such field"}},
		{"a field of the other kind of Job", `{taskGroups: []}`,
			[]string{"patch.jobSpec.taskGroups", "templateRef.apiGroup: robot.k8s4r.io"}},
		{"wrong type", `{tasks: [{replicas: many}]}`, []string{"patch.jobSpec.tasks.replicas: is a string, but a Job of pods needs a int32 here"}},
		{"not an object", `[]`, []string{"spec.flows[train].patch.jobSpec:", "must be an object"}},
		{"delete directive", `{tasks: [{name: ps, $patch: delete}]}`, []string{"$patch", "no such field"}},
		{"an added task without a template", `{tasks: [{name: default0}, {name: worker, replicas: 2}]}`,
			[]string{"patch.jobSpec.tasks[worker]:", "JobTemplate train has no such task", "[default0 ps]", "template.spec.containers"}},
		{"an added container without an image", `{tasks: [{template: {spec: {containers: [{name: mian, args: [x]}]}}}]}`,
			[]string{"tasks[default0].template.spec.containers[mian]:", "has no such container", "set image"}},
		{"a container without a name", `{tasks: [{template: {spec: {containers: [{args: [x]}]}}}]}`,
			[]string{"patch.jobSpec", "merge key: name", "set the merge key of each item"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := BuildPodJobSpec(read[flowv1.JobTemplate](t, podTemplate), patched(t, c.patch), Values{})
			wantError(t, err, c.want...)
		})
	}
}

func TestBuildPodJobSpec_WithoutPatchEqualsTemplate(t *testing.T) {
	template := read[flowv1.JobTemplate](t, podTemplate)
	got, err := BuildPodJobSpec(template, &flowv1.Flow{Name: "train"}, Values{})
	if err != nil || !equality.Semantic.DeepEqual(got, template.Spec) {
		t.Errorf("%v: got %+v", err, got)
	}
}

func TestBuildPodJobSpec_ReplacesReferences(t *testing.T) {
	template := read[flowv1.JobTemplate](t, `
metadata: {name: train}
spec:
  queue: $(params.lr)
  tasks:
  - name: $(params.lr)
    template:
      spec:
        initContainers: [{name: i, image: x, args: ["$(flows.prep.outputs.path)"]}]
        containers:
        - name: c
          image: $(params.lr)
          command: [sh, "-c", "echo $$ $(HOME) $(params.lr)"]
          args: ["--lr=$(params.lr)", "$$(params.lr)", "$(params.money)", "$x", "$(", "$"]
          env: [{name: E, value: "$(flows.my.step.outputs.y)"}, {name: F, value: "$(E)"}]
`)
	v := Values{
		Params: map[string]string{"lr": "0.1", "money": "$(HOME) $5"},
		Flows: map[string]StepValues{
			"prep": {State: "Completed", Outputs: map[string]string{"path": "/data"}}, "my.step": {Outputs: map[string]string{"y": "yes"}},
		},
	}
	spec, err := BuildPodJobSpec(template, &flowv1.Flow{Name: "train"}, v)
	if err != nil {
		t.Fatal(err)
	}
	pod := spec.Tasks[0].Template.Spec
	got := strings.Join([]string{
		spec.Queue, spec.Tasks[0].Name, pod.InitContainers[0].Args[0], pod.Containers[0].Image,
		strings.Join(pod.Containers[0].Command, "|"), strings.Join(pod.Containers[0].Args, "|"),
		pod.Containers[0].Env[0].Value, pod.Containers[0].Env[1].Value,
	}, "\n")
	want := strings.Join([]string{
		"$(params.lr)", "$(params.lr)", "/data", "$(params.lr)",
		"sh|-c|echo $$ $(HOME) 0.1", "--lr=0.1|$$(params.lr)|$$(HOME) $$5|$x|$(|$", "yes", "$(E)",
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBuildPodJobSpec_RejectsUndefinedReferences(t *testing.T) {
	v := Values{Flows: map[string]StepValues{"prep": {State: "Skipped"}, "cut": {State: "Completed", Outputs: map[string]string{"x": "", "w": ""}}}}
	for _, c := range []struct {
		arg  string
		want []string
	}{
		{"$(params.lr)", []string{"JobTemplate train: spec.tasks[0].template.spec.containers[c].args[0]: $(params.lr)", "spec.params", "$$(params.lr)"}},
		{"$(flows.prep.outputs.y)", []string{"step prep is Skipped", "[]"}},
		{"$(flows.cut.outputs.y)", []string{"step cut is Completed", "[w x]", "y=VALUE"}},
		{"$(flows.far.outputs.y)", []string{"does not depend on far", "dependsOn.targets"}},
		{"$(flows.prep.output.y)", []string{"is not a valid reference", "$(flows.STEP.outputs.NAME)"}},
	} {
		t.Run(c.arg, func(t *testing.T) {
			template := read[flowv1.JobTemplate](t, `
metadata: {name: train}
spec: {tasks: [{template: {spec: {containers: [{name: c, image: x, args: ["`+c.arg+`"]}]}}}]}`)
			_, err := BuildPodJobSpec(template, &flowv1.Flow{Name: "train"}, v)
			wantError(t, err, c.want...)
		})
	}
}

const robotTemplate = `
metadata: {name: inspect}
spec:
  type: batch
  robotSelector: {site: a}
  taskGroups:
  - name: g
    count: 2
    initTasks: [{name: prep, driver: exec, config: {execConfig: {command: mkdir}}}]
    tasks:
    - name: look
      driver: exec
      config: {execConfig: {command: look, args: ["$(params.area)", "${meta.x}", "$$(params.area)"]}}
      env: {AREA: $(params.area), KEEP: k}
      outputs: [found]
    - {name: go, driver: java, config: {javaConfig: {jarPath: a.jar, jvmOptions: ["-D$(params.area)"], args: ["$(params.area)"]}}}
    - {name: box, driver: docker, config: {dockerConfig: {image: x, command: "$(params.area)", args: ["$(params.area)"]}}}
`

func TestBuildRobotJobSpec(t *testing.T) {
	template := read[robotv1.JobTemplate](t, robotTemplate)
	before := template.DeepCopy()
	step := patched(t, `
robotSelector: {arm: "yes"}
taskGroups:
- name: g
  count: 3
  initTasks: [{name: prep, env: {P: p}}]
  tasks: [{name: look, env: {NEW: x}, config: {execConfig: {command: look2}}}]
- name: h
  tasks: [{name: t, driver: exec, config: {execConfig: {command: "true"}}}]
`)
	spec, err := BuildRobotJobSpec(template, step, Values{Params: map[string]string{"area": "north ${y}"}})
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(template, before) {
		t.Error("the template was changed")
	}
	got, err := yaml.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	want := read[robotv1.JobSpec](t, `
type: batch
robotSelector: {site: a, arm: "yes"}
taskGroups:
- name: g
  count: 3
  initTasks: [{name: prep, driver: exec, config: {execConfig: {command: mkdir}}, env: {P: p}}]
  tasks:
  - name: look
    driver: exec
    config: {execConfig: {command: look2, args: ["north $${y}", "${meta.x}", "$(params.area)"]}}
    env: {AREA: "north $${y}", KEEP: k, NEW: x}
    outputs: [found]
  - {name: go, driver: java, config: {javaConfig: {jarPath: a.jar, jvmOptions: ["-Dnorth $${y}"], args: ["north $${y}"]}}}
  - {name: box, driver: docker, config: {dockerConfig: {image: x, command: "north $${y}", args: ["north $${y}"]}}}
- name: h
  tasks: [{name: t, driver: exec, config: {execConfig: {command: "true"}}}]
`)
	if !equality.Semantic.DeepEqual(&spec, want) {
		t.Errorf("got\n%s", got)
	}
}

// The agent expands nothing in an item, so that a value is not escaped for it.
func TestBuildRobotJobSpec_ReplacesReferencesInItems(t *testing.T) {
	template := &robotv1.JobTemplate{Spec: robotv1.JobSpec{TaskGroups: []robotv1.TaskGroupDefinition{{Name: "g"}}}}
	g := &template.Spec.TaskGroups[0]
	g.Tasks = []robotv1.TaskDefinition{{Name: "t", Driver: "exec"}}
	g.Array = &robotv1.Array{Items: []string{"$(params.area)-1", "$(flows.map.outputs.n)", "plain"}}
	v := Values{Params: map[string]string{"area": "north ${y}"}, Flows: map[string]StepValues{"map": {Outputs: map[string]string{"n": "7"}}}}
	spec, err := BuildRobotJobSpec(template, &flowv1.Flow{Name: "train"}, v)
	if err != nil || strings.Join(spec.TaskGroups[0].Array.Items, ",") != "north ${y}-1,7,plain" {
		t.Errorf("%v, %v", spec.TaskGroups[0].Array, err)
	}
	g.Array.Items = []string{"$(params.none)"}
	if _, err := BuildRobotJobSpec(template, &flowv1.Flow{Name: "train"}, v); err == nil || !strings.Contains(err.Error(), "taskGroups[g].array.items[0]: $(params.none) is not defined") {
		t.Errorf("an unknown reference: %v", err)
	}
}

func TestBuildRobotJobSpec_RejectsInvalidPatch(t *testing.T) {
	for _, c := range []struct {
		name, patch string
		want        []string
	}{
		{"a field of pods", `{minAvailable: 1}`, []string{"patch.jobSpec.minAvailable: a Job on robots has no such field", "no templateRef.apiGroup"}},
		{"wrong type in a group", `{taskGroups: [{name: g, count: many}]}`, []string{"patch.jobSpec.taskGroups.count: is a string"}},
		{"an added group without tasks", `{taskGroups: [{name: x}]}`, []string{"patch.jobSpec.taskGroups[x]:", "robot JobTemplate inspect has no such group"}},
		{"an added task without a driver", `{taskGroups: [{name: g, tasks: [{name: lok}]}]}`, []string{"taskGroups[g].tasks[lok]:", "set driver and config"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := BuildRobotJobSpec(read[robotv1.JobTemplate](t, robotTemplate), patched(t, c.patch), Values{Params: map[string]string{"area": ""}})
			wantError(t, err, c.want...)
		})
	}
}

// A patch that changes a privileged task of a template must name the privilege itself, so
// that admission can check the author's permission.
func TestBuildRobotJobSpec_PatchMustNamePrivileges(t *testing.T) {
	template := `
metadata: {name: privileged}
spec:
  type: batch
  taskGroups:
  - name: g
    tasks:
    - {name: raw, driver: raw_exec, config: {execConfig: {command: move}}}
    - {name: root, driver: exec, user: "0:0", config: {execConfig: {command: move}}}
    - {name: box, driver: docker, config: {dockerConfig: {image: x, volumes: ["/:/host"]}}}
    - {name: pilot, driver: exec, user: pilot, config: {execConfig: {command: move}}}
    - {name: root-box, driver: docker, user: root, config: {dockerConfig: {image: x}}}
    - {name: pilot-box, driver: docker, user: pilot, config: {dockerConfig: {image: x}}}
    - {name: host, driver: docker, config: {dockerConfig: {image: x, networkMode: host}}}
    - {name: joined, driver: docker, config: {dockerConfig: {image: x, networkMode: "container:a"}}}
    - {name: plain, driver: exec, config: {execConfig: {command: move}}}
`
	for _, c := range []struct{ name, task, want string }{
		{"raw_exec", `{name: raw, config: {execConfig: {command: mine}}}`, "taskGroups[g].tasks[raw]: changes a task that has driver: raw_exec"},
		{"raw_exec by its name", `{name: raw, driver: raw_exec, config: {execConfig: {command: mine}}}`, ""},
		{"raw_exec that is so no more", `{name: raw, driver: exec}`, ""},
		{"root", `{name: root, env: {LD_PRELOAD: x}}`, "changes a task that has user: root"},
		{"root by its name", `{name: root, user: root, env: {LD_PRELOAD: x}}`, ""},
		{"volumes", `{name: box, config: {dockerConfig: {image: mine}}}`, "changes a task that has config.dockerConfig.volumes"},
		{"volumes by their names", `{name: box, config: {dockerConfig: {image: mine, volumes: ["/:/host"]}}}`, ""},
		{"a user", `{name: pilot, config: {execConfig: {command: mine}}}`, "changes a task that has user: pilot"},
		{"a user by its name", `{name: pilot, user: pilot, config: {execConfig: {command: mine}}}`, ""},
		{"another user", `{name: pilot, user: other}`, ""},
		{"a user that is replaced by a second entry", `{name: pilot, driver: docker, user: other}, {name: pilot, driver: exec}`, "changes a task that has user: other"},
		{"root in a container", `{name: root-box, env: {LD_PRELOAD: x}}`, "changes a task that has driver: docker and user: root"},
		{"root in a container without its driver", `{name: root-box, user: root, env: {LD_PRELOAD: x}}`, "changes a task that has driver: docker and user: root"},
		{"root in a container by its name", `{name: root-box, driver: docker, user: root, env: {LD_PRELOAD: x}}`, ""},
		{"root of a container becomes root of the robot", `{name: root-box, driver: exec, config: {dockerConfig: null, execConfig: {command: mine}}}`, "changes a task that has user: root"},
		{"a user of an image becomes one of the robot", `{name: pilot-box, driver: exec, config: {dockerConfig: null, execConfig: {command: mine}}}`, "changes a task that has user: pilot"},
		{"a user of an image", `{name: pilot-box, env: {A: b}}`, ""},
		{"the robot's network", `{name: host, config: {dockerConfig: {image: mine}}}`, "changes a task that has config.dockerConfig.networkMode: host"},
		{"the robot's network by its name", `{name: host, config: {dockerConfig: {image: mine, networkMode: host}}}`, ""},
		{"another network", `{name: host, config: {dockerConfig: {image: mine, networkMode: none}}}`, ""},
		{"a container's network", `{name: joined, config: {dockerConfig: {image: mine}}}`, "changes a task that has config.dockerConfig.networkMode: container:a"},
		{"one without any", `{name: plain, env: {A: b}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := BuildRobotJobSpec(read[robotv1.JobTemplate](t, template), patched(t, "{taskGroups: [{name: g, tasks: ["+c.task+"]}]}"), Values{})
			if c.want == "" && err == nil {
				return
			}
			wantError(t, err, c.want)
		})
	}
}

// A patch that reaches a privileged task otherwise than by its name must repeat the privilege, too:
// meta fills the references of its command, and a task beside it writes to the disk of the group.
func TestBuildRobotJobSpec_PatchThatReachesPrivilegedTasks(t *testing.T) {
	const template = `
metadata: {name: privileged}
spec:
  type: batch
  taskGroups:
  - name: g
    initTasks: [{name: prep, driver: exec, user: root, config: {execConfig: {command: mount}}}]
    tasks:
    - {name: raw, driver: raw_exec, config: {execConfig: {command: sh, args: ["-c", "${meta.script} $(params.script)"]}}}
    - {name: beside, driver: exec, config: {execConfig: {command: log}}}
  - name: disk
    ephemeralDisk: {sizeMB: 1}
    tasks:
    - {name: box, driver: docker, config: {dockerConfig: {image: x, volumes: ["/:/host"]}}}
    - {name: beside, driver: exec, config: {execConfig: {command: log}}}
  - name: plain
    tasks: [{name: go, driver: exec, config: {execConfig: {command: go}}}]
`
	const (
		groupG    = `{name: g, initTasks: [{name: prep, user: "0"}], tasks: [{name: raw, driver: raw_exec}]}`
		groupDisk = `{name: disk, tasks: [{name: box, config: {dockerConfig: {volumes: ["/:/host"]}}}]}`
		added     = `{name: new, driver: exec, config: {execConfig: {command: mine}}}`
	)
	for _, c := range []struct {
		name, patch string
		want        []string // nil: allowed
	}{
		{"meta of the Job", `{meta: {script: mine}}`, []string{
			"spec.flows[train].patch.jobSpec.meta: also changes taskGroups[g].initTasks[prep], which has user: root",
			"set user: root in patch.jobSpec.taskGroups[g].initTasks[prep], too",
		}},
		{"meta of the Job, one privilege repeated", `{meta: {script: mine}, taskGroups: [{name: g, tasks: [{name: raw, driver: raw_exec}]}, ` + groupDisk + `]}`,
			[]string{"initTasks[prep], which has user: root"}},
		{"meta of the Job, a privilege of another group not repeated", `{meta: {script: mine}, taskGroups: [` + groupG + `]}`,
			[]string{"patch.jobSpec.meta: also changes taskGroups[disk].tasks[box], which has config.dockerConfig.volumes"}},
		{"meta of the Job, all privileges repeated", `{meta: {script: mine}, taskGroups: [` + groupG + `, ` + groupDisk + `]}`, nil},
		{"empty meta of the Job", `{meta: {}}`, nil},
		{"meta of a group", `{taskGroups: [{name: g, meta: {script: mine}}]}`, []string{
			"spec.flows[train].patch.jobSpec.taskGroups[g].meta: also changes taskGroups[g].initTasks[prep], which has user: root",
		}},
		{"meta of a group without privileges", `{taskGroups: [{name: plain, meta: {script: mine}}]}`, nil},
		{"meta of a group in a second entry", `{taskGroups: [` + groupDisk + `, {name: g, count: 1}, {name: g, meta: {script: mine}}]}`,
			[]string{"taskGroups[g].meta: also changes taskGroups[g].initTasks[prep]"}},
		{"env of a privileged task", `{taskGroups: [{name: g, tasks: [{name: raw, env: {LD_PRELOAD: mine}}]}]}`,
			[]string{"taskGroups[g].tasks[raw]: changes a task that has driver: raw_exec"}},
		{"env of a privileged init task", `{taskGroups: [{name: g, initTasks: [{name: prep, env: {LD_PRELOAD: mine}}]}]}`,
			[]string{"taskGroups[g].initTasks[prep]: changes a task that has user: root"}},
		{"env of a task beside it", `{taskGroups: [{name: g, tasks: [{name: beside, env: {A: b}}]}]}`, nil},
		{"env of a task that shares its disk", `{taskGroups: [{name: disk, tasks: [{name: beside, env: {A: b}}]}]}`,
			[]string{"taskGroups[disk].tasks[beside]: also changes taskGroups[disk].tasks[box], which has config.dockerConfig.volumes", "set config.dockerConfig.volumes in patch.jobSpec.taskGroups[disk].tasks[box], too"}},
		{"env of a task that the patch gives its disk", `{taskGroups: [{name: g, ephemeralDisk: {sizeMB: 1}, tasks: [{name: beside, env: {A: b}}]}]}`,
			[]string{"taskGroups[g].tasks[beside]: also changes taskGroups[g].initTasks[prep]"}},
		{"an added task", `{taskGroups: [{name: g, tasks: [` + added + `]}]}`,
			[]string{"taskGroups[g].tasks[new]: also changes taskGroups[g].initTasks[prep], which has user: root"}},
		{"an added init task", `{taskGroups: [{name: disk, initTasks: [` + added + `]}]}`,
			[]string{"taskGroups[disk].initTasks[new]: also changes taskGroups[disk].tasks[box]"}},
		{"an added task, the privilege repeated", `{taskGroups: [{name: disk, tasks: [` + added + `, {name: box, config: {dockerConfig: {volumes: ["/:/host"]}}}]}]}`, nil},
		{"an added task in a group without privileges", `{taskGroups: [{name: plain, tasks: [` + added + `]}]}`, nil},
		{"an added group", `{taskGroups: [{name: new, meta: {a: b}, tasks: [` + added + `]}]}`, nil},
		{"an added privileged task", `{taskGroups: [{name: plain, tasks: [{name: new, driver: raw_exec, config: {execConfig: {command: mine}}}]}]}`, nil},
		{"count", `{taskGroups: [{name: g, count: 3}]}`, nil},
		{"the size of an array", `{taskGroups: [{name: g, array: {size: 3}}]}`, nil},
		{"items of an array", `{taskGroups: [{name: g, array: {items: [mine]}}]}`,
			[]string{"taskGroups[g].array.items: also changes taskGroups[g].initTasks[prep], which has user: root"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			step := patched(t, c.patch)
			step.Params = map[string]string{"script": "theirs"}
			_, err := BuildRobotJobSpec(read[robotv1.JobTemplate](t, template), step, Values{Params: step.Params})
			if c.want == nil && err == nil {
				return
			}
			wantError(t, err, c.want...)
		})
	}
}

func TestResolveValues(t *testing.T) {
	spec := read[flowv1.JobFlowSpec](t, `
params: {lr: "0.1", data: d}
flows:
- name: prep
- name: other
- name: train
  dependsOn: {targets: [prep]}
  params: {lr: "2$(params.lr)", in: "$(flows.prep.outputs.path)/$(params.data)", text: "$$(params.lr)"}
`)
	steps := map[string]StepValues{
		"prep": {State: "Completed", Outputs: map[string]string{"path": "/p"}}, "other": {State: "Running"},
	}
	v, err := ResolveValues(spec, &spec.Flows[2], steps)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"lr": "20.1", "data": "d", "in": "/p/d", "text": "$(params.lr)"}
	if !equality.Semantic.DeepEqual(v.Params, want) {
		t.Errorf("params %v", v.Params)
	}
	if _, sees := v.Flows["other"]; sees || len(v.Flows) != 1 {
		t.Errorf("sees %v, of which it depends on prep alone", v.Flows)
	}
	if spec.Params["lr"] != "0.1" {
		t.Error("the flow's params were changed")
	}
	delete(steps["prep"].Outputs, "path")
	_, err = ResolveValues(spec, &spec.Flows[2], steps)
	wantError(t, err, "spec.flows[train].params[in]: $(flows.prep.outputs.path)")
}

func TestParseOutputs(t *testing.T) {
	got := ParseOutputs("a=1\nb= x\r\nnot one\n=no name\n", "a=2=3\n")
	if !equality.Semantic.DeepEqual(got, Outputs{Values: map[string]string{"a": "2=3", "b": " x"}}) {
		t.Errorf("got %q", got)
	}
	if ParseOutputs("", "words").Values != nil {
		t.Error("outputs out of nothing")
	}
	many := ParseOutputs(strings.Repeat("x=1\n", 3), lines(200))
	if len(many.Values) != MaxOutputs {
		t.Errorf("%d outputs", len(many.Values))
	}
	const beyond = "137 of its outputs are omitted: "
	if !strings.HasPrefix(many.Omission, beyond) || !strings.Contains(many.Omission, " and 132 more; a step has at most 64 outputs of 8 KiB in total") {
		t.Errorf("omission %q", many.Omission)
	}
	if later := ParseOutputs("a=" + strings.Repeat("x", MaxOutputsBytes) + "\na=1"); later.Values["a"] != "1" || later.Omission != "" {
		t.Errorf("an output whose last value fits: %d bytes, omission %q", len(later.Values["a"]), later.Omission)
	}
	const omission = "1 of its outputs are omitted: b; a step has at most 64 outputs of 8 KiB in total: reduce them, and pass large values in files"
	if huge := ParseOutputs("a=1\nb=" + strings.Repeat("x", MaxOutputsBytes) + "\nc=2"); len(huge.Values) != 2 || huge.Values["c"] != "2" || huge.Omission != omission {
		t.Errorf("%d outputs, want those beside the one that is too long; omission %q", len(huge.Values), huge.Omission)
	}
	if m := MergeOutputs(map[string]string{"a": "1", "b": "1"}, nil, map[string]string{"a": "2"}); m.Values["a"] != "2" || m.Values["b"] != "1" || m.Omission != "" {
		t.Errorf("merged %v", m)
	}
}

// lines returns n outputs with different names.
func lines(n int) string {
	var out strings.Builder
	for i := range n {
		out.WriteString(strings.Repeat("n", i+1) + "=\n")
	}
	return out.String()
}
