package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"gocloud.dev/blob"
	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/internal/access"
	"k8s4r.io/k8s4r/internal/logapi"
	"k8s4r.io/k8s4r/internal/logstore"
)

// LogConfig says where the logs of tasks are kept.
type LogConfig struct {
	// Dir keeps them, or, with Bucket, those that are still written. Empty: nobody
	// keeps logs.
	Dir string
	// Bucket is the URL of a bucket that keeps them. Empty: Dir does.
	Bucket string
	Limits logstore.Limits
}

// tidyEvery is the time between two looks at what is too old or too much.
const tidyEvery = 5 * time.Minute

func openLogs(c LogConfig) (logstore.Store, error) {
	switch {
	case c.Dir == "":
		return nil, nil
	case c.Bucket == "":
		store, err := logstore.NewFiles(c.Dir, c.Limits)
		if err != nil {
			return nil, fmt.Errorf("--log-dir: %w", err)
		}
		return store, nil
	}
	bucket, err := blob.OpenBucket(context.Background(), c.Bucket)
	if err != nil {
		return nil, fmt.Errorf("--log-bucket: %w", err)
	}
	store, err := logstore.NewBucket(bucket, c.Dir, c.Limits)
	if err != nil {
		return nil, fmt.Errorf("--log-dir: %w", err)
	}
	return store, nil
}

// addLogs keeps the store tidy, and registers what serves it.
func addLogs(mgr ctrl.Manager, mux *http.ServeMux, store logstore.Store, wakes *logapi.Wakes) error {
	if store == nil {
		return nil
	}
	log := mgr.GetLogger().WithName("logs")
	h := &logapi.Handler{Gate: access.New(mgr.GetClient(), mgr.GetAPIReader()), Tasks: mgr.GetClient(), Store: store, Wakes: wakes, Log: log}
	h.Register(mux)
	return mgr.Add(&keeper{store: store, log: log})
}

// keeper removes what is too old or too much, while this server leads.
type keeper struct {
	store logstore.Store
	log   logr.Logger
}

// NeedLeaderElection tells the controller manager that a store has one owner.
func (k *keeper) NeedLeaderElection() bool { return true }

// Start works until ctx ends, and then syncs what is open.
func (k *keeper) Start(ctx context.Context) error {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		if err := k.store.Tidy(ctx); err != nil && ctx.Err() == nil {
			k.log.Error(err, "tidy the logs")
		}
		logBytes.Set(float64(k.store.Size()))
		select {
		case <-ctx.Done():
			return k.store.Close()
		case <-tick.C:
		}
	}
}
