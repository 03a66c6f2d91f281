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

// Exit statuses of the command line.
const (
	// ExitOK means success; a Job that the command waited for has completed.
	ExitOK = 0
	// ExitFailed means that the command failed, or that the Job failed or was canceled.
	ExitFailed = 1
	// ExitUsage means that the command line is wrong, or that the API server rejected the object
	// that it describes.
	ExitUsage = 2
	// ExitTimeout means that --wait-timeout passed before the Job ended.
	ExitTimeout = 124
	// ExitInterrupted means that the user pressed Ctrl-C before the Job ended.
	ExitInterrupted = 130
)

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, a ...any) error { return &usageError{err: fmt.Errorf(format, a...)} }

// outcomeError carries an exit status for an error that is already printed.
type outcomeError struct{ status int }

func (e *outcomeError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// statusError carries the exit status of an error that is not printed yet.
type statusError struct {
	err    error
	status int
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// withStatus sets the exit status of an error. It returns nil if err is nil, and leaves the status of an
// outcome alone.
func withStatus(status int, err error) error {
	if _, isOutcome := errors.AsType[*outcomeError](err); err == nil || isOutcome {
		return err
	}
	return &statusError{err, status}
}

// unreachableError means that no cluster can be reached.
type unreachableError struct {
	server string // if empty, no kubeconfig names a server
	err    error
}

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

func exitStatus(err error) int {
	outcome, isOutcome := errors.AsType[*outcomeError](err)
	own, hasStatus := errors.AsType[*statusError](err)
	_, isUsage := errors.AsType[*usageError](err)
	switch {
	case err == nil:
		return ExitOK
	case isOutcome:
		return outcome.status
	case hasStatus:
		return own.status
	case isUsage || isRefused(err):
		return ExitUsage
	case errors.Is(err, errInterrupted):
		return ExitInterrupted
	}
	return ExitFailed
}

// isRefused reports whether the API server rejected the object itself, as opposed to a failed
// request.
func isRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || isDeniedByPolicy(err)
}

// isDeniedByPolicy reports whether an admission policy or webhook denied the request. The API
// server reports this and a missing permission as Forbidden.
func isDeniedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "denied request") || strings.Contains(err.Error(), "denied the request"))
}

// explainError returns the text that is printed for an error. It is empty if everything is
// already printed.
func explainError(err error) string {
	if err == nil {
		return ""
	}
	// Only the outermost list of errors is split; a list that is wrapped further down is part of
	// a sentence.
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return explainEach(several.Unwrap())
	}
	if _, printed := errors.AsType[*outcomeError](err); printed {
		return ""
	}
	if gone, ok := errors.AsType[*unreachableError](err); ok {
		return gone.explainUnreachable()
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && isRefused(err) {
		return explainRefusal(status.ErrStatus)
	}
	if meta.IsNoMatchError(err) || isMissingKind(err) {
		return fmt.Sprintf("the kinds of K8s4r are not installed in this cluster: run `k8s4r doctor` to see how to install them, or start a cluster that has them with %s",
			quoteArg("k8s4r up"))
	}
	return err.Error()
}

// explainEach explains each error. An error that is already printed does not hide the others.
func explainEach(errs []error) string {
	var lines []string
	for _, err := range errs {
		if text := explainError(err); text != "" && !slices.Contains(lines, text) {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

// isMissingKind reports whether the API server does not know the whole resource, as opposed to
// one object: its answer then contains no name.
func isMissingKind(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && (status.ErrStatus.Details == nil || status.ErrStatus.Details.Name == "")
}

func (e *unreachableError) explainUnreachable() string {
	const remedy = "start a cluster with `k8s4r up`, or set KUBECONFIG to the kubeconfig of another one"
	if e.server == "" {
		return "no kubeconfig contains a cluster: " + remedy
	}
	return fmt.Sprintf("cannot reach the API server at %s (%s): %s", e.server, networkCause(e.err), remedy)
}

// networkCause returns the innermost error, such as "connection refused". The errors around it
// repeat the address.
func networkCause(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// wrapUnreachable wraps errors that mean that no API server answered. It does not wrap an error
// twice.
func wrapUnreachable(server string, err error) error {
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

// explainRefusal returns one line per cause: the field and what is wrong with it.
func explainRefusal(s metav1.Status) string {
	if s.Reason == metav1.StatusReasonAlreadyExists && s.Details != nil {
		return fmt.Sprintf("%s already exists: choose another name, or delete the existing object", quoteArg(s.Details.Name))
	}
	lines := []string{"rejected by the API server"}
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

// unchecked is part of a cause that the API server adds when it stops at the first mistakes. That
// cause names no mistake of its own.
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

// policyMessage returns an admission policy's own message from the API server's answer. For an
// expression that could not be evaluated, these are its comment and the cause.
func policyMessage(text string) string {
	if _, own, found := strings.Cut(text, "denied the request: "); found {
		return own // from a webhook
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

func quoteArg(s string) string { return "`" + s + "`" }
