package logclient

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
)

// listFrom lists runs of a server that refuses as many requests with err, and returns how many there were.
func listFrom(ctx context.Context, t *testing.T, refuse int32, err apierrors.APIStatus, onRequest func()) (page runlog.Page, requests int32, _ error) {
	t.Helper()
	var count atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		onRequest()
		if count.Add(1) <= refuse {
			access.WriteStatus(w, err)
			return
		}
		_ = json.NewEncoder(w).Encode(runlog.Page{RunCount: 7})
	}))
	defer s.Close()
	page, listErr := ListRuns(ctx, &rest.Config{}, serveraddr.Address{URL: s.URL}, "n", "t", runlog.Query{})
	return page, count.Load(), listErr
}

func TestListRuns_TriesAgainWhenTheServerAsksFor(t *testing.T) {
	page, requests, err := listFrom(t.Context(), t, 1, apierrors.NewTooManyRequests("busy", 1), func() {})
	if err != nil || page.RunCount != 7 || requests != 2 {
		t.Errorf("after %d requests: %+v, %v", requests, page, err)
	}
	timeout := apierrors.NewServerTimeout(schema.GroupResource{}, "list", 0)
	if _, requests, err := listFrom(t.Context(), t, 1000, timeout, func() {}); !apierrors.IsServerTimeout(err) || requests != maxTries {
		t.Errorf("a server that refuses all: %d requests, %v", requests, err)
	}
	if _, requests, err := listFrom(t.Context(), t, 1000, apierrors.NewBadRequest("no"), func() {}); !apierrors.IsBadRequest(err) || requests != 1 {
		t.Errorf("an error for good: %d requests, %v", requests, err)
	}
}

func TestListRuns_WaitsNoLongerThanItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, requests, err := listFrom(ctx, t, 1000, apierrors.NewTooManyRequests("busy", 3600), cancel)
	if err == nil || requests != 1 {
		t.Errorf("%d requests, %v", requests, err)
	}
}
