// Package logclient reads logs of tasks at k8s4r-server, with the credentials that somebody has
// for the API server, which says whose they are.
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

	"k8s4r.io/k8s4r/internal/beacon"
	"k8s4r.io/k8s4r/internal/logquery"
)

// UnreachableError is what Open fails with where nobody answers.
type UnreachableError struct{ Err error }

// Error is the network's.
func (e *UnreachableError) Error() string { return e.Err.Error() }

// Unwrap is the network's error.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Open begins to read the log of a task, for the caller to close. It fails with an
// UnreachableError, or as the server says, with a StatusError.
func Open(ctx context.Context, config *rest.Config, at beacon.Address, namespace, task string, q logquery.Query) (io.ReadCloser, error) {
	c, err := client(config, at)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL+logquery.Path(namespace, task)+"?"+q.Encode(), nil)
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
	return nil, refusal(answer, at.URL)
}

// client speaks to the server as the config's user. The server is proven by what it has
// published, not by what proves the API server.
func client(config *rest.Config, at beacon.Address) (*http.Client, error) {
	own := rest.CopyConfig(config)
	own.Host, own.Timeout = at.URL, 0
	own.Insecure, own.CAFile, own.CAData, own.ServerName = false, "", at.CA, at.ServerName
	c, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// refusal is the server's error, as it said it.
func refusal(answer *http.Response, server string) error {
	var status metav1.Status
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil || json.Unmarshal(text, &status) != nil || status.Code == 0 {
		return fmt.Errorf("the server at %s answered %s", server, answer.Status)
	}
	return &apierrors.StatusError{ErrStatus: status}
}
