// Package logclient sends requests to the APIs of k8s4r-server and k8s4r-manager, such as for logs of tasks, with
// the credentials for the API server. It is apart from serveraddr because the server publishes its address and must not link
// a client of itself.
package logclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
)

// UnreachableError means that the server did not answer.
type UnreachableError struct{ Err error }

// Error implements error.
func (e *UnreachableError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the network.
func (e *UnreachableError) Unwrap() error { return e.Err }

// OpenLog starts reading the log of a task; the caller closes it. It fails with an
// UnreachableError, or with the StatusError that the server returned.
func OpenLog(ctx context.Context, config *rest.Config, at serveraddr.Address, namespace, task string, q query.Query) (io.ReadCloser, error) {
	c, err := newClient(config, at)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL+query.Path(namespace, task)+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.Do(request)
	if err != nil {
		return nil, &UnreachableError{err}
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer func() { _ = answer.Body.Close() }()
	return nil, readError(answer, at.URL)
}

// newClient returns a client that acts as the config's user and trusts the certificates that the
// server has published, not those of the API server.
func newClient(config *rest.Config, at serveraddr.Address) (*http.Client, error) {
	own := rest.CopyConfig(config)
	own.Host, own.Timeout = at.URL, 0
	own.Insecure, own.CAFile, own.CAData, own.ServerName = false, "", at.CA, at.ServerName
	c, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return c, nil
}

// readError returns the server's answer as an error.
func readError(answer *http.Response, server string) error {
	var status metav1.Status
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil || json.Unmarshal(text, &status) != nil || status.Code == 0 {
		return fmt.Errorf("the server at %s answered %s", server, answer.Status)
	}
	return &apierrors.StatusError{ErrStatus: status}
}
