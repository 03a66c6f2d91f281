package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The exit statuses of the command line.
const (
	// ExitOK: done; a Job that was waited for completed.
	ExitOK = 0
	// ExitFailed: it could not be done, or the Job failed or was canceled.
	ExitFailed = 1
	// ExitUsage: the command line is wrong, or the API server refused the
	// object that it describes.
	ExitUsage = 2
	// ExitTimeout: --wait-timeout passed; the Job's outcome is open.
	ExitTimeout = 124
	// ExitInterrupted: Ctrl-C while waiting; the Job's outcome is open.
	ExitInterrupted = 130
)

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, a ...any) error { return &usageError{err: fmt.Errorf(format, a...)} }

// outcomeError carries an exit status for what has already been said.
type outcomeError struct{ status int }

func (e *outcomeError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// unreachableError means that there is no cluster to talk to.
type unreachableError struct {
	server string // empty: no kubeconfig names one
	err    error
}

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

func exitStatus(err error) int {
	outcome, isOutcome := errors.AsType[*outcomeError](err)
	_, isUsage := errors.AsType[*usageError](err)
	switch {
	case err == nil:
		return ExitOK
	case isOutcome:
		return outcome.status
	case isUsage || refused(err):
		return ExitUsage
	case errors.Is(err, errInterrupted):
		return ExitInterrupted
	}
	return ExitFailed
}

// refused tells whether the API server has judged the object and said no.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || deniedByPolicy(err)
}

// deniedByPolicy tells an admission policy's or webhook's no from a missing right: both
// come as Forbidden.
func deniedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "denied request") || strings.Contains(err.Error(), "denied the request"))
}

// explain is what the user reads about an error. It is empty when everything
// has been said.
func explain(err error) string {
	if err == nil {
		return ""
	}
	// Only the outermost: several errors further down are part of a sentence.
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return explainEach(several.Unwrap())
	}
	if _, said := errors.AsType[*outcomeError](err); said {
		return ""
	}
	if gone, ok := errors.AsType[*unreachableError](err); ok {
		return gone.explain()
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && refused(err) {
		return explainRefusal(status.ErrStatus)
	}
	if meta.IsNoMatchError(err) || isMissingKind(err) {
		return fmt.Sprintf("this cluster does not know K8s4r's kinds: `k8s4r doctor` says how they come there; or start a cluster that has them with %s",
			quote("k8s4r up"))
	}
	return err.Error()
}

// explainEach keeps what has already been said about one object from hiding what
// is wrong with the others.
func explainEach(errs []error) string {
	var lines []string
	for _, err := range errs {
		if text := explain(err); text != "" && !slices.Contains(lines, text) {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

// isMissingKind tells whether the whole resource is unknown, not one object:
// the API server then knows no name to put into the answer.
func isMissingKind(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && (status.ErrStatus.Details == nil || status.ErrStatus.Details.Name == "")
}

func (e *unreachableError) explain() string {
	const way = "start one with `k8s4r up`, or set KUBECONFIG to the kubeconfig of another"
	if e.server == "" {
		return "no cluster to talk to, because no kubeconfig names one: " + way
	}
	return fmt.Sprintf("cannot reach the API server at %s (%s): %s", e.server, networkCause(e.err), way)
}

// networkCause is the last link of the chain, such as "connection refused":
// the ones before it repeat the address.
func networkCause(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// asUnreachable marks the errors that mean that no API server answered, once.
func asUnreachable(server string, err error) error {
	if _, marked := errors.AsType[*unreachableError](err); marked {
		return err
	}
	_, isNet := errors.AsType[*net.OpError](err)
	_, isURL := errors.AsType[*url.Error](err)
	if (isNet || isURL) && !errors.Is(err, context.Canceled) {
		return &unreachableError{server: server, err: err}
	}
	return err
}

// explainRefusal writes one line a cause: the field and what is wrong with it.
func explainRefusal(s metav1.Status) string {
	if s.Reason == metav1.StatusReasonAlreadyExists && s.Details != nil {
		return fmt.Sprintf("%s is taken: choose another name, or delete the one that has it", quote(s.Details.Name))
	}
	lines := []string{"the API server refuses this"}
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if !strings.Contains(cause.Message, unchecked) {
				lines = append(lines, explainCause(cause))
			}
		}
	}
	if len(lines) == 1 {
		lines = append(lines, policyMessage(s.Message))
	}
	return strings.Join(lines, "\n  ")
}

// unchecked is in what the API server adds when it has stopped at the first
// mistakes. It names no mistake itself.
const unchecked = "some validation rules were not checked"

func explainCause(c metav1.StatusCause) string {
	text := c.Message
	for _, kind := range []string{"object", "array", "string", "integer", "map"} {
		text = strings.TrimPrefix(text, fmt.Sprintf("Invalid value: %q: ", kind))
	}
	text = strings.ReplaceAll(text, c.Field+" in body ", "")
	if c.Field == "" || c.Field == "<nil>" {
		return policyMessage(text)
	}
	return c.Field + ": " + text
}

// policyMessage leaves of an admission policy's answer the policy's own words. Of
// an expression that could not be evaluated those are its comment and the cause.
func policyMessage(text string) string {
	if _, own, found := strings.Cut(text, "denied the request: "); found {
		return own // a webhook's
	}
	_, own, found := strings.Cut(text, "denied request: ")
	if !found {
		return text
	}
	if comment, isExpression := strings.CutPrefix(own, "expression '// "); isExpression {
		sentence, rest, _ := strings.Cut(comment, "\n")
		if _, cause, failed := strings.Cut(rest, "fails to evaluate: "); failed {
			return sentence + ": " + cause
		}
	}
	return own
}

func quote(s string) string { return "`" + s + "`" }
