package runner

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// quotaWatcher measures what replicas have on the disk, because the file systems of most
// robots have no quotas for directories. It finds an excess some time after the write.
type quotaWatcher struct {
	// interval is the shortest pause between two scans.
	interval time.Duration
	// measure is diskUsage. Tests replace it.
	measure func(ctx context.Context, dirs []string) (bytes int64)

	wake chan struct{} // readable when a run was added
	mu   sync.Mutex
	runs map[attemptKey]diskQuota
}

// diskQuota is the most that an attempt's replica may have in these directories.
type diskQuota struct {
	replica string
	bytes   int64
	dirs    []string
}

// diskExcess notifies the runner that a replica exceeds its quota.
type diskExcess struct {
	replica     string
	bytes, used int64
}

const (
	defaultQuotaInterval = 10 * time.Second
	// quotaPauseFactor is the pause after a scan as a multiple of its duration, so that a
	// million files do not keep the robot busy.
	quotaPauseFactor = 20
)

func newQuotaWatcher(interval time.Duration) *quotaWatcher {
	return &quotaWatcher{interval: interval, measure: diskUsage, wake: make(chan struct{}, 1), runs: map[attemptKey]diskQuota{}}
}

// addRun starts to watch the replica of a run, if it has a quota.
func (q *quotaWatcher) addRun(attempt *attempt, p StateDir) {
	d := attempt.task.Spec.EphemeralDisk
	if d == nil || d.SizeMB <= 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	uid := attempt.task.Metadata.UID
	q.runs[attemptKey{uid, attempt.number}] = diskQuota{
		replica: replicaKey(attempt.task), bytes: d.SizeMB * 1_000_000,
		dirs: append(p.sharedDirs(attempt.task), p.WorkDir(uid, attempt.number)),
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *quotaWatcher) removeRun(attempt *attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.runs, attemptKey{attempt.task.Metadata.UID, attempt.number})
}

// watchDisks calls report for each replica that exceeds its quota, until ctx ends. It sleeps
// while there are no quotas.
func (q *quotaWatcher) watchDisks(ctx context.Context, report func(diskExcess)) {
	pause := q.interval
	for q.waitForNextScan(ctx, pause) {
		began := time.Now()
		for name, limit := range q.quotasByReplica() {
			if used := q.measure(ctx, limit.dirs); used > limit.bytes {
				report(diskExcess{name, limit.bytes, used})
			}
		}
		pause = max(q.interval, quotaPauseFactor*time.Since(began))
	}
}

// waitForNextScan blocks until the next scan is due. It returns false if ctx has ended.
func (q *quotaWatcher) waitForNextScan(ctx context.Context, pause time.Duration) bool {
	for len(q.quotasByReplica()) == 0 {
		select {
		case <-ctx.Done():
			return false
		case <-q.wake:
		}
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// quotasByReplica returns the quota of each replica: the largest of its tasks, which is what
// the scheduler reserved.
func (q *quotaWatcher) quotasByReplica() map[string]diskQuota {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[string]diskQuota, len(q.runs))
	for _, one := range q.runs {
		sum := all[one.replica]
		sum.bytes = max(sum.bytes, one.bytes)
		for _, dir := range one.dirs {
			if !slices.Contains(sum.dirs, dir) {
				sum.dirs = append(sum.dirs, dir)
			}
		}
		all[one.replica] = sum
	}
	return all
}

// inode identifies a file, which may have several names.
type inode struct{ dev, ino uint64 }

// diskUsage returns the bytes that directories occupy on the disk. Holes of files do not
// count, and a file with several names counts once. Files that vanish are left out.
func diskUsage(ctx context.Context, dirs []string) (bytes int64) {
	seen := map[inode]bool{}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil {
				bytes += entrySize(d, seen)
			}
			return ctx.Err()
		})
	}
	return bytes
}

// entrySize returns the bytes of one entry, and zero if its file was seen by another name.
func entrySize(d fs.DirEntry, seen map[inode]bool) int64 {
	info, err := d.Info()
	if err != nil {
		return 0
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	if !d.IsDir() && s.Nlink > 1 {
		file := inode{s.Dev, s.Ino}
		if seen[file] {
			return 0
		}
		seen[file] = true
	}
	return s.Blocks * 512
}

// stopReplica stops the tasks of a replica that exceeds its quota.
func (r *Runner) stopReplica(e diskExcess) {
	for uid, attempt := range r.live {
		if replicaKey(attempt.task) != e.replica || attempt.shim == nil { // without a process it writes nothing
			continue
		}
		r.log.Warn("stopping a task because its replica exceeds its disk quota", "uid", uid, "attempt", attempt.number, "bytes", e.used, "quota", e.bytes)
		r.stopShim(attempt, wire.ReasonDiskQuotaExceeded, killTimeout(attempt.task.Spec))
	}
}
