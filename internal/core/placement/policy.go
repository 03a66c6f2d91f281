package placement

import (
	"slices"
	"unique"

	"k8s4r.io/k8s4r/internal/protocol/policy"
)

// Policy is a robot's own policy. Equal policies have equal ids, so that those of a fleet, which are
// few, can be compared and looked up fast.
type Policy struct {
	policy *policy.Policy
	id     unique.Handle[string]
}

// NewPolicy returns a policy for an Offer. It returns nil for nil: the robot allows everything.
func NewPolicy(p *policy.Policy) *Policy {
	if p == nil {
		return nil
	}
	return &Policy{policy: p, id: unique.Make(p.Key())}
}

// Equal reports whether both policies are equal or nil.
func (p *Policy) Equal(o *Policy) bool {
	return p == o || p != nil && o != nil && p.id == o.id
}

// rejectSubject returns the rejection of a task by the policy. The subject is a policy.Subject's Key.
func (p *Policy) rejectSubject(subject string) Rejection {
	s, err := policy.ParseKey(subject)
	if err != nil {
		return Rejection{Check: CheckPolicy, Want: err.Error()}
	}
	violations := policy.Evaluate(p.policy, s)
	switch {
	case len(violations) == 0:
		return Rejection{}
	case violations[0].Rule == "":
		return Rejection{Check: CheckPolicyFile}
	}
	v := violations[0]
	return Rejection{Check: CheckPolicy, Want: v.Field + " " + v.Value, Got: "allow." + v.Rule}
}

// policyCheck rejects robots whose policy can never allow all of the tasks. A policy file that cannot
// be used will be corrected.
func policyCheck(tasks []Task) Check {
	return func(r *Robot) Rejection {
		if r.Policy == nil {
			return Rejection{}
		}
		for i := range tasks {
			if no := r.Policy.rejectSubject(tasks[i].Subject); !no.IsZero() && no.Check != CheckPolicyFile {
				return no
			}
		}
		return Rejection{}
	}
}

// verdicts caches what policies reject, by policy and subject.
type verdicts map[verdictKey]Rejection

type verdictKey struct {
	policy  unique.Handle[string]
	subject string
}

// maxVerdicts bounds the cache: robots choose their policies, and users their tasks.
const maxVerdicts = 1 << 16

func (v verdicts) rejectSubject(p *Policy, subject string) Rejection {
	k := verdictKey{p.id, subject}
	no, known := v[k]
	if !known {
		if len(v) >= maxVerdicts {
			clear(v)
		}
		no = p.rejectSubject(subject)
		v[k] = no
	}
	return no
}

// rejectDemand returns the rejection of a demand by the policy of a robot.
func (v verdicts) rejectDemand(d *Demand, r *Robot) Rejection {
	if r.Policy == nil {
		return Rejection{}
	}
	for i := range d.Tasks {
		if no := v.rejectSubject(r.Policy, d.Tasks[i].Subject); !no.IsZero() {
			return no
		}
	}
	return Rejection{}
}

// checkFor returns rejectDemand for one demand. It looks at each of the few policies of a fleet once.
func (v verdicts) checkFor(d *Demand) Check {
	seen := map[unique.Handle[string]]Rejection{}
	var last *Policy // its result is no
	var no Rejection
	return func(r *Robot) Rejection {
		switch {
		case r.Policy == nil:
			return Rejection{}
		case last != nil && last.id == r.Policy.id:
			return no
		}
		result, known := seen[r.Policy.id]
		if !known {
			result = v.rejectDemand(d, r)
			seen[r.Policy.id] = result
		}
		last, no = r.Policy, result
		return no
	}
}

// hasPolicies reports whether one of the robots has a policy.
func hasPolicies(robots []Robot) bool {
	return slices.ContainsFunc(robots, func(r Robot) bool { return r.Policy != nil })
}
