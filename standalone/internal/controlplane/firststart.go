package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// firstSegment is the name of the first file of a log.
const firstSegment = "0000000000000000-0000000000000000.wal"

// removeUnusedMember removes an etcd member that was killed during its first start. Its log exists
// but has no committed entry, so etcd would treat it as an existing member and wait for an election
// forever. The member cannot contain data yet.
func removeUnusedMember(dir string) error {
	log := filepath.Join(dir, "member", "wal")
	segments, err := filepath.Glob(filepath.Join(log, "*.wal"))
	if err != nil || len(segments) != 1 || filepath.Base(segments[0]) != firstSegment {
		return err
	}
	w, err := wal.OpenForRead(zap.NewNop(), log, walpb.Snapshot{})
	if err != nil {
		return fmt.Errorf("etcd's log: %w", err)
	}
	_, state, _, err := w.ReadAll()
	_ = w.Close() // closing a log that was opened for reading always returns an error
	if err != nil || state.Commit > 0 {
		return nil //nolint:nilerr // etcd repairs a damaged log or reports it
	}
	return os.RemoveAll(filepath.Join(dir, "member"))
}
