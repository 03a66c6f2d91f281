package policyfile

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/protocol/policy"
)

const header = "apiVersion: robot.k8s4r.io/v1alpha1\nkind: RobotPolicy\n"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writeFile writes a file that only this user can change.
func writeFile(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o644))
	must(t, os.Chmod(path, 0o644))
}

// newFile returns the path of a file in a directory that only this user can change.
func newFile(t testing.TB, content string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "etc")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	path := filepath.Join(dir, "policy.yaml")
	writeFile(t, path, content)
	return path
}

// self is the owner of the files in tests.
func self() uint32 { return uint32(os.Geteuid()) }

func TestReadProtected(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, path string)
		owner  uint32
		want   string // of the error; empty: none
	}{
		"a file of the owner":    {func(*testing.T, string) {}, self(), ""},
		"a file of another user": {func(*testing.T, string) {}, 12345, "must belong to root, and belongs to uid"},
		"a file of a group":      {func(t *testing.T, p string) { must(t, os.Chmod(p, 0o664)) }, self(), "can be changed by other users than root (mode 0664): chmod go-w"},
		"a file of all":          {func(t *testing.T, p string) { must(t, os.Chmod(p, 0o646)) }, self(), "can be changed by other users"},
		"a directory of a group": {func(t *testing.T, p string) { must(t, os.Chmod(filepath.Dir(p), 0o775)) }, self(), "can be changed by other users"},
		"a parent of all":        {func(t *testing.T, p string) { must(t, os.Chmod(filepath.Dir(filepath.Dir(p)), 0o777)) }, self(), "can be changed by other users"},
		"a parent like /tmp":     {func(t *testing.T, p string) { must(t, os.Chmod(filepath.Dir(filepath.Dir(p)), 0o777|os.ModeSticky)) }, self(), ""},
		"a link":                 {func(t *testing.T, p string) { must(t, os.Rename(p, p+"2")); must(t, os.Symlink(p+"2", p)) }, self(), "is a symbolic link; name the file that it points to"},
		"a directory that is a link": {func(t *testing.T, p string) {
			dir := filepath.Dir(p)
			must(t, os.Rename(dir, dir+"2"))
			must(t, os.Symlink(dir+"2", dir))
		}, self(), "is a symbolic link"},
		"a pipe":                  {func(t *testing.T, p string) { must(t, os.Remove(p)); must(t, unix.Mkfifo(p, 0o644)) }, self(), "must be a regular file"},
		"a directory":             {func(t *testing.T, p string) { must(t, os.Remove(p)); must(t, os.Mkdir(p, 0o755)) }, self(), "is a directory"},
		"a file that is too long": {func(t *testing.T, p string) { writeFile(t, p, strings.Repeat("#", policy.MaxSize+1)) }, self(), "is longer than 8 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newFile(t, "content")
			c.change(t, path)
			b, err := readProtected(path, c.owner)
			switch {
			case c.want == "" && (err != nil || string(b) != "content"):
				t.Errorf("read %q, %v", b, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
	if _, err := readProtected(filepath.Join(t.TempDir(), "none"), self()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestParse(t *testing.T) {
	f, err := Parse([]byte(header + `
allow:
  namespaces: [prod]
  users: [pilot, 1000]   # text, not a number
  root: false
  mounts: []
  commands:
  - /opt/robot/
`))
	must(t, err)
	want := policy.Policy{Allow: policy.Rules{Namespaces: []string{"prod"}, Users: []string{"pilot", "1000"}, Root: new(false), Mounts: []string{}, Commands: []string{"/opt/robot/"}}}
	if !f.Policy.Equal(&want) || f.UpdateKeys != nil {
		t.Errorf("read %s and keys %v, want %s", f.Policy.Key(), f.UpdateKeys, want.Key())
	}
}

func TestParse_ReadsUpdateKeys(t *testing.T) {
	_, key, err := agentupdate.NewKey()
	must(t, err)
	f, err := Parse([]byte(header + "update: {publicKeys: ['" + key + "']}\n"))
	must(t, err)
	if f.Policy != nil || len(f.UpdateKeys) != 1 {
		t.Errorf("a file with a key alone: %+v", f)
	}
	f, err = Parse([]byte(header + "allow: {root: false}\nupdate: {publicKeys: ['" + key + "']}\n"))
	must(t, err)
	if f.Policy == nil || len(f.UpdateKeys) != 1 || strings.Contains(f.Policy.Key(), "ed25519") {
		t.Errorf("a file with rules and a key: %+v", f)
	}
}

// TestKeeper_AllowsEverythingWithoutRules reads a file that has a key alone.
func TestKeeper_AllowsEverythingWithoutRules(t *testing.T) {
	_, key, err := agentupdate.NewKey()
	must(t, err)
	c := Config{Path: newFile(t, header+"update: {publicKeys: ['"+key+"']}\n"), owner: self(), Log: slog.New(slog.DiscardHandler)}
	k, err := Open(c)
	must(t, err)
	if p := k.Read(); p != nil {
		t.Errorf("the policy is %+v, want none", p)
	}
	if keys, err := c.readUpdateKeys(); err != nil || len(keys) != 1 {
		t.Errorf("keys %v, %v", keys, err)
	}
	writeFile(t, c.Path, header+"allow: {root: false}\n")
	if p := k.Read(); p == nil || p.Allow.Root == nil {
		t.Errorf("with rules the policy is %+v", p)
	}
	if keys, err := c.readUpdateKeys(); err != nil || keys != nil {
		t.Errorf("without keys: %v, %v", keys, err)
	}
	writeFile(t, c.Path, header+"update: {publicKeys: ['"+key+"']}\n")
	if p := k.Read(); p != nil {
		t.Errorf("without rules the policy is %+v", p)
	}
	must(t, os.Remove(c.Path))
	if p := k.Read(); p == nil || p.Problem == "" {
		t.Errorf("without the file the policy is %+v", p)
	}
	if _, err := c.readUpdateKeys(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}

func TestParse_Rejects(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"an empty file":           {"", "is empty"},
		"no header":               {"allow: {root: false}", "must begin with apiVersion: robot.k8s4r.io/v1alpha1 and kind: RobotPolicy"},
		"another kind":            {"apiVersion: robot.k8s4r.io/v1alpha1\nkind: Job\nallow: {root: false}", "must begin with"},
		"an unknown key":          {header + "deny: {}", "line 3: deny is not a key; the keys are apiVersion, kind, allow"},
		"an unknown rule":         {header + "allow:\n  driver: [exec]", "line 4: allow.driver is not a key; the keys are namespaces, drivers"},
		"a rule twice":            {header + "allow:\n  drivers: [exec]\n  drivers: [docker]", "line 5: allow.drivers appears twice"},
		"a rule without a value":  {header + "allow:\n  drivers:", "line 4: allow.drivers: must be a list; write [] to allow none, or remove the line to allow all"},
		"a rule with one value":   {header + "allow:\n  drivers: exec", "must be a list"},
		"an entry without a text": {header + "allow:\n  drivers: [~]", "allow.drivers[0]: must be a single value"},
		"a list in a list":        {header + "allow:\n  drivers: [[exec]]", "allow.drivers[0]: must be a single value"},
		"root that is a word":     {header + "allow:\n  root: no", "line 4: allow.root: must be true or false"},
		"root without a value":    {header + "allow:\n  root:", "allow.root: must be a single value"},
		"no rules":                {header + "allow: {}", "allow: has no rule"},
		"an alias":                {header + "allow:\n  drivers: &d [exec]\n  users: *d", "allow.users: must be a list"},
		"a second document":       {header + "allow: {root: false}\n---\nallow: {root: true}", "second document"},
		"no YAML":                 {"{", "yaml"},
		"a list":                  {"- a", "must be a map"},
		"a relative path":         {header + "allow: {commands: [bin/sh]}", `allow.commands[0] "bin/sh": must be an absolute path`},
		"a key that is none":      {header + "update: {publicKeys: [abc]}", "line 3: update.publicKeys[0]: must be ed25519:KEY"},
		"no list of keys":         {header + "update: {publicKeys: abc}", "line 3: update.publicKeys: must be a list"},
		"no keys":                 {header + "update: {publicKeys: []}", "update.publicKeys: must have 1 to 8 keys"},
		"an empty update":         {header + "allow: {root: false}\nupdate: {}", "update.publicKeys: is required"},
		"an unknown update":       {header + "update: {keys: []}", "update.keys is not a key"},
		"more than 8 KiB":         {header + strings.Repeat("#", policy.MaxSize), "is longer than 8 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := Parse([]byte(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("read %+v, %v; want %s", p, err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(header + "allow: {drivers: [exec], root: false, mounts: ['/srv:ro']}"))
	f.Add([]byte(header + "allow:\n  commands: []\n  images: [alpine, 'a.b/c/']\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := Parse(content)
		if err != nil || file.Policy == nil && len(file.UpdateKeys) > 0 {
			return
		}
		p := file.Policy
		if err := p.Validate(); err != nil || p.Problem != "" {
			t.Errorf("%q is read as %s, which is not valid: %v", content, p.Key(), err)
		}
	})
}

// open opens a policy of this user and counts its changes.
func open(t *testing.T, c Config) (k *Keeper, changes *int, err error) {
	t.Helper()
	changes = new(int)
	c.owner, c.Log, c.OnChange = self(), slog.New(slog.DiscardHandler), func() { *changes++ }
	k, err = Open(c)
	return k, changes, err
}

func TestOpen_RejectsUnusableFiles(t *testing.T) {
	invalid := newFile(t, header+"allow: {root: maybe}")
	if _, _, err := open(t, Config{Path: invalid}); err == nil || !strings.Contains(err.Error(), "policy: "+invalid+": line 3: allow.root") {
		t.Errorf("an invalid file: %v", err)
	}
	if _, _, err := open(t, Config{Path: invalid + "2"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a configured file that is missing: %v", err)
	}
	root := newFile(t, header+"allow: {root: false}")
	if _, _, err := open(t, Config{Path: root, TasksAreRoot: true}); err == nil || !strings.Contains(err.Error(), "configure another taskUser") {
		t.Errorf("a file that forbids what the agent does by default: %v", err)
	}
	must(t, os.Chmod(root, 0o666))
	if _, _, err := open(t, Config{Path: root}); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a file of all users: %v", err)
	}
}

func TestKeeper_FollowsFile(t *testing.T) {
	path := newFile(t, header+"allow: {drivers: [exec]}")
	k, changes, err := open(t, Config{Path: path})
	must(t, err)
	expect := func(what, drivers, problem string, changed int) {
		t.Helper()
		p := k.Read()
		if p == nil || strings.Join(p.Allow.Drivers, ",") != drivers || !strings.Contains(p.Problem, problem) || (p.Problem == "") != (problem == "") || *changes != changed {
			t.Errorf("%s: policy %s after %d changes", what, p.Key(), *changes)
		}
	}
	expect("at first", "exec", "", 0)
	first := k.Read()
	writeFile(t, path, "# a comment\n"+header+"allow: {drivers: [exec]}")
	expect("after a change of a comment", "exec", "", 0)
	if k.Read() != first {
		t.Error("an equal policy is another one")
	}
	writeFile(t, path, header+"allow: {drivers: [docker]}")
	expect("after a change", "docker", "", 1)
	writeFile(t, path, header+"allow: {drivers: }")
	expect("with a mistake", "", "allow.drivers: must be a list", 2)
	expect("with the same mistake", "", "allow.drivers: must be a list", 2)
	must(t, os.Remove(path))
	expect("without the file", "", "was removed; restart the agent", 3)
	writeFile(t, path, header+"allow: {drivers: [docker]}")
	expect("with the file again", "docker", "", 4)
	must(t, os.Chmod(path, 0o666))
	expect("as a file of all users", "", "can be changed by other users", 5)
	must(t, os.Chmod(path, 0o644))
	expect("as a file of the owner again", "docker", "", 6)
}

func TestKeeper_FollowsUpdateKeys(t *testing.T) {
	_, key, err := agentupdate.NewKey()
	must(t, err)
	keys := "update: {publicKeys: ['" + key + "']}\n"
	path := newFile(t, header+keys)
	k, changes, err := open(t, Config{Path: path})
	must(t, err)
	expect := func(what string, want bool, changed int) {
		t.Helper()
		if k.Read(); k.HasUpdateKeys() != want || *changes != changed {
			t.Errorf("%s: keys %v, %d changes", what, k.HasUpdateKeys(), *changes)
		}
	}
	expect("at first", true, 0)
	writeFile(t, path, header+"allow: {drivers: [exec]}\n"+keys)
	expect("with another rule", true, 1)
	writeFile(t, path, header+"allow: {drivers: [exec]}\n")
	expect("without the key", false, 2)
	expect("still without", false, 2)
	writeFile(t, path, header+"allow: {drivers: [exec]}\n"+keys)
	expect("with the key again", true, 3)
	must(t, os.Chmod(path, 0o666))
	expect("as a file of all users", false, 4)
}

func TestParseManifest(t *testing.T) {
	m, err := ParseManifest([]byte(`
apiVersion: robot.k8s4r.io/v1alpha1
kind: Job
metadata: {name: scan, namespace: prod}
spec:
  name: scan
  taskGroups:
  - name: main
    initTasks:
    - {name: setup, driver: raw_exec, config: {execConfig: {command: /bin/true}}}
    tasks:
    - name: scan
      driver: docker
      user: root
      resources: {cpu: 1, devices: {arm: 1}}
      timeout: 10s
      config: {dockerConfig: {image: alpine, volumes: ["/srv:/s"], networkMode: host}}
---
---
apiVersion: robot.k8s4r.io/v1alpha1
kind: JobTemplate
metadata: {name: t}
spec: {taskGroups: [{name: g, tasks: [{name: a, driver: exec, env: {PATH: /x}, config: {execConfig: {command: sh}}}]}]}
---
apiVersion: robot.k8s4r.io/v1alpha1
kind: Task
metadata: {name: one}
spec: {name: one, driver: exec, user: pilot, config: {execConfig: {command: sh}}}
---
apiVersion: robot.k8s4r.io/v1alpha1
kind: TaskGroup
metadata: {name: two}
spec: {jobName: j, groupName: g, tasks: [{name: b, driver: exec, config: {execConfig: {command: sh}}}]}
---
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata: {name: flow}
`), "lab")
	must(t, err)
	var got []string
	for _, task := range m.Tasks {
		got = append(got, task.Object+" "+task.Path+" "+task.Subject.Key())
	}
	want := []string{
		`Job/scan spec.taskGroups[0].initTasks[0] {"namespace":"prod","driver":"raw_exec","command":"/bin/true"}`,
		`Job/scan spec.taskGroups[0].tasks[0] {"namespace":"prod","driver":"docker","user":"root","image":"alpine","network":"host","volumes":["/srv:/s"],"devices":["arm"]}`,
		`JobTemplate/t spec.taskGroups[0].tasks[0] {"namespace":"lab","driver":"exec","command":"sh","loaderVariables":["PATH"]}`,
		`Task/one spec {"namespace":"lab","driver":"exec","user":"pilot","command":"sh"}`,
		`TaskGroup/two spec.tasks[0] {"namespace":"lab","driver":"exec","command":"sh"}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("tasks\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(m.Skipped) != 1 || m.Skipped[0] != "JobFlow/flow" {
		t.Errorf("skipped %v", m.Skipped)
	}
	for name, in := range map[string]string{"no YAML": "{", "no kind": "a: b", "no object": "[1]", "a number for a text": "apiVersion: robot.k8s4r.io/v1alpha1\nkind: Task\nspec: {user: 5}"} {
		if m, err := ParseManifest([]byte(in), ""); err == nil {
			t.Errorf("%s is read as %+v", name, m)
		}
	}
}

func TestExample_IsAllowedByItsPolicy(t *testing.T) {
	const dir = "../../../../examples/policy/"
	text, err := os.ReadFile(dir + "policy.yaml")
	must(t, err)
	f, err := Parse(text)
	must(t, err)
	text, err = os.ReadFile(dir + "job.yaml")
	must(t, err)
	m, err := ParseManifest(text, "")
	must(t, err)
	for _, task := range m.Tasks {
		if err := f.Policy.Check(task.Subject); err != nil {
			t.Errorf("%s: %v", task.Path, err)
		}
	}
	if len(m.Tasks) != 2 {
		t.Errorf("%d tasks, want 2", len(m.Tasks))
	}
}
