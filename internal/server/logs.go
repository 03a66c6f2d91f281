package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"gocloud.dev/blob"
	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/server/logapi"
	"k8s4r.io/k8s4r/internal/server/logstore"
)

// LogConfig configures the storage of task logs.
type LogConfig struct {
	// Dir has the logs, or with Bucket only those that are still written. If empty, logs
	// are not stored.
	Dir string
	// Bucket is the URL of a bucket with the logs. If empty, they are in Dir.
	Bucket string
	Limits logstore.Limits
}

// pruneInterval is the time between two prunings of the logs.
const pruneInterval = 5 * time.Minute

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

// addLogs prunes the store, and registers the log API.
func addLogs(mgr ctrl.Manager, mux *http.ServeMux, store logstore.Store, notifier *logapi.Notifier) error {
	if store == nil {
		return nil
	}
	log := mgr.GetLogger().WithName("logs")
	h := &logapi.Handler{Gate: access.New(mgr.GetClient(), mgr.GetAPIReader()), Tasks: mgr.GetClient(), Store: store, Notifier: notifier, Log: log}
	h.Register(mux)
	return mgr.Add(&logPruner{store: store, log: log})
}

// logPruner prunes the logs while this server is the leader.
type logPruner struct {
	store logstore.Store
	log   logr.Logger
}

// NeedLeaderElection reports that a store has one owner.
func (p *logPruner) NeedLeaderElection() bool { return true }

// Start prunes until ctx ends, and then closes the store.
func (p *logPruner) Start(ctx context.Context) error {
	tick := time.NewTicker(pruneInterval)
	defer tick.Stop()
	for {
		if err := p.store.PruneLogs(ctx); err != nil && ctx.Err() == nil {
			p.log.Error(err, "prune the logs")
		}
		logBytes.Set(float64(p.store.TotalSize()))
		select {
		case <-ctx.Done():
			return p.store.Close()
		case <-tick.C:
		}
	}
}
