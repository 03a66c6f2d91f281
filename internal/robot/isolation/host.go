package isolation

import (
	"fmt"
	"io/fs"
	"slices"
)

// Fact is one thing that a host allows of. The words are stable: robots report
// them, and tasks name them in isolation.required.
type Fact string

// The facts.
const (
	// FactCgroup: all processes of a task are known, counted and killed.
	FactCgroup      Fact = "cgroup"
	FactCPULimit    Fact = "cpu-limit"
	FactMemoryLimit Fact = "memory-limit"
	FactPIDsLimit   Fact = "pids-limit"
	// FactMountNamespace: a task has its own view of the file systems.
	FactMountNamespace Fact = "mount-namespace"
	// FactPIDNamespace: a task sees, and can signal, no process but its own.
	FactPIDNamespace Fact = "pid-namespace"
	FactIPCNamespace Fact = "ipc-namespace"
	// FactPrivateTmp: /tmp and /var/tmp belong to the replica.
	FactPrivateTmp     Fact = "private-tmp"
	FactReadOnlySystem Fact = "read-only-system"
	// FactUser: a task can run as another user.
	FactUser            Fact = "user"
	FactNoNewPrivileges Fact = "no-new-privileges"
	FactRlimits         Fact = "rlimits"
	FactSeccomp         Fact = "seccomp"
)

// Facts are all there are, in the order in which they are reported.
var Facts = []Fact{
	FactCgroup, FactCPULimit, FactMemoryLimit, FactPIDsLimit, FactMountNamespace, FactPIDNamespace,
	FactIPCNamespace, FactPrivateTmp, FactReadOnlySystem, FactUser, FactNoNewPrivileges, FactRlimits, FactSeccomp,
}

// Lack is a fact that a host does not have.
type Lack struct {
	Fact Fact `json:"fact"`
	// Why and How are sentences: what is in the way, and what to do about it.
	Why string `json:"why"`
	How string `json:"how,omitempty"`
}

// Host is what a host allows of.
type Host struct {
	Allowed []Fact `json:"allowed"`
	Lacks   []Lack `json:"lacks,omitempty"`
	// Tree is where control groups are made. Nil without FactCgroup.
	Tree *Tree `json:"-"`
}

// Allows tells whether the host has a fact.
func (h Host) Allows(f Fact) bool { return slices.Contains(h.Allowed, f) }

// Cgroup finds the control group of a task (Tree.Open). The error is fs.ErrNotExist
// when there is none.
func (h Host) Cgroup(name string) (*Cgroup, error) {
	if h.Tree == nil {
		return nil, fs.ErrNotExist
	}
	return h.Tree.Open(name)
}

// Missing tells what of a task's isolation.required the host does not have;
// nil when it has all.
func (h Host) Missing(required []string) []Lack {
	var missing []Lack
	for _, word := range required {
		switch f := Fact(word); {
		case h.Allows(f):
		case !slices.Contains(Facts, f):
			missing = append(missing, Lack{f, fmt.Sprintf("%q is no kind of isolation", word),
				fmt.Sprintf("use words of this list: %v", Facts)})
		default:
			missing = append(missing, h.lack(f))
		}
	}
	return missing
}

func (h Host) lack(f Fact) Lack {
	if i := slices.IndexFunc(h.Lacks, func(l Lack) bool { return l.Fact == f }); i >= 0 {
		return h.Lacks[i]
	}
	return Lack{Fact: f, Why: "the agent did not look for it"}
}
