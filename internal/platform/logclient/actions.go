package logclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/protocol/actionlog"
)

// maxPageBytes bounds the answer with a page of actions.
const maxPageBytes = 64 << 20

// ListActions reads a page of what users did. It fails as OpenLog does.
func ListActions(ctx context.Context, config *rest.Config, at serveraddr.Address, q actionlog.Query) (actionlog.Page, error) {
	c, err := newClient(config, at)
	if err != nil {
		return actionlog.Page{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL+actionlog.Path+"?"+q.Encode(), nil)
	if err != nil {
		return actionlog.Page{}, err
	}
	answer, err := c.Do(request)
	if err != nil {
		return actionlog.Page{}, &UnreachableError{err}
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return actionlog.Page{}, readError(answer, at.URL)
	}
	var p actionlog.Page
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxPageBytes)).Decode(&p); err != nil {
		return actionlog.Page{}, fmt.Errorf("read the answer of the server at %s: %w", at.URL, err)
	}
	return p, nil
}
