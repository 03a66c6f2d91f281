package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// fixedPolicy is a policy that does not change.
type fixedPolicy struct{ policy.Policy }

func (p fixedPolicy) Read() *policy.Policy { return &p.Policy }

func TestApplyPolicy_ResolvesLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	open, secret := filepath.Join(dir, "open"), filepath.Join(dir, "secret")
	must(t, os.MkdirAll(filepath.Join(open, "sub"), 0o755))
	must(t, os.Mkdir(secret, 0o755))
	must(t, os.Symlink(secret, filepath.Join(open, "way-out")))
	must(t, os.Symlink(filepath.Join(open, "sub"), filepath.Join(dir, "way-in")))
	must(t, os.Symlink(open, filepath.Join(dir, "alias")))
	for name, c := range map[string]struct{ entry, source, want, message string }{
		"a path":                    {open, open + "/sub", open + "/sub", ""},
		"a link out of the path":    {open, open + "/way-out", "", "secret:/x"},
		"a link below a link":       {open, dir + "/alias/way-out", "", "secret:/x"},
		"a link into the path":      {open, dir + "/way-in", open + "/sub", ""},
		"a path below an alias":     {open, dir + "/alias/sub", open + "/sub", ""},
		"an entry that is an alias": {dir + "/alias", open + "/sub", open + "/sub", ""},
		"a path that is missing":    {open, open + "/none", "", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Runner{policy: fixedPolicy{policy.Policy{Allow: policy.Rules{Mounts: []string{c.entry}}}}}
			sent := &wire.DockerConfig{Image: "x", Volumes: []string{c.source + ":/x:ro"}}
			s := shim.Spec{Driver: driverDocker, Config: wire.TaskConfig{Docker: sent}}
			err := r.applyPolicy(&attempt{task: wire.Task{Spec: wire.TaskSpec{Driver: driverDocker}}}, &s)
			switch {
			case c.want == "" && (err == nil || !strings.Contains(err.Error(), c.message)):
				t.Errorf("error %v, want %s", err, c.message)
			case c.want != "" && (err != nil || !slices.Equal(s.Config.Docker.Volumes, []string{c.want + ":/x:ro"})):
				t.Errorf("the engine gets %v, %v; want %s", s.Config.Docker.Volumes, err, c.want)
			}
			if sent.Volumes[0] != c.source+":/x:ro" {
				t.Errorf("the task has changed to %v", sent.Volumes)
			}
		})
	}
}

func TestCheckRoot_EvaluatesTheAccount(t *testing.T) {
	for name, c := range map[string]struct {
		in      policy.Rules
		user    *isolation.User
		allowed bool
	}{
		"no rule":              {policy.Rules{}, &isolation.User{Name: "toor"}, true},
		"root is allowed":      {policy.Rules{Root: new(true)}, &isolation.User{Name: "root"}, true},
		"another name of root": {policy.Rules{Root: new(false)}, &isolation.User{Name: "toor"}, false},
		"a user":               {policy.Rules{Root: new(false)}, &isolation.User{Name: "pilot", UID: 1000}, true},
		"the agent's own user": {policy.Rules{Root: new(false)}, nil, os.Geteuid() != 0},
	} {
		r := &Runner{policy: fixedPolicy{policy.Policy{Allow: c.in}}}
		if err := r.checkRoot(c.user); (err == nil) != c.allowed || err != nil && reasonOfError(err, "") != wire.ReasonPolicyViolation {
			t.Errorf("%s: %v", name, err)
		}
	}
}
