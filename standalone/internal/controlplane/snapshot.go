package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// revisionBump is added to the revision of a restored database. It is more than the writes between a
// backup and its restore, so that no client, and no robot, has seen a later resourceVersion: agents
// ignore task lists that are older than what they know.
const revisionBump = 1_000_000_000

// HasObjects reports whether the data directory has an embedded etcd.
func HasObjects(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, "etcd", "member"))
	return err == nil
}

// SaveSnapshot writes the objects of the data directory, as of one revision, to a new file. If no
// process runs them, the caller holds the lock of the directory, and the database runs meanwhile.
func SaveSnapshot(ctx context.Context, dataDir, file string, isRunning bool) error {
	dir := filepath.Join(dataDir, "etcd")
	if isRunning {
		handle, err := os.Open(dir)
		if err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		return errors.Join(saveSnapshot(ctx, (&etcd{dir: handle}).clientEndpoint(), file), handle.Close())
	}
	stop, endpoint, err := RunObjects(ctx, dataDir)
	if err != nil {
		return err
	}
	return errors.Join(saveSnapshot(ctx, endpoint, file), stop())
}

// RunObjects runs the etcd of a data directory alone, until stop is called. The caller holds the lock of
// the directory.
func RunObjects(ctx context.Context, dataDir string) (stop func() error, endpoint string, err error) {
	e, err := newEtcd(filepath.Join(dataDir, "etcd"), zap.NewNop())
	if err != nil {
		return nil, "", err
	}
	if err := e.Start(ctx); err != nil {
		return nil, "", fmt.Errorf("etcd: %w", err)
	}
	return func() error { return e.Stop(context.WithoutCancel(ctx)) }, e.clientEndpoint(), nil
}

// dialTimeout limits the connection to etcd, which is on this machine.
const dialTimeout = 30 * time.Second

func saveSnapshot(ctx context.Context, endpoint, file string) error {
	cfg := clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: dialTimeout}
	if _, err := snapshot.NewV3(zap.NewNop()).Save(ctx, cfg, file); err != nil {
		return fmt.Errorf("etcd snapshot: %w", err)
	}
	return nil
}

// RestoreSnapshot makes the objects of a snapshot those of the data directory, which must have none.
func RestoreSnapshot(file, dataDir string) error {
	member := embed.NewConfig() // with the names that newEtcd uses
	var peers []string
	for _, u := range member.AdvertisePeerUrls {
		peers = append(peers, u.String())
	}
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: filepath.Join(dataDir, "etcd"),
		Name: member.Name, PeerURLs: peers, InitialCluster: member.InitialCluster, InitialClusterToken: member.InitialClusterToken,
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("restore etcd snapshot: %w", err)
	}
	return nil
}
