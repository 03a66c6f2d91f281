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

// treeName is the cgroup above the trees of all agents of a host.
const treeName = "k8s4r"

// ErrInUse is returned if a cgroup of this name has running processes.
var ErrInUse = errors.New("the cgroup still has processes")

// Tree contains the cgroups of an agent's tasks.
type Tree struct {
	// v2 is the directory on a host with cgroup v2.
	v2 string
	// v1 has the directory of each controller on a host with cgroup v1.
	v1 map[string]string
	// controllers are those that work here.
	controllers []string
	// refused is why the kernel enabled fewer controllers than the host has, or nil.
	refused error
}

// OpenTree opens or creates the tree of an owner, which is the name of the agent's robot. In tests
// and demos several agents share a host, and none may sweep the tasks of another. The error is a
// sentence for the operator of the robot.
func OpenTree(owner string) (*Tree, error) {
	if err := checkName(owner); err != nil {
		return nil, err
	}
	h, err := findHierarchies()
	if err != nil {
		return nil, err
	}
	if h.usesVersion2() {
		return openV2(h.parentGroup(os.Geteuid()), owner)
	}
	return openV1(h.v1, owner)
}

func openV1(dirs map[string]string, owner string) (*Tree, error) {
	t := &Tree{v1: map[string]string{}}
	for controller, dir := range dirs {
		dir = filepath.Join(dir, treeName, owner)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("create a cgroup: %w", err)
		}
		t.v1[controller] = dir
	}
	t.controllers = slices.Sorted(maps.Keys(t.v1))
	return t, nil
}

// openV2 opens or creates the tree below a cgroup of v2.
func openV2(parent, owner string) (*Tree, error) {
	top := filepath.Join(parent, treeName)
	dir := filepath.Join(top, owner)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create a cgroup: %w", err)
	}
	refused := errors.Join(enableControllers(parent), enableControllers(top), enableControllers(dir))
	return &Tree{v2: dir, controllers: readWords(dir, "cgroup.subtree_control"), refused: refused}, nil
}

// hasController reports whether the tree can limit by a controller: cpu, memory or pids.
func (t *Tree) hasController(controller string) bool {
	return slices.Contains(t.controllers, controller)
}

// Create creates the cgroup of a task with its limits. If an old one exists without running
// processes, it is recreated, so that its counters start at zero. If it has running processes,
// Create returns ErrInUse.
func (t *Tree) Create(name string, l Limits) (*Cgroup, error) {
	c, err := t.groupPath(name)
	if err != nil {
		return nil, err
	}
	err = c.makeGroup(l)
	if errors.Is(err, fs.ErrExist) {
		if !c.Empty() {
			return nil, fmt.Errorf("cgroup %s: %w", name, ErrInUse)
		}
		if err := c.Remove(); err != nil {
			return nil, err
		}
		err = c.makeGroup(l)
	}
	if err != nil {
		return nil, errors.Join(err, c.Remove())
	}
	return c, nil
}

func (c *Cgroup) makeGroup(l Limits) error {
	for _, dir := range c.version().listDirs() {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("create a cgroup: %w", err)
		}
	}
	return c.version().applyLimits(l)
}

// Open opens the cgroup of a task that an earlier agent has created. It returns fs.ErrNotExist if
// there is none.
func (t *Tree) Open(name string) (*Cgroup, error) {
	c, err := t.groupPath(name)
	if err != nil {
		return nil, err
	}
	if err := c.checkExists(); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", name, err)
	}
	return c, nil
}

// groupPath returns the cgroup of a task, which may not exist.
func (t *Tree) groupPath(name string) (*Cgroup, error) {
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

// Sweep kills and removes the cgroups of tasks that are not in use, waiting up to wait for each,
// and returns their names.
func (t *Tree) Sweep(inUse func(name string) bool, wait time.Duration) (swept []string, err error) {
	var errs []error
	for _, name := range t.listNames() {
		if inUse(name) {
			continue
		}
		c, err := t.groupPath(name)
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

// Remove deletes the tree, which must have no cgroups left.
func (t *Tree) Remove() error {
	var errs []error
	for _, dir := range t.listDirs() {
		errs = append(errs, removeDir(dir, time.Now().Add(2*time.Second)))
		// Fails if another agent of this host has its tree there.
		_ = os.Remove(filepath.Dir(dir))
	}
	return errors.Join(errs...)
}

func (t *Tree) listNames() []string {
	var names []string
	for _, dir := range t.listDirs() {
		names = append(names, listSubdirs(dir)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (t *Tree) listDirs() []string { return (&Cgroup{V2: t.v2, V1: t.v1}).version().listDirs() }

// checkName rejects names that lead out of the tree or name a file of a cgroup.
func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00\n") {
		return fmt.Errorf("%q is not a valid cgroup name", name)
	}
	return nil
}
