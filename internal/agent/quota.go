package agent

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

// quotas look at what replicas have on the disk: the file systems of robots as a rule
// have no quotas for directories. It is found a while after it was written.
type quotas struct {
	// every is the least pause between two looks.
	every time.Duration

	first chan struct{} // readable when there may be something to look at
	mu    sync.Mutex
	runs  map[attemptKey]quota
}

// quota is what an attempt's replica may have in these directories.
type quota struct {
	replica string
	bytes   int64
	dirs    []string
}

// excess tells the runner that a replica has more on the disk than it may.
type excess struct {
	replica     string
	bytes, used int64
}

const (
	quotaEvery = 10 * time.Second
	// quotaShare is the pause after a look, in times of what that took: who has a
	// million files does not keep the robot busy with counting them.
	quotaShare = 20
)

func newQuotas() *quotas {
	return &quotas{every: quotaEvery, first: make(chan struct{}, 1), runs: map[attemptKey]quota{}}
}

// watch begins to look at an attempt, if its replica has a quota.
func (q *quotas) watch(run *run, p places) {
	d := run.task.Spec.EphemeralDisk
	if d == nil || d.SizeMB <= 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	uid := run.task.Metadata.UID
	q.runs[attemptKey{uid, run.attempt}] = quota{
		replica: replica(run.task), bytes: d.SizeMB * 1_000_000,
		dirs: append(p.shared(run.task), p.work(uid, run.attempt)),
	}
	select {
	case q.first <- struct{}{}:
	default:
	}
}

// forget looks at an attempt no more.
func (q *quotas) forget(run *run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.runs, attemptKey{run.task.Metadata.UID, run.attempt})
}

// run looks until ctx ends. While there is no quota it sleeps.
func (q *quotas) run(ctx context.Context, tell func(excess)) {
	pause := q.every
	for q.awake(ctx, pause) {
		began := time.Now()
		for name, limit := range q.replicas() {
			if used := usedIn(ctx, limit.dirs); used > limit.bytes {
				tell(excess{name, limit.bytes, used})
			}
		}
		pause = max(q.every, quotaShare*time.Since(began))
	}
}

// awake waits until it is time to look. False: ctx has ended.
func (q *quotas) awake(ctx context.Context, pause time.Duration) bool {
	for len(q.replicas()) == 0 {
		select {
		case <-ctx.Done():
			return false
		case <-q.first:
		}
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// replicas are what there is to look at. Of tasks that differ the largest quota
// counts: that is what was set aside for them.
func (q *quotas) replicas() map[string]quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[string]quota, len(q.runs))
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

// inode is a file, whatever its names.
type inode struct{ dev, ino uint64 }

// usedIn is what directories take on the disk, in bytes: a file with holes takes less
// than its length, and one with several names takes it once. What vanishes or cannot
// be read meanwhile is left out.
func usedIn(ctx context.Context, dirs []string) (bytes int64) {
	seen := map[inode]bool{}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil {
				bytes += usedBy(d, seen)
			}
			return ctx.Err()
		})
	}
	return bytes
}

// usedBy is what one entry takes that was not seen before by another name.
func usedBy(d fs.DirEntry, seen map[inode]bool) int64 {
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

// exceeded stops the tasks of a replica that has more on the disk than it may.
func (r *runner) exceeded(e excess) {
	for uid, run := range r.live {
		if replica(run.task) != e.replica {
			continue
		}
		r.log.Warn("a task's replica has more on the disk than it may", "uid", uid, "attempt", run.attempt, "bytes", e.used, "quota", e.bytes)
		r.stop(run, wire.ReasonDiskQuotaExceeded, killTimeout(run.task.Spec))
	}
}
