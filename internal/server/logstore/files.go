package logstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
)

const (
	// maxOpen limits the files that are open for writing.
	maxOpen = 512
	// syncDiskFrom is the number of logs above which one sync of the whole disk is cheaper.
	syncDiskFrom = 16
	// tailSize is the number of bytes at the end of a log that are read to find its state.
	tailSize = 64 << 10
)

// Files stores logs in a directory: {namespace}/{job}/{task}/{uid}.{attempt}.{offset}.log.
type Files struct {
	root   string
	limits Limits
	now    func() time.Time
	size   atomic.Int64 // after the last PruneLogs

	mu   sync.Mutex
	open map[Key]*openLog
}

// NewFiles returns a store in root, which it creates. Only one store may use it at a time.
func NewFiles(root string, l Limits) (*Files, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	return &Files{root: root, limits: l.withDefaults(), now: time.Now, open: map[Key]*openLog{}}, nil
}

// withLog calls a function with an open log.
func (s *Files) withLog(k Key, do func(*openLog) error) error {
	for {
		l := s.findLog(k)
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			s.forgetLog(k, l)
			continue
		}
		err := s.prepareLocked(k, l)
		if err == nil {
			err = do(l)
		}
		l.mu.Unlock()
		return err
	}
}

// findLog returns a log from the list. It may not be open yet.
func (s *Files) findLog(k Key) *openLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.open[k]
	if l == nil {
		s.closeOldestLocked()
		l = &openLog{}
		s.open[k] = l
	}
	l.lastUsed = s.now()
	return l
}

func (s *Files) forgetLog(k Key, l *openLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[k] == l {
		delete(s.open, k)
	}
}

// prepareLocked opens a log that is new in the list. If that fails, the log counts as closed, and
// the next caller tries again.
func (s *Files) prepareLocked(k Key, l *openLog) error {
	if l.w != nil {
		return nil
	}
	err := l.openFiles(s.root, k, s.limits.bytesOf(k), s.now)
	l.closed = err != nil
	return err
}

// closeOldestLocked closes the least recently used logs. Appended data stays in the page cache, and
// Sync still finds it.
func (s *Files) closeOldestLocked() {
	if len(s.open) < maxOpen {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(s.open), func(a, b Key) int { return s.open[a].lastUsed.Compare(s.open[b].lastUsed) })
	for _, k := range oldest[:maxOpen/4] {
		if l := s.open[k]; l.mu.TryLock() {
			s.closeLogLocked(k, l)
			l.mu.Unlock()
		}
	}
}

// closeLogLocked closes a log and removes it from the list. The caller holds both locks.
func (s *Files) closeLogLocked(k Key, l *openLog) {
	l.closed = true
	delete(s.open, k)
	if l.w != nil {
		_ = l.w.Close() // there is no buffer to flush
	}
}

// Append implements Store.
func (s *Files) Append(_ context.Context, k Key, p Piece) (state State, err error) {
	err = s.withLog(k, func(l *openLog) error {
		err := l.appendPiece(p, s.now())
		state = l.state
		return err
	})
	return state, err
}

// AppendServerLine implements Store.
func (s *Files) AppendServerLine(_ context.Context, k Key, at time.Time, text string) error {
	return s.withLog(k, func(l *openLog) error { return l.writeLines(serverLine(at, text)) })
}

// Sync implements Store.
func (s *Files) Sync(_ context.Context, ks []Key) (map[Key]State, error) {
	states := map[Key]State{}
	var errs []error
	for _, k := range ks {
		err := s.withLog(k, func(l *openLog) error {
			states[k] = l.state
			if len(ks) < syncDiskFrom {
				return l.w.Sync()
			}
			return nil
		})
		if err != nil {
			delete(states, k)
			errs = append(errs, err)
		}
	}
	if len(ks) >= syncDiskFrom {
		if err := s.syncDisk(); err != nil {
			return nil, err
		}
	}
	return states, errors.Join(errs...)
}

func (s *Files) syncDisk() error {
	f, err := os.Open(s.root)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync the disk of logs: %w", err)
	}
	return nil
}

// Info implements Store.
func (s *Files) Info(_ context.Context, k Key) (Info, error) {
	r, err := s.newReader(k)
	if err != nil {
		return Info{}, err
	}
	begin, end, err := r.Bounds()
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, ErrNotFound
	}
	if err != nil {
		return Info{}, err
	}
	done, err := isDone(r, max(begin, end-tailSize))
	return Info{Begin: begin, End: end, Done: done}, err
}

// ReadAt implements Store.
func (s *Files) ReadAt(_ context.Context, k Key, offset int64, buf []byte) (segment.Chunk, error) {
	r, err := s.newReader(k)
	if err != nil {
		return segment.Chunk{}, err
	}
	return r.ReadAt(offset, buf)
}

func (s *Files) newReader(k Key) (segment.Reader, error) {
	dir, prefix, err := k.location()
	return segment.Reader{Dir: filepath.Join(s.root, dir), Prefix: prefix}, err
}

// Close implements Store.
func (s *Files) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for k, l := range s.open {
		l.mu.Lock()
		if l.w != nil {
			errs = append(errs, l.w.Sync())
		}
		s.closeLogLocked(k, l)
		l.mu.Unlock()
	}
	return errors.Join(errs...)
}

// storedLog is one log on the disk.
type storedLog struct {
	key     Key
	size    int64
	written time.Time
}

// PruneLogs implements Store.
func (s *Files) PruneLogs(context.Context) error {
	all, err := s.listLogs()
	errs := []error{err}
	var total int64
	for _, it := range all {
		total += it.size
	}
	for _, it := range all { // the oldest first
		if total <= s.limits.TotalBytes && s.now().Sub(it.written) <= s.limits.MaxAge {
			break
		}
		errs = append(errs, s.RemoveLog(it.key))
		total -= it.size
	}
	s.size.Store(total)
	return errors.Join(errs...)
}

// TotalSize implements Store.
func (s *Files) TotalSize() int64 { return s.size.Load() }

// RemoveLog deletes a log. If it is written again, it starts empty.
func (s *Files) RemoveLog(k Key) error {
	dir, prefix, err := k.location()
	if err != nil {
		return err
	}
	dir = filepath.Join(s.root, dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.open[k]; l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.closeLogLocked(k, l)
	}
	if err := segment.RemoveLog(dir, prefix); err != nil {
		return err
	}
	for ; dir != s.root; dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil && dirExists(dir) {
			break // not empty
		}
	}
	return nil
}

func dirExists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// listLogs returns all logs, the least recently written first.
func (s *Files) listLogs() ([]storedLog, error) {
	found := map[Key]*storedLog{}
	err := filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreNotExist(err)
		}
		k, ok := s.parsePath(path)
		info, err := d.Info()
		if !ok || err != nil {
			return ignoreNotExist(err)
		}
		it := found[k]
		if it == nil {
			it = &storedLog{key: k}
			found[k] = it
		}
		it.size += info.Size()
		if info.ModTime().After(it.written) {
			it.written = info.ModTime()
		}
		return nil
	})
	all := make([]storedLog, 0, len(found))
	for _, it := range found {
		all = append(all, *it)
	}
	slices.SortFunc(all, func(a, b storedLog) int {
		return cmp.Or(a.written.Compare(b.written), cmp.Compare(a.key.UID, b.key.UID))
	})
	return all, err
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// parsePath returns the log that a file belongs to.
func (s *Files) parsePath(path string) (Key, bool) {
	rel, err := filepath.Rel(s.root, path)
	if err != nil {
		return Key{}, false
	}
	dir, file := filepath.Split(rel)
	prefix, ok := segment.ParseFilePrefix(file)
	if !ok {
		return Key{}, false
	}
	return parseKey(filepath.ToSlash(dir), prefix)
}
