package logclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/protocol/actionlog"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/protocol/plan"
)

// maxPageBytes bounds the answer with a page of actions or runs.
const maxPageBytes = 64 << 20

// ListActions reads a page of what users did. It fails as OpenLog does.
func ListActions(ctx context.Context, config *rest.Config, at serveraddr.Address, q actionlog.Query) (p actionlog.Page, err error) {
	err = requestJSON(ctx, config, at, http.MethodGet, actionlog.Path+"?"+q.Encode(), nil, &p)
	return p, err
}

// ListRuns reads a page of the runs of an attempt. It fails as OpenLog does.
func ListRuns(ctx context.Context, config *rest.Config, at serveraddr.Address, namespace, task string, q runlog.Query) (p runlog.Page, err error) {
	err = requestJSON(ctx, config, at, http.MethodGet, runlog.Path(namespace, task)+"?"+q.Encode(), nil, &p)
	return p, err
}

// ComputePlan asks the manager what would follow if an object, as JSON, was applied. It fails as OpenLog does.
func ComputePlan(ctx context.Context, config *rest.Config, at serveraddr.Address, object []byte) (p plan.Plan, err error) {
	err = requestJSON(ctx, config, at, http.MethodPost, plan.Path, object, &p)
	return p, err
}

const (
	// maxTries bounds the requests for one page. Clients of the API server try as often.
	maxTries = 10
	// maxRetryAfter bounds the time between two of them that the server may ask for.
	maxRetryAfter = 10 * time.Second
)

// requestJSON decodes the answer of the server to a request, whose body may be nil. It repeats a request that
// the server has refused for now.
func requestJSON(ctx context.Context, config *rest.Config, at serveraddr.Address, method, address string, body []byte, into any) error {
	c, err := newClient(config, at)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := requestJSONOnce(ctx, c, at, method, address, body, into)
		after, ok := apierrors.SuggestsClientDelay(err)
		if !ok || try == maxTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(min(time.Duration(after)*time.Second, maxRetryAfter)):
		}
	}
}

// requestJSONOnce is requestJSON without repetition.
func requestJSONOnce(ctx context.Context, c *http.Client, at serveraddr.Address, method, address string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, at.URL+address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := c.Do(request)
	if err != nil {
		return &UnreachableError{err}
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return readError(answer, at.URL)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxPageBytes)).Decode(into); err != nil {
		return fmt.Errorf("read the answer of the server at %s: %w", at.URL, err)
	}
	return nil
}
