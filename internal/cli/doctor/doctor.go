// Package doctor tells what a cluster lacks to run K8s4r well, and how to get it. It
// changes nothing. There is one file a concern; a new one adds its Check to checks.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Level says how bad a finding is.
type Level string

// The levels, from good to bad.
const (
	OK   Level = "OK"
	Warn Level = "WARN" // K8s4r works, and something of it does not
	Fail Level = "FAIL" // K8s4r does not work
)

var levels = []Level{OK, Warn, Fail}

// Finding is one thing that was looked at.
type Finding struct {
	Level Level `json:"level"`
	// Check is what was looked at, in a word or two.
	Check string `json:"check"`
	// Says is what was found.
	Says string `json:"says"`
	// Remedy is what to do about it. Empty: nothing needs to be done.
	Remedy string `json:"remedy,omitempty"`
}

// Cluster is what is looked at.
type Cluster struct {
	// Client knows the kinds of AddToScheme and those of K8s4r.
	client.Client
	// Server is the URL of the API server, for people.
	Server string
	// Version asks the API server for its version.
	Version func(context.Context) (string, error)
	// Namespace is where objects are tried, none of which is kept.
	Namespace string
	Now       func() time.Time
}

// check looks at one concern.
type check func(context.Context, Cluster) []Finding

// checks are all of them, in the order of their findings.
var checks = []check{definitions, policies, programs, identities, volcano, kubeRay, webhook}

// Examine looks at everything. It stops when the API server does not answer.
func Examine(ctx context.Context, c Cluster) []Finding {
	found, answers := apiServer(ctx, c)
	if !answers {
		return found
	}
	for _, look := range checks {
		found = append(found, look(ctx, c)...)
	}
	return found
}

// Worst is the worst level among the findings.
func Worst(all []Finding) Level {
	worst := 0
	for _, f := range all {
		worst = max(worst, slices.Index(levels, f.Level))
	}
	return levels[worst]
}

func good(check, format string, a ...any) []Finding {
	return []Finding{{Level: OK, Check: check, Says: fmt.Sprintf(format, a...)}}
}

func bad(l Level, check, says, remedy string) []Finding {
	return []Finding{{l, check, says, remedy}}
}

// unknown is the finding of a check that could not look. It says nothing about
// K8s4r itself.
func unknown(check string, err error) []Finding {
	remedy := "try again when the API server answers"
	if apierrors.IsForbidden(err) {
		remedy = "ask as somebody who may: --as, --context"
	}
	return bad(Warn, check, fmt.Sprintf("cannot be looked at: %v", err), remedy)
}
