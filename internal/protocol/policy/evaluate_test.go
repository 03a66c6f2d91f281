package policy

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// process returns a task that runs a command of the robot.
func process(changes ...func(*Subject)) Subject {
	s := Subject{Namespace: "prod", Driver: "exec", Command: "/opt/robot/bin/scan"}
	for _, change := range changes {
		change(&s)
	}
	return s
}

// container returns a task that runs in a container.
func container(changes ...func(*Subject)) Subject {
	s := Subject{Namespace: "prod", Driver: "docker", Image: "registry.example/robots/scan:1.2"}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func command(c string) func(*Subject)    { return func(s *Subject) { s.Command = c } }
func image(i string) func(*Subject)      { return func(s *Subject) { s.Image = i } }
func user(u string) func(*Subject)       { return func(s *Subject) { s.User = u } }
func network(n string) func(*Subject)    { return func(s *Subject) { s.Network = n } }
func volumes(v ...string) func(*Subject) { return func(s *Subject) { s.Volumes = v } }
func variables(v ...string) func(*Subject) {
	return func(s *Subject) { s.LoaderVariables = LoaderVariables(v) }
}
func devices(d ...string) func(*Subject) { return func(s *Subject) { s.Devices = d } }
func driverOf(d string) func(*Subject) {
	return func(s *Subject) { s.Driver = d; s.SetCommand(s.Command) }
}
func resolved(s *Subject)              { s.IsResolved = true }
func commands(entries ...string) Rules { return Rules{Commands: append([]string{}, entries...)} }
func images(entries ...string) Rules   { return Rules{Images: append([]string{}, entries...)} }
func mounts(entries ...string) Rules   { return Rules{Mounts: append([]string{}, entries...)} }

func TestEvaluate(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name string
		in   Rules
		task Subject
		want string // the field of the violation; empty: allowed
	}{
		{"no rule", Rules{}, process(user("root")), ""},
		{"a namespace in the list", Rules{Namespaces: []string{"prod"}}, process(), ""},
		{"another namespace", Rules{Namespaces: []string{"test"}}, process(), "metadata.namespace"},
		{"a prefix of the namespace", Rules{Namespaces: []string{"pro"}}, process(), "metadata.namespace"},
		{"an empty list allows nothing", Rules{Drivers: []string{}}, process(), "driver"},
		{"a driver in the list", Rules{Drivers: []string{"docker", "exec"}}, process(), ""},
		{"raw_exec is another driver than exec", Rules{Drivers: []string{"exec"}}, process(driverOf("raw_exec")), "driver"},

		{"no user is the robot's own choice", Rules{Users: []string{}}, process(), ""},
		{"a user in the list", Rules{Users: []string{"pilot"}}, process(user("pilot")), ""},
		{"another user", Rules{Users: []string{"pilot"}}, process(user("root")), "user"},
		{"the number of a user in the list", Rules{Users: []string{"pilot"}}, process(user("1000")), "user"},
		{"a user of an image", Rules{Users: []string{}}, container(user("app")), ""},
		{"root", Rules{Root: &no}, process(user("root")), "user"},
		{"root by number", Rules{Root: &no}, process(user("00")), "user"},
		{"root with a group", Rules{Root: &no}, container(user("0:5")), "user"},
		{"root in a container", Rules{Root: &no}, container(user("root")), "user"},
		{"a user that is not root", Rules{Root: &no}, process(user("rooty")), ""},
		{"root where it is allowed", Rules{Root: &yes}, process(user("root")), ""},
		{"root that is allowed, but not a user", Rules{Root: &yes, Users: []string{"pilot"}}, process(user("root")), "user"},

		{"a program below a directory", commands("/opt/robot/"), process(), ""},
		{"the directory itself", commands("/opt/robot/"), process(command("/opt/robot")), "config.execConfig.command"},
		{"a directory with the same beginning", commands("/opt/robot/"), process(command("/opt/robotics/x")), "config.execConfig.command"},
		{"a program in the list", commands("/opt/robot/bin/scan"), process(command("/opt//robot/./bin/scan")), ""},
		{"a program below one in the list", commands("/opt/robot"), process(), "config.execConfig.command"},
		{"a way out of the directory", commands("/opt/robot/"), process(command("/opt/robot/../../bin/sh")), "config.execConfig.command"},
		{"a way out and back", commands("/opt/robot/"), process(command("/opt/robot/x/../y")), "config.execConfig.command"},
		{"a relative path", commands("/opt/robot/", "bin"), process(command("opt/robot/bin/scan")), "config.execConfig.command"},
		{"a file of the task", commands("scan"), process(command("./scan")), "config.execConfig.command"},
		{"a name", commands("rsync"), process(command("rsync")), ""},
		{"another name", commands("rsync"), process(command("sh")), "config.execConfig.command"},
		{"a path for a name", commands("rsync"), process(command("/tmp/rsync")), "config.execConfig.command"},
		{"a name for a path", commands("/usr/bin/rsync"), process(command("rsync")), "config.execConfig.command"},
		{"every program", commands("/"), process(), ""},
		{"another PATH", commands("/opt/robot/"), process(variables("PATH", "HOME")), "env"},
		{"another library", commands("/opt/robot/"), process(variables("LD_PRELOAD")), "env"},
		{"another library, without the rule", Rules{}, process(variables("LD_PRELOAD")), ""},
		{"references, which are evaluated later", commands("/opt/robot/"), process(command("${meta.program}")), ""},
		{"references that stay", commands("/opt/robot/"), process(command("${HOME}/x"), resolved), "config.execConfig.command"},
		{"java", commands("java"), process(driverOf("java")), ""},
		{"java that is not allowed", commands("/opt/robot/"), process(driverOf("java")), "driver"},
		{"a command of an image", commands(), container(command("sh")), ""},

		{"a repository", images("registry.example/robots/scan"), container(), ""},
		{"a repository with any digest", images("registry.example/robots/scan"), container(image("registry.example/robots/scan@sha256:abc")), ""},
		{"another repository", images("registry.example/robots/scan"), container(image("registry.example/robots/scanner")), "config.dockerConfig.image"},
		{"repositories below a prefix", images("registry.example/robots/"), container(), ""},
		{"the same name in another registry", images("registry.example/robots/"), container(image("robots/scan")), "config.dockerConfig.image"},
		{"a registry", images("registry.example:5000/"), container(image("registry.example:5000/scan")), ""},
		{"another port", images("registry.example/"), container(image("registry.example:5000/scan")), "config.dockerConfig.image"},
		{"a registry in the user's name", images("registry.example/"), container(image("evil/registry.example/scan")), "config.dockerConfig.image"},
		{"the default registry", images("alpine"), container(image("docker.io/library/alpine:3")), ""},
		{"the old name of the default registry", images("docker.io/"), container(image("index.docker.io/library/alpine")), ""},
		{"an image that looks official", images("alpine"), container(image("evil/alpine")), "config.dockerConfig.image"},
		{"a tag", images("alpine:3.20"), container(image("alpine:3.20")), ""},
		{"the default tag", images("alpine:latest"), container(image("alpine")), ""},
		{"another tag", images("alpine:3.20"), container(image("alpine")), "config.dockerConfig.image"},
		{"a digest beside the tag", images("alpine:3.20"), container(image("alpine:3.20@sha256:bad")), "config.dockerConfig.image"},
		{"a digest", images("alpine@sha256:abc"), container(image("alpine:any@sha256:abc")), ""},
		{"another digest", images("alpine@sha256:abc"), container(image("alpine@sha256:abd")), "config.dockerConfig.image"},
		{"the id of an image", images("docker.io/"), container(image("sha256:" + strings.Repeat("a", 64))), "config.dockerConfig.image"},
		{"a part of an id", images("docker.io/"), container(image("deadbeef")), "config.dockerConfig.image"},
		{"an image of a process", images(), process(), ""},

		{"a path", mounts("/srv/maps"), container(volumes("/srv/maps:/maps")), ""},
		{"a path below", mounts("/srv/maps"), container(volumes("/srv/maps/hall:/maps:rw")), ""},
		{"a path beside", mounts("/srv/maps"), container(volumes("/srv/maps2:/maps")), "config.dockerConfig.volumes[0]"},
		{"the second volume", mounts("/srv"), container(volumes("/srv/a:/a", "/etc:/e:ro")), "config.dockerConfig.volumes[1]"},
		{"a way out of a path", mounts("/srv"), container(volumes("/srv/../etc:/e")), "config.dockerConfig.volumes[0]"},
		{"a path for reading", mounts("/srv:ro"), container(volumes("/srv:/s:ro")), ""},
		{"a path for writing", mounts("/srv:ro"), container(volumes("/srv:/s")), "config.dockerConfig.volumes[0]"},
		{"writing, which is the default", mounts("/srv:ro"), container(volumes("/srv:/s:rw")), "config.dockerConfig.volumes[0]"},
		{"no volumes", mounts(), container(), ""},

		{"no network mode", Rules{Networks: []string{"default"}}, container(), ""},
		{"a network", Rules{Networks: []string{"none"}}, container(network("none")), ""},
		{"the network of the robot", Rules{Networks: []string{"bridge"}}, container(network("host")), "config.dockerConfig.networkMode"},
		{"the network of a container", Rules{Networks: []string{"bridge"}}, container(network("container:abc")), "config.dockerConfig.networkMode"},
		{"the network of a container that is allowed", Rules{Networks: []string{"container"}}, container(network("container:abc")), ""},

		{"a device", Rules{Devices: []string{"arm", "camera"}}, process(devices("arm")), ""},
		{"another device", Rules{Devices: []string{"arm"}}, process(devices("arm", "laser")), "resources.devices"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Policy{Allow: c.in}
			if err := p.Validate(); err != nil && !reflect.DeepEqual(c.in, Rules{}) {
				t.Errorf("the policy is not valid: %v", err)
			}
			got := Evaluate(p, c.task)
			if (len(got) == 0) != (c.want == "") || len(got) > 0 && got[0].Field != c.want {
				t.Errorf("violations %+v, want field %q", got, c.want)
			}
		})
	}
}

func TestEvaluate_WithoutPolicyAllowsEverything(t *testing.T) {
	if got := Evaluate(nil, process(user("root"))); len(got) != 0 {
		t.Errorf("violations %v", got)
	}
}

func TestEvaluate_ProblemAllowsNothing(t *testing.T) {
	p := AllowNothing("line 3: root must be true or false")
	got := Evaluate(p, process())
	if len(got) != 1 || got[0].Rule != "" || !strings.Contains(got[0].String(), "line 3") {
		t.Errorf("violations %v", got)
	}
	if err := AllowNothing("").Check(process()); err == nil {
		t.Error("a problem without a text allows tasks")
	}
}

// drawList draws a rule: nil, empty, or with some of the values.
func drawList(t *rapid.T, name string, values []string) []string {
	if rapid.Bool().Draw(t, name+" is set") {
		return rapid.SliceOfN(rapid.SampledFrom(values), 0, 3).Draw(t, name)
	}
	return nil
}

func drawRules(t *rapid.T, prefix string) (r Rules) {
	for name, values := range map[string][]string{
		RuleNamespaces: {"prod", "test"}, RuleDrivers: {"exec", "raw_exec", "docker", "java"}, RuleUsers: {"pilot", "root", "0"},
		RuleCommands: {"/opt/robot/", "/bin/sh", "java", "sh"}, RuleImages: {"alpine", "alpine:3", "docker.io/", "registry.example/a/"},
		RuleMounts: {"/srv", "/srv/a:ro", "/"}, RuleNetworks: {"default", "host", "container"}, RuleDevices: {"arm", "camera"},
	} {
		*r.ListOf(name) = drawList(t, prefix+name, values)
	}
	if rapid.Bool().Draw(t, prefix+"root is set") {
		r.Root = new(rapid.Bool().Draw(t, prefix+"root"))
	}
	return r
}

func drawSubject(t *rapid.T) Subject {
	s := Subject{
		Namespace: rapid.SampledFrom([]string{"prod", "test"}).Draw(t, "namespace"),
		Driver:    rapid.SampledFrom([]string{"exec", "raw_exec", "docker", "java", "podman"}).Draw(t, "driver"),
		User:      rapid.SampledFrom([]string{"", "pilot", "root", "0", "0:0", "1000"}).Draw(t, "user"),
		Devices:   rapid.SliceOfN(rapid.SampledFrom([]string{"arm", "camera", "laser"}), 0, 2).Draw(t, "devices"),
	}
	if s.IsContainer() {
		s.Image = rapid.SampledFrom([]string{"alpine", "alpine:3", "alpine@sha256:a", "registry.example/a/b", "evil/alpine", "deadbeef"}).Draw(t, "image")
		s.Network = rapid.SampledFrom([]string{"", "host", "none", "container:x"}).Draw(t, "network")
		s.Volumes = rapid.SliceOfN(rapid.SampledFrom([]string{"/srv:/s", "/srv/a:/a:ro", "/etc:/e", "/srv/../etc:/e", "x"}), 0, 2).Draw(t, "volumes")
		return s
	}
	s.SetCommand(rapid.SampledFrom([]string{"/opt/robot/x", "/opt/robot/../x", "/bin/sh", "sh", "./sh", "${meta.x}"}).Draw(t, "command"))
	s.LoaderVariables = LoaderVariables(rapid.SliceOfN(rapid.SampledFrom([]string{"PATH", "HOME", "LD_PRELOAD"}), 0, 2).Draw(t, "env"))
	s.IsResolved = rapid.Bool().Draw(t, "resolved")
	return s
}

func TestEvaluate_AddingRuleNeverAllowsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few, s := drawRules(t, ""), drawSubject(t)
		more, extra := few, drawRules(t, "extra ")
		for _, name := range RuleNames() {
			if list := more.ListOf(name); list != nil && *list == nil {
				*list = *extra.ListOf(name)
			}
		}
		if more.Root == nil {
			more.Root = extra.Root
		}
		before, after := Evaluate(&Policy{Allow: few}, s), Evaluate(&Policy{Allow: more}, s)
		for _, v := range before {
			if !slices.Contains(after, v) {
				t.Errorf("%+v does not allow %v, and with more rules %+v does", few, v, more)
			}
		}
		if got := Evaluate(&Policy{Allow: more, Problem: "x"}, s); len(got) == 0 {
			t.Error("a policy with a problem allows the task")
		}
	})
}

func TestEvaluate_RemovingEntryNeverAllowsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		with, s := drawRules(t, ""), drawSubject(t)
		for _, name := range RuleNames() {
			list := with.ListOf(name)
			if list == nil || len(*list) == 0 {
				continue
			}
			without := with
			*without.ListOf(name) = append([]string{}, (*list)[1:]...)
			for _, v := range Evaluate(&Policy{Allow: with}, s) {
				if !slices.Contains(Evaluate(&Policy{Allow: without}, s), v) {
					t.Errorf("without its first entry of %s the policy %+v allows %v", name, with, v)
				}
			}
		}
	})
}

func TestSubject_KeyKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := drawSubject(t), drawRules(t, "")
		got, err := ParseKey(s.Key())
		if err != nil || got.Key() != s.Key() || !slices.Equal(Evaluate(&Policy{Allow: r}, got), Evaluate(&Policy{Allow: r}, s)) {
			t.Errorf("%+v is read as %+v, %v", s, got, err)
		}
	})
}

func TestViolation_NamesFieldValueAndRule(t *testing.T) {
	v := Evaluate(&Policy{Allow: commands("/opt/")}, process(command("/bin/sh")))[0]
	if want := `config.execConfig.command "/bin/sh" is not allowed by the policy of the robot (allow.commands)`; v.String() != want {
		t.Errorf("%s, want %s", v, want)
	}
	if want := `spec.tasks[1].config.execConfig.command "/bin/sh" is not`; !strings.HasPrefix(v.WithPath("spec.tasks[1]"), want) {
		t.Errorf("%s, want %s", v.WithPath("spec.tasks[1]"), want)
	}
}
