package vcjob

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// plugin is a row of the table of plugins.
type plugin struct {
	// name is its key in spec.plugins.
	name string
	// implies names the plugins that a Job with this one has as well.
	implies []string
	// define declares the arguments. The effects use the values that the arguments have after they
	// were parsed.
	define func(*flag.FlagSet) effects
}

// effects is what a plugin with its arguments does. All functions are pure. One that is nil has no
// effect.
type effects struct {
	// validate returns a message about what keeps the plugin from working, without the name of the
	// plugin. Empty if nothing does. All functions except countReferences get the host names.
	validate func(*builder) string
	// objects returns the objects that the Pods need.
	objects func(*builder) []client.Object
	// changePod changes a new Pod of a replica.
	changePod func(*builder, replica, *corev1.Pod)
	// countReferences returns how many mounts and variables it adds to each container. If nil, a
	// few whose number does not grow with the Job.
	countReferences func(*batchv1.JobSpec) int
}

// plugins are all plugins, in the order in which they change a Pod: hcclrank reads what pytorch has
// set.
var plugins = []plugin{
	{name: pluginEnv, define: defineEnv},
	{name: pluginSvc, define: defineSvc},
	{name: pluginSSH, define: defineSSH},
	{name: pluginTensorFlow, implies: []string{pluginSvc}, define: defineTensorFlow},
	{name: pluginPyTorch, implies: []string{pluginSvc}, define: definePyTorch},
	{name: pluginMPI, implies: []string{pluginSvc, pluginSSH}, define: defineMPI},
	{name: pluginRay, implies: []string{pluginSvc}, define: defineRay},
	{name: pluginHCCLRank, define: defineHCCLRank},
}

// loadedPlugin is a plugin of a Job with its arguments.
type loadedPlugin struct {
	name string
	effects
}

// loadPlugins returns the plugins of a spec, in the order of the table, and a message about the
// first argument that is not valid.
func loadPlugins(s *batchv1.JobSpec) (all []loadedPlugin, problem string) {
	for i := range plugins {
		p := &plugins[i]
		args, on := s.Plugins[p.name]
		if !on {
			continue
		}
		e, why := p.parseArguments(args)
		if problem == "" {
			problem = why
		}
		all = append(all, loadedPlugin{p.name, e})
	}
	return all, problem
}

var (
	// flagName matches the name of a flag. It does not match the beginning of a PEM text.
	flagName = regexp.MustCompile(`^--?[A-Za-z][-A-Za-z0-9]*`)
	// malformedFlag matches what the package flag rejects without consuming it.
	malformedFlag = regexp.MustCompile(`^-(-?=|--)`)
)

// parseArguments returns the effects of a plugin with these arguments, and a message about the first
// one that is not valid. The message contains no value, because a value may be a private key.
func (p *plugin) parseArguments(args []string) (effects, string) {
	f := flag.NewFlagSet(p.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	e := p.define(f)
	err := f.Parse(args)
	at := len(args) - f.NArg()
	switch {
	case err == nil && at == len(args):
		return e, ""
	case err != nil && (at == len(args) || !malformedFlag.MatchString(args[at])):
		at-- // flag has consumed it
	}
	what := flagName.FindString(args[at])
	if what == "" {
		what = fmt.Sprintf("number %d", at+1)
	}
	return e, fmt.Sprintf("spec.plugins.%s: %s is not a valid argument; %s", p.name, what, describeFlags(f))
}

// describeFlags returns the sentence about the allowed arguments. The usage of a flag is the syntax
// of its value.
func describeFlags(f *flag.FlagSet) string {
	var all []string
	f.VisitAll(func(one *flag.Flag) { all = append(all, "--"+one.Name+one.Usage) })
	if len(all) == 0 {
		return "it takes none"
	}
	return "allowed are " + strings.Join(all, ", ")
}

// pluginNames returns the names of all plugins.
func pluginNames() (all []string) {
	for i := range plugins {
		all = append(all, plugins[i].name)
	}
	return all
}

// impliedPlugins returns the plugins that others of a spec need.
func impliedPlugins(s *batchv1.JobSpec) (all []string) {
	for i := range plugins {
		if _, on := s.Plugins[plugins[i].name]; on {
			all = append(all, plugins[i].implies...)
		}
	}
	return all
}

// validatePlugins rejects plugins and arguments that would have no effect.
func validatePlugins(s *batchv1.JobSpec) string {
	known := pluginNames()
	for _, name := range slices.Sorted(maps.Keys(s.Plugins)) {
		if !slices.Contains(known, name) {
			return fmt.Sprintf("spec.plugins: unknown plugin %s; supported are %s", name, strings.Join(known, ", "))
		}
	}
	_, problem := loadPlugins(s)
	return problem
}
