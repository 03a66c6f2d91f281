package shim

import (
	"slices"
	"strconv"
	"strings"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Range has indexes of an array, for each of which the task runs, one after another.
type Range struct {
	// Indexes in the order in which they run.
	Indexes []int32
	// Items of the indexes, in their order. If empty, there are none.
	Items []string
}

// Marks stand for values of the index in the arguments and in the environment of a range. Text without
// NUL bytes, as in all arguments, has none.
const (
	IndexMark = "\x00i"
	ItemMark  = "\x00t"
)

// HasMarks reports whether a text has IndexMark or ItemMark.
func HasMarks(text string) bool { return strings.IndexByte(text, 0) >= 0 }

// filler fills in the marks in a Spec with Range.
type filler struct {
	config    wire.TaskConfig
	hasConfig bool     // config has marks
	names     []string // of the variables with marks
	env       map[string]string
}

func newFiller(s Spec) filler {
	f := filler{config: s.Config, env: s.Env}
	for _, list := range argumentsOf(&s.Config) {
		f.hasConfig = f.hasConfig || slices.ContainsFunc(*list, HasMarks)
	}
	for name, value := range s.Env {
		if HasMarks(value) {
			f.names = append(f.names, name)
		}
	}
	return f
}

// fillIn returns the config and the environment of the index at position n.
func (f filler) fillIn(r *Range, n int) (wire.TaskConfig, map[string]string) {
	item := ""
	if n < len(r.Items) {
		item = r.Items[n]
	}
	replacer := strings.NewReplacer(IndexMark, strconv.Itoa(int(r.Indexes[n])), ItemMark, item)
	env := make(map[string]string, len(f.env))
	for name, value := range f.env {
		env[name] = value
	}
	for _, name := range f.names {
		env[name] = replacer.Replace(env[name])
	}
	if !f.hasConfig {
		return f.config, env
	}
	config := cloneConfig(f.config)
	for _, list := range argumentsOf(&config) {
		*list = slices.Clone(*list)
		for i := range *list {
			(*list)[i] = replacer.Replace((*list)[i])
		}
	}
	return config, env
}

// argumentsOf returns the lists of a config in which there may be marks.
func argumentsOf(c *wire.TaskConfig) (lists []*[]string) {
	if c.Exec != nil {
		lists = append(lists, &c.Exec.Args)
	}
	if c.Docker != nil {
		lists = append(lists, &c.Docker.Args)
	}
	if c.Java != nil {
		lists = append(lists, &c.Java.Args, &c.Java.JVMOptions)
	}
	return lists
}

// cloneConfig returns a copy whose lists of arguments can be replaced.
func cloneConfig(c wire.TaskConfig) wire.TaskConfig {
	c.Exec, c.Docker, c.Java = clone(c.Exec), clone(c.Docker), clone(c.Java)
	return c
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	copied := *p
	return &copied
}
