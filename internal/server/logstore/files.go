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

	"k8s4r.io/k8s4r/internal/seglog"
)

const (
	// maxOpen bounds the files that are open for writing.
	maxOpen = 512
	// syncAll is the number of logs from which on it is cheaper to sync the whole
	// disk once.
	syncAll = 16
	// tailSize is how much of a log's end is looked at for its state.
	tailSize = 64 << 10
)

// Files keeps logs in a directory:
// {namespace}/{job}/{task}/{uid}.{attempt}.{offset}.log.
type Files struct {
	root   string
	limits Limits
	now    func() time.Time
	size   atomic.Int64 // after the last Tidy

	mu   sync.Mutex
	open map[Key]*log
}

// NewFiles prepares a store in root, which it makes. Only one may be there at a
// time.
func NewFiles(root string, l Limits) (*Files, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	return &Files{root: root, limits: l.withDefaults(), now: time.Now, open: map[Key]*log{}}, nil
}

// with does something with a log that is open.
func (s *Files) with(k Key, do func(*log) error) error {
	for {
		l := s.find(k)
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			s.forget(k, l)
			continue
		}
		err := s.prepare(k, l)
		if err == nil {
			err = do(l)
		}
		l.mu.Unlock()
		return err
	}
}

// find is a log in the list, which may still have to be opened.
func (s *Files) find(k Key) *log {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.open[k]
	if l == nil {
		s.closeSome()
		l = &log{}
		s.open[k] = l
	}
	l.used = s.now()
	return l
}

func (s *Files) forget(k Key, l *log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[k] == l {
		delete(s.open, k)
	}
}

// prepare opens a log that is new in the list. One that cannot be opened is as
// good as closed: the next one who wants it tries again.
func (s *Files) prepare(k Key, l *log) error {
	if l.w != nil {
		return nil
	}
	err := l.open(s.root, k, s.limits.Attempt, s.now)
	l.closed = err != nil
	return err
}

// closeSome makes room in the list: the logs that were not used for the longest
// time go. What was appended stays in the system's hands, and Sync finds it there.
func (s *Files) closeSome() {
	if len(s.open) < maxOpen {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(s.open), func(a, b Key) int { return s.open[a].used.Compare(s.open[b].used) })
	for _, k := range oldest[:maxOpen/4] {
		if l := s.open[k]; l.mu.TryLock() {
			s.shut(k, l)
			l.mu.Unlock()
		}
	}
}

// shut closes a log and takes it out of the list. Its caller holds both locks.
func (s *Files) shut(k Key, l *log) {
	l.closed = true
	delete(s.open, k)
	if l.w != nil {
		_ = l.w.Close() // nothing is buffered here
	}
}

// Append implements Store.
func (s *Files) Append(_ context.Context, k Key, p Piece) (state State, err error) {
	err = s.with(k, func(l *log) error {
		err := l.append(p, s.now())
		state = l.state
		return err
	})
	return state, err
}

// Say implements Store.
func (s *Files) Say(_ context.Context, k Key, at time.Time, text string) error {
	return s.with(k, func(l *log) error { return l.write(serverLine(at, text)) })
}

// Sync implements Store.
func (s *Files) Sync(_ context.Context, ks []Key) (map[Key]State, error) {
	states := map[Key]State{}
	var errs []error
	for _, k := range ks {
		err := s.with(k, func(l *log) error {
			states[k] = l.state
			if len(ks) < syncAll {
				return l.w.Sync()
			}
			return nil
		})
		if err != nil {
			delete(states, k)
			errs = append(errs, err)
		}
	}
	if len(ks) >= syncAll {
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
	r, err := s.reader(k)
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
func (s *Files) ReadAt(_ context.Context, k Key, offset int64, buf []byte) (seglog.Chunk, error) {
	r, err := s.reader(k)
	if err != nil {
		return seglog.Chunk{}, err
	}
	return r.ReadAt(offset, buf)
}

func (s *Files) reader(k Key) (seglog.Reader, error) {
	dir, prefix, err := k.dir()
	return seglog.Reader{Dir: filepath.Join(s.root, dir), Prefix: prefix}, err
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
		s.shut(k, l)
		l.mu.Unlock()
	}
	return errors.Join(errs...)
}

// kept is one log on the disk.
type kept struct {
	key     Key
	size    int64
	written time.Time
}

// Tidy implements Store.
func (s *Files) Tidy(context.Context) error {
	all, err := s.list()
	errs := []error{err}
	var total int64
	for _, it := range all {
		total += it.size
	}
	for _, it := range all { // the oldest first
		if total <= s.limits.Total && s.now().Sub(it.written) <= s.limits.Age {
			break
		}
		errs = append(errs, s.Remove(it.key))
		total -= it.size
	}
	s.size.Store(total)
	return errors.Join(errs...)
}

// Size implements Store.
func (s *Files) Size() int64 { return s.size.Load() }

// Remove deletes a log. One that is written to begins anew.
func (s *Files) Remove(k Key) error {
	dir, prefix, err := k.dir()
	if err != nil {
		return err
	}
	dir = filepath.Join(s.root, dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.open[k]; l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.shut(k, l)
	}
	if err := seglog.Remove(dir, prefix); err != nil {
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

// list finds all logs, those that were written to longest ago first.
func (s *Files) list() ([]kept, error) {
	found := map[Key]*kept{}
	err := filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		k, ok := s.keyOf(path)
		info, err := d.Info()
		if !ok || err != nil {
			return ignoreGone(err)
		}
		it := found[k]
		if it == nil {
			it = &kept{key: k}
			found[k] = it
		}
		it.size += info.Size()
		if info.ModTime().After(it.written) {
			it.written = info.ModTime()
		}
		return nil
	})
	all := make([]kept, 0, len(found))
	for _, it := range found {
		all = append(all, *it)
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(a.written.Compare(b.written), cmp.Compare(a.key.UID, b.key.UID)) })
	return all, err
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// keyOf is the log that a file belongs to.
func (s *Files) keyOf(path string) (Key, bool) {
	rel, err := filepath.Rel(s.root, path)
	if err != nil {
		return Key{}, false
	}
	dir, file := filepath.Split(rel)
	prefix, ok := seglog.Prefix(file)
	if !ok {
		return Key{}, false
	}
	return parseKey(filepath.ToSlash(dir), prefix)
}
