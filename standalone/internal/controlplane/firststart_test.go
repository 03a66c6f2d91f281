package controlplane

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

func TestEtcd_StartsAfterKillDuringFirstStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	// This is all that etcd had written when it was killed.
	w, err := wal.Create(zap.NewNop(), filepath.Join(dir, "member", "wal"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	runEtcd(t, dir)
	born, err := os.Stat(filepath.Join(dir, "member", "wal"))
	if err != nil {
		t.Fatal(err)
	}
	runEtcd(t, dir)
	if again, err := os.Stat(filepath.Join(dir, "member", "wal")); err != nil || !os.SameFile(born, again) {
		t.Errorf("a log that was in use is gone: %v", err)
	}
}

// runEtcd starts etcd, waits until it is ready and stops it.
func runEtcd(t *testing.T, dir string) {
	t.Helper()
	e, err := newEtcd(dir, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	deadline := time.After(30 * time.Second)
	for err := e.Ready(t.Context()); err != nil; err = e.Ready(t.Context()) {
		select {
		case <-deadline:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
