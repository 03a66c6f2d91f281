package agent

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/artifact"
	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/render"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/wire"
)

// outputsFile is where a task writes what it hands on, below its directory.
const outputsFile = ".k8s4r-outputs"

// surroundings are what a task finds: its environment, its config with the names
// in it replaced, and what is to be put into its directory (docs/spec/task.md).
func (r *runner) surroundings(run *run, s *shim.Spec) error {
	given, err := r.given(run, s.WorkDir)
	if err != nil {
		return err
	}
	data := r.data(run, given)
	if s.Env, err = taskEnv(given, run.task.Spec.Env, data); err != nil {
		return err
	}
	data.Env = s.Env
	if s.Config, err = interpolated(run.task.Spec.Config, data); err != nil {
		return err
	}
	s.SetUp = setUp(run.task.Spec, data)
	s.Env = withSecrets(s.Env, run)
	if len(run.task.Spec.Outputs) > 0 {
		s.Outputs, s.OutputsFile = run.task.Spec.Outputs, filepath.Join(s.WorkDir, outputsFile)
	}
	return nil
}

// withSecrets is the environment with what the server sent beside the task. It comes
// last: what is interpolated or rendered is written to disks, and what goes wrong
// there is told to everyone.
func withSecrets(env map[string]string, run *run) map[string]string {
	env = maps.Clone(env)
	for name := range run.task.Spec.SecretEnv {
		if value, there := run.secrets[name]; there && name != shims.EnvTaskDir {
			env[name] = value
		}
	}
	return env
}

// given is the part of the environment that the agent sets. Nothing of its own is
// in it: that may hold its token.
func (r *runner) given(run *run, dir string) (map[string]string, error) {
	t := run.task
	env := map[string]string{
		"PATH":             driver.DefaultPath,
		"HOME":             dir,
		"K8S4R_TASK":       t.Spec.Name,
		"K8S4R_TASK_UID":   t.Metadata.UID,
		"K8S4R_JOB":        or(t.Spec.JobName, t.Metadata.Labels[wire.LabelJob]),
		"K8S4R_TASK_GROUP": or(t.Spec.TaskGroupName, t.Metadata.Labels[wire.LabelTaskGroup]),
		"K8S4R_TASK_INDEX": t.Metadata.Labels[wire.LabelTaskIndex],
		"K8S4R_ATTEMPT":    strconv.Itoa(int(run.attempt)),
		"K8S4R_ROBOT":      r.robot,
		// How an agent that starts again finds what is left of a task.
		shims.EnvTaskDir: dir,
	}
	if disk := r.places.disk(t); disk != "" {
		env["K8S4R_ALLOC_DIR"] = disk
	}
	if at, ok := traceparent.Parse(run.trace); ok {
		env[traceparent.Env] = at.Child(traceparent.Run).String() // spans of the task are below its run
	}
	if len(t.Spec.Outputs) > 0 {
		env["K8S4R_OUTPUTS"] = filepath.Join(dir, outputsFile)
	}
	return env, addPorts(env, t.Spec.Resources)
}

// addPorts names the task's ports, and finds free ones where it names no number.
func addPorts(env map[string]string, r *wire.Resources) error {
	if r == nil {
		return nil
	}
	for _, n := range r.Networks {
		for _, p := range n.Ports {
			number, err := int(p.Port), error(nil)
			if number == 0 {
				number, err = freePort()
			}
			if err != nil {
				return fmt.Errorf("resources.networks: port %s: %w", p.Name, err)
			}
			env["K8S4R_PORT_"+strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))] = strconv.Itoa(number)
		}
	}
	return nil
}

// freePort is one that nobody listens on now. The kernel hands such ports out in
// turn, so the next one is another.
func freePort() (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// data is what names in the task's definition stand for.
func (r *runner) data(run *run, env map[string]string) render.Data {
	d := render.Data{Env: env, Meta: run.task.Spec.Meta, Task: render.Task{
		Name: run.task.Spec.Name, UID: run.task.Metadata.UID, Job: env["K8S4R_JOB"], Group: env["K8S4R_TASK_GROUP"],
		Index: env["K8S4R_TASK_INDEX"], Robot: r.robot, Attempt: run.attempt,
	}}
	if run.facts != nil {
		d.Labels, d.Attrs = run.facts.Labels, run.facts.Attrs
	}
	return d
}

// taskEnv is the whole environment: what is given, and what the task's owner says
// by it, but for the directory, which is ours to name.
func taskEnv(given, said map[string]string, d render.Data) (map[string]string, error) {
	env := maps.Clone(given)
	for name, value := range said {
		value, err := render.Interpolate(value, d.Lookup)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", name, err)
		}
		env[name] = value
	}
	env[shims.EnvTaskDir] = given[shims.EnvTaskDir]
	return env, nil
}

// interpolated is the config with the names in its command and arguments replaced.
func interpolated(c wire.TaskConfig, d render.Data) (wire.TaskConfig, error) {
	var fault error // the first
	text := func(field, s string) string {
		s, err := render.Interpolate(s, d.Lookup)
		if err != nil && fault == nil {
			fault = fmt.Errorf("config.%s: %w", field, err)
		}
		return s
	}
	list := func(field string, all []string) (out []string) {
		for i, s := range all {
			out = append(out, text(fmt.Sprintf("%s[%d]", field, i), s))
		}
		return out
	}
	switch {
	case c.Exec != nil:
		exec := *c.Exec
		exec.Command, exec.Args = text("execConfig.command", exec.Command), list("execConfig.args", exec.Args)
		c.Exec = &exec
	case c.Docker != nil:
		docker := *c.Docker
		docker.Command, docker.Args = text("dockerConfig.command", docker.Command), list("dockerConfig.args", docker.Args)
		c.Docker = &docker
	case c.Java != nil:
		java := *c.Java
		java.JVMOptions, java.Args = list("javaConfig.jvmOptions", java.JVMOptions), list("javaConfig.args", java.Args)
		c.Java = &java
	}
	return c, fault
}

// setUp is what is put into the task's directory. Nil: nothing.
func setUp(t wire.TaskSpec, d render.Data) *shim.SetUp {
	if len(t.Artifacts)+len(t.Templates) == 0 {
		return nil
	}
	s := &shim.SetUp{Data: d, Artifacts: requests(t.Artifacts)}
	for i, tmpl := range t.Templates {
		s.Templates = append(s.Templates, template(i, tmpl))
	}
	return s
}

// The values of a template's changeMode. Empty: changeRestart.
const (
	changeRestart = "restart"
	changeSignal  = "signal"
)

func template(i int, t wire.Template) shim.Template {
	s := shim.Template{
		Template: render.Template{
			Index: i, SourcePath: t.SourcePath, Embedded: t.EmbeddedTmpl, DestPath: t.DestPath,
			Perms: t.Perms, LeftDelim: t.LeftDelim, RightDelim: t.RightDelim,
		},
		Restart: or(t.ChangeMode, changeRestart) == changeRestart,
	}
	if t.ChangeMode == changeSignal {
		s.Signal = unix.SignalNum(t.ChangeSignal)
	}
	return s
}

// checkTemplates refuses a signal that is none.
func checkTemplates(all []wire.Template) error {
	for i, t := range all {
		if t.ChangeMode == changeSignal && unix.SignalNum(t.ChangeSignal) == 0 {
			return fmt.Errorf("templates[%d].changeSignal: %.20q is no signal; changeMode signal needs one, such as SIGHUP", i, t.ChangeSignal)
		}
	}
	return nil
}

func requests(all []wire.Artifact) []artifact.Request {
	var out []artifact.Request
	for i, a := range all {
		out = append(out, artifact.Request{
			Index: i, Source: a.GetterSource, Options: a.GetterOptions, Dest: a.RelativeDest, Mode: artifact.Mode(a.GetterMode),
		})
	}
	return out
}
