package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// firstSegment is the file that a log begins with.
const firstSegment = "0000000000000000-0000000000000000.wal"

// removeUnborn removes from etcd's directory a member that was killed in the
// first moments of its life. Its log exists and does not say yet that the
// member belongs to a cluster: etcd would take it for an old one and wait for
// ever for somebody to elect it. Nothing can have been stored in it.
func removeUnborn(dir string) error {
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
	_ = w.Close() // a log that is only read has nothing to lose, and always complains
	if err != nil || state.Commit > 0 {
		return nil //nolint:nilerr // a damaged log is etcd's to mend, or to complain about
	}
	return os.RemoveAll(filepath.Join(dir, "member"))
}
