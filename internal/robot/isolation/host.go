package isolation

import (
	"fmt"
	"io/fs"
	"slices"
)

// Fact is a kind of isolation that a host may support. The values are stable: robots report them,
// and tasks use them in isolation.required.
type Fact string

// The facts.
const (
	// FactCgroup means that all processes of a task are known, measured and killed.
	FactCgroup      Fact = "cgroup"
	FactCPULimit    Fact = "cpu-limit"
	FactMemoryLimit Fact = "memory-limit"
	FactPIDsLimit   Fact = "pids-limit"
	// FactMountNamespace means that a task has its own view of the file systems.
	FactMountNamespace Fact = "mount-namespace"
	// FactPIDNamespace means that a task sees and signals only its own processes.
	FactPIDNamespace Fact = "pid-namespace"
	FactIPCNamespace Fact = "ipc-namespace"
	// FactPrivateTmp means that /tmp and /var/tmp belong to the replica.
	FactPrivateTmp     Fact = "private-tmp"
	FactReadOnlySystem Fact = "read-only-system"
	// FactUser means that a task can run as another user.
	FactUser            Fact = "user"
	FactNoNewPrivileges Fact = "no-new-privileges"
	FactRlimits         Fact = "rlimits"
	FactSeccomp         Fact = "seccomp"
)

// Facts are all facts, in the order in which they are reported.
var Facts = []Fact{
	FactCgroup, FactCPULimit, FactMemoryLimit, FactPIDsLimit, FactMountNamespace, FactPIDNamespace,
	FactIPCNamespace, FactPrivateTmp, FactReadOnlySystem, FactUser, FactNoNewPrivileges, FactRlimits, FactSeccomp,
}

// MissingFact is a fact that a host does not support.
type MissingFact struct {
	Fact Fact `json:"fact"`
	// Reason and Remedy are sentences: why it is not supported, and what the operator can do.
	Reason string `json:"reason"`
	Remedy string `json:"remedy,omitempty"`
}

// Host is what a host supports.
type Host struct {
	Allowed []Fact        `json:"allowed"`
	Missing []MissingFact `json:"missing,omitempty"`
	// Tree contains the cgroups. If nil, FactCgroup is not supported.
	Tree *Tree `json:"-"`
}

// Allows reports whether the host supports a fact.
func (h Host) Allows(f Fact) bool { return slices.Contains(h.Allowed, f) }

// Cgroup opens the cgroup of a task (Tree.Open). It returns fs.ErrNotExist if there is none.
func (h Host) Cgroup(name string) (*Cgroup, error) {
	if h.Tree == nil {
		return nil, fs.ErrNotExist
	}
	return h.Tree.Open(name)
}

// MissingFacts returns the facts in a task's isolation.required that the host does not support. It
// is nil if all are supported.
func (h Host) MissingFacts(required []string) []MissingFact {
	var missing []MissingFact
	for _, name := range required {
		switch f := Fact(name); {
		case h.Allows(f):
		case !slices.Contains(Facts, f):
			missing = append(missing, MissingFact{f, fmt.Sprintf("%q is not a known kind of isolation", name),
				fmt.Sprintf("use one of %v", Facts)})
		default:
			missing = append(missing, h.explainMissing(f))
		}
	}
	return missing
}

// explainMissing returns why the host does not support a fact.
func (h Host) explainMissing(f Fact) MissingFact {
	if i := slices.IndexFunc(h.Missing, func(m MissingFact) bool { return m.Fact == f }); i >= 0 {
		return h.Missing[i]
	}
	return MissingFact{Fact: f, Reason: "the agent did not probe for it"}
}
