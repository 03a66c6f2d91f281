package access

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/platform/connlimit"
)

// retryAfterSeconds is when a user with too many connections may try again.
const retryAfterSeconds = 1

// Authenticator returns the user that sent a request. A Gate is one.
type Authenticator interface {
	Authenticate(r *http.Request) (*User, error)
}

// AuthenticateConnection returns the user that sent a request, for whom its connection counts from
// now on. Its errors are API errors.
func AuthenticateConnection(a Authenticator, r *http.Request) (*User, error) {
	u, err := a.Authenticate(r)
	if err != nil {
		return nil, StatusError(err)
	}
	if err := connlimit.Authenticate(r.Context(), "user "+u.Name); err != nil {
		return nil, apierrors.NewTooManyRequests(err.Error(), retryAfterSeconds)
	}
	return u, nil
}

// WriteError responds with the Status of an error. An error without one is logged with what was being done, and the
// client gets another text.
func WriteError(w http.ResponseWriter, log logr.Logger, err error, doing, text string) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		log.Error(err, doing)
		known = apierrors.NewInternalError(errors.New(text))
	}
	WriteStatus(w, known)
}

// WriteStatus responds with the Status of an error, as the API server does.
func WriteStatus(w http.ResponseWriter, err apierrors.APIStatus) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	if after, ok := apierrors.SuggestsClientDelay(&apierrors.StatusError{ErrStatus: status}); ok {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // the client may be gone
}
