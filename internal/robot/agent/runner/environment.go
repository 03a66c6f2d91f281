package runner

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/interpolate"
	"k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/artifact"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/setup"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
	render "k8s4r.io/k8s4r/internal/robot/template"
)

// outputsFile is the file for a task's outputs, in its directory.
const outputsFile = ".k8s4r-outputs"

// fillEnvironment sets the task's environment, its config with variables replaced, and the
// artifacts and templates of its directory.
func (r *Runner) fillEnvironment(attempt *attempt, s *shim.Spec) error {
	base, err := r.agentEnv(attempt, s.WorkDir)
	if err != nil {
		return err
	}
	data := r.templateData(attempt, base)
	if s.Env, err = mergeTaskEnv(base, attempt.task.Spec.Env, data); err != nil {
		return err
	}
	data.Env = s.Env
	if s.Config, err = interpolateConfig(attempt.task.Spec.Config, data); err != nil {
		return err
	}
	if attempt.array != nil {
		if err := checkCommandOfRange(s.Config); err != nil {
			return err
		}
		data.Env, data.Task.Index = withoutMarks(s.Env), ""
	}
	if s.SetUp, err = attempt.buildSetUp(data, r.artifacts); err != nil {
		return err
	}
	s.Env = withSecrets(s.Env, attempt)
	if len(attempt.task.Spec.Outputs) > 0 {
		s.Outputs, s.OutputsFile = attempt.task.Spec.Outputs, filepath.Join(s.WorkDir, outputsFile)
		_ = os.Remove(s.OutputsFile) // of the run before; a directory there has no outputs either
	}
	return nil
}

// withSecrets returns the environment with the secrets of the dispatch. They are added last:
// interpolated and rendered text is written to disks and to error messages.
func withSecrets(env map[string]string, attempt *attempt) map[string]string {
	env = maps.Clone(env)
	for name := range attempt.task.Spec.SecretEnv {
		if value, ok := attempt.secrets[name]; ok && name != supervisor.EnvTaskDir {
			env[name] = value
		}
	}
	return env
}

// agentEnv returns the variables that the agent sets. It passes on none of its own, which
// may hold its token.
func (r *Runner) agentEnv(attempt *attempt, dir string) (map[string]string, error) {
	t := attempt.task
	env := map[string]string{
		"PATH":             driver.DefaultPath,
		"HOME":             dir,
		"K8S4R_TASK":       t.Spec.Name,
		"K8S4R_TASK_UID":   t.Metadata.UID,
		"K8S4R_JOB":        cmp.Or(t.Spec.JobName, t.Metadata.Labels[wire.LabelJob]),
		"K8S4R_TASK_GROUP": cmp.Or(t.Spec.TaskGroupName, t.Metadata.Labels[wire.LabelTaskGroup]),
		wire.EnvTaskIndex:  t.Metadata.Labels[wire.LabelTaskIndex],
		"K8S4R_ATTEMPT":    strconv.Itoa(int(attempt.number)),
		"K8S4R_RUN":        strconv.FormatInt(attempt.runNumber(), 10),
		"K8S4R_ROBOT":      r.robotID,
		// A restarted agent finds a task's processes by this variable.
		supervisor.EnvTaskDir: dir,
	}
	addArrayVariables(env, t.Spec.Array)
	if disk := r.dirs.replicaDiskDir(t); disk != "" {
		env["K8S4R_ALLOC_DIR"] = disk
	}
	if at, ok := trace.Parse(attempt.trace); ok {
		env[trace.Env] = at.ChildSpan(trace.RunSpan).String() // the task's spans are children of its run
	}
	if len(t.Spec.Outputs) > 0 {
		env["K8S4R_OUTPUTS"] = filepath.Join(dir, outputsFile)
	}
	return env, addPortVariables(env, t.Spec.Resources)
}

// addPortVariables sets a variable for each port of the task, and picks a free port if the
// task requests no number.
func addPortVariables(env map[string]string, r *wire.Resources) error {
	if r == nil {
		return nil
	}
	for _, n := range r.Networks {
		for _, p := range n.Ports {
			number, err := int(p.Port), error(nil)
			if number == 0 {
				number, err = findFreePort()
			}
			if err != nil {
				return fmt.Errorf("resources.networks: port %s: %w", p.Name, err)
			}
			env["K8S4R_PORT_"+strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))] = strconv.Itoa(number)
		}
	}
	return nil
}

// findFreePort returns a port without a listener. The kernel hands ports out in turn, so the
// next call returns another one.
func findFreePort() (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// templateData returns the values of variables in the task's definition.
func (r *Runner) templateData(attempt *attempt, env map[string]string) render.Data {
	d := render.Data{Env: env, Meta: attempt.task.Spec.Meta, Task: render.Task{
		Name: attempt.task.Spec.Name, UID: attempt.task.Metadata.UID, Job: env["K8S4R_JOB"], Group: env["K8S4R_TASK_GROUP"],
		Index: env[wire.EnvTaskIndex], Robot: r.robotID, Attempt: attempt.number,
	}}
	if attempt.attributes != nil {
		d.Labels, d.Attrs = attempt.attributes.Labels, attempt.attributes.Attrs
	}
	return d
}

// mergeTaskEnv returns the agent's variables, overridden by those of the task except for the
// task's directory.
func mergeTaskEnv(base, task map[string]string, d render.Data) (map[string]string, error) {
	env := maps.Clone(base)
	for name, value := range task {
		value, err := interpolate.Expand(value, d.Lookup)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", name, err)
		}
		env[name] = value
	}
	env[supervisor.EnvTaskDir] = base[supervisor.EnvTaskDir]
	return env, nil
}

// interpolateConfig returns the config with the variables in its command and arguments replaced.
func interpolateConfig(c wire.TaskConfig, d render.Data) (wire.TaskConfig, error) {
	var fault error // the first
	text := func(field, s string) string {
		s, err := interpolate.Expand(s, d.Lookup)
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

// buildSetUp returns the artifacts and templates of the task's directory. It is nil if there
// are none. Artifacts that are there are left out.
func (attempt *attempt) buildSetUp(d render.Data, cache artifactCache) (*shim.SetUp, error) {
	t := attempt.task.Spec
	if attempt.hasArtifacts() {
		t.Artifacts = nil
	}
	if len(t.Artifacts)+len(t.Templates) == 0 {
		return nil, nil
	}
	w := setup.Work{Data: d, Artifacts: artifactRequests(t.Artifacts)}
	w.Cached = findCached(cache, w.Artifacts)
	for i, tmpl := range t.Templates {
		w.Templates = append(w.Templates, setUpTemplate(i, tmpl))
	}
	return w.Encode()
}

// The values of a template's changeMode. The default is changeRestart.
const (
	changeRestart = "restart"
	changeSignal  = "signal"
)

func setUpTemplate(i int, t wire.Template) setup.Template {
	s := setup.Template{
		Template: render.Template{
			Index: i, SourcePath: t.SourcePath, Embedded: t.EmbeddedTmpl, DestPath: t.DestPath,
			Perms: t.Perms, LeftDelim: t.LeftDelim, RightDelim: t.RightDelim,
		},
		OnChange: shim.TemplateChange{Restart: cmp.Or(t.ChangeMode, changeRestart) == changeRestart},
	}
	if t.ChangeMode == changeSignal {
		s.OnChange.Signal = unix.SignalNum(t.ChangeSignal)
	}
	return s
}

// checkTemplates returns an error for an unknown changeSignal.
func checkTemplates(all []wire.Template) error {
	for i, t := range all {
		if t.ChangeMode == changeSignal && unix.SignalNum(t.ChangeSignal) == 0 {
			return fmt.Errorf("templates[%d].changeSignal: unknown signal %.20q; changeMode signal needs one such as SIGHUP", i, t.ChangeSignal)
		}
	}
	return nil
}

func artifactRequests(all []wire.Artifact) []artifact.Request {
	var out []artifact.Request
	for i, a := range all {
		out = append(out, artifact.Request{
			Index: i, Source: a.GetterSource, Options: a.GetterOptions, Dest: a.RelativeDest, Mode: artifact.Mode(a.GetterMode),
		})
	}
	return out
}
