package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// treeName is the group above the trees of all agents of a host.
const treeName = "k8s4r"

// ErrInUse tells that a control group of this name has living processes.
var ErrInUse = errors.New("the cgroup has living processes")

// Tree is where an agent makes the control groups of its tasks.
type Tree struct {
	// v2 is the directory on a host with version 2.
	v2 string
	// v1 has the directory for each controller on a host with version 1.
	v1 map[string]string
	// controllers are those that limit something here.
	controllers []string
	// refused is why the kernel gave us fewer than the host has; else nil.
	refused error
}

// OpenTree finds or makes the tree of an owner, the name of the agent's robot:
// several agents share a host in tests and demos, and none may sweep what
// another one runs. The error is a sentence for who runs the robot.
func OpenTree(owner string) (*Tree, error) {
	if err := checkName(owner); err != nil {
		return nil, err
	}
	h, err := findHierarchies()
	if err != nil {
		return nil, err
	}
	if h.version2() {
		return openV2(h.parent(os.Geteuid()), owner)
	}
	return openV1(h.v1, owner)
}

func openV1(dirs map[string]string, owner string) (*Tree, error) {
	t := &Tree{v1: map[string]string{}}
	for controller, dir := range dirs {
		dir = filepath.Join(dir, treeName, owner)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make a cgroup: %w", err)
		}
		t.v1[controller] = dir
	}
	t.controllers = slices.Sorted(maps.Keys(t.v1))
	return t, nil
}

// openV2 makes the tree below a group of version 2.
func openV2(parent, owner string) (*Tree, error) {
	top := filepath.Join(parent, treeName)
	dir := filepath.Join(top, owner)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	refused := errors.Join(enable(parent), enable(top), enable(dir))
	return &Tree{v2: dir, controllers: words(dir, "cgroup.subtree_control"), refused: refused}, nil
}

// has tells whether the tree can limit by a controller: cpu, memory or pids.
func (t *Tree) has(controller string) bool { return slices.Contains(t.controllers, controller) }

// Create makes the control group of a task with its limits. One of that name
// whose processes have all ended is made anew, so that its figures start at
// zero; one with living processes is ErrInUse.
func (t *Tree) Create(name string, l Limits) (*Cgroup, error) {
	c, err := t.path(name)
	if err != nil {
		return nil, err
	}
	err = c.make(l)
	if errors.Is(err, fs.ErrExist) {
		if !c.Empty() {
			return nil, fmt.Errorf("cgroup %s: %w", name, ErrInUse)
		}
		if err := c.Remove(); err != nil {
			return nil, err
		}
		err = c.make(l)
	}
	if err != nil {
		return nil, errors.Join(err, c.Remove())
	}
	return c, nil
}

func (c *Cgroup) make(l Limits) error {
	for _, dir := range c.version().dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
	}
	return c.version().limit(l)
}

// Open finds the control group of a task that an earlier agent has made. The
// error is fs.ErrNotExist when there is none.
func (t *Tree) Open(name string) (*Cgroup, error) {
	c, err := t.path(name)
	if err != nil {
		return nil, err
	}
	if err := c.exists(); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", name, err)
	}
	return c, nil
}

// path is the control group of a task, which may not exist.
func (t *Tree) path(name string) (*Cgroup, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if t.v2 != "" {
		return &Cgroup{V2: filepath.Join(t.v2, name)}, nil
	}
	c := &Cgroup{V1: map[string]string{}}
	for controller, dir := range t.v1 {
		c.V1[controller] = filepath.Join(dir, name)
	}
	return c, nil
}

// Sweep kills and removes the control groups of tasks that are not in use, for
// up to wait each, and returns their names.
func (t *Tree) Sweep(inUse func(name string) bool, wait time.Duration) (swept []string, err error) {
	var errs []error
	for _, name := range t.names() {
		if inUse(name) {
			continue
		}
		c, err := t.path(name)
		if err == nil {
			err = errors.Join(c.Kill(wait), c.Remove())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep cgroup %s: %w", name, err))
			continue
		}
		swept = append(swept, name)
	}
	return swept, errors.Join(errs...)
}

// Remove deletes the tree, in which no control group is left.
func (t *Tree) Remove() error {
	var errs []error
	for _, dir := range t.dirs() {
		errs = append(errs, removeDir(dir, time.Now().Add(2*time.Second)))
		// Another agent of this host may have its tree there.
		_ = os.Remove(filepath.Dir(dir))
	}
	return errors.Join(errs...)
}

func (t *Tree) names() []string {
	var names []string
	for _, dir := range t.dirs() {
		names = append(names, subdirs(dir)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (t *Tree) dirs() []string { return (&Cgroup{V2: t.v2, V1: t.v1}).version().dirs() }

// checkName keeps a name from leading out of the tree, or to a file of it.
func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00\n") {
		return fmt.Errorf("%q cannot name a cgroup", name)
	}
	return nil
}
