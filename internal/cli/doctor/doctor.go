// Package doctor checks what a cluster lacks to run K8s4r, and suggests what to do about it. It
// changes nothing. Each concern has its own file; a new one adds its function to checks.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Level is the severity of a finding.
type Level string

// Levels, from good to bad.
const (
	OK   Level = "OK"
	Warn Level = "WARN" // K8s4r works, but a part of it does not
	Fail Level = "FAIL" // K8s4r does not work
)

var levels = []Level{OK, Warn, Fail}

// Finding is the result of one check.
type Finding struct {
	Level Level `json:"level"`
	// Check names what was checked, in one or two words.
	Check string `json:"check"`
	// Message describes what was found.
	Message string `json:"message"`
	// Remedy is what to do. If empty, nothing needs to be done.
	Remedy string `json:"remedy,omitempty"`
}

// Cluster is the cluster to check.
type Cluster struct {
	// Client reads the kinds of AddToScheme and those of K8s4r.
	client.Client
	// Server is the URL of the API server, for messages.
	Server string
	// Version returns the version of the API server.
	Version func(context.Context) (string, error)
	// Namespace is where objects are created with dry run.
	Namespace string
	Now       func() time.Time
}

// check examines one concern.
type check func(context.Context, Cluster) []Finding

// checks are all checks, in the order of their findings.
var checks = []check{checkDefinitions, checkPolicies, checkPrograms, checkRestore, checkIdentities, checkCertificates, checkVolcano, checkKubeRay, checkWebhook}

// ExamineCluster runs all checks. It stops if the API server does not answer.
func ExamineCluster(ctx context.Context, c Cluster) []Finding {
	found, answers := checkAPIServer(ctx, c)
	if !answers {
		return found
	}
	for _, look := range checks {
		found = append(found, look(ctx, c)...)
	}
	return found
}

// WorstLevel returns the worst level of the findings, or OK if there are none.
func WorstLevel(all []Finding) Level {
	worst := 0
	for _, f := range all {
		worst = max(worst, slices.Index(levels, f.Level))
	}
	return levels[worst]
}

func newOK(check, format string, a ...any) []Finding {
	return []Finding{{Level: OK, Check: check, Message: fmt.Sprintf(format, a...)}}
}

func newProblem(l Level, check, message, remedy string) []Finding {
	return []Finding{{l, check, message, remedy}}
}

// newUnknown returns the finding of a check that could not run. It does not mean that K8s4r has a
// problem.
func newUnknown(check string, err error) []Finding {
	remedy := "try again when the API server answers"
	if apierrors.IsForbidden(err) {
		remedy = "run doctor as a user with this permission: --as, --context"
	}
	return newProblem(Warn, check, fmt.Sprintf("cannot be checked: %v", err), remedy)
}
