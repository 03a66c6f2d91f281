package artifactcache

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/artifact"
)

// queueSize bounds the sources that wait to be added. Further ones are deleted.
const queueSize = 256

// kept is a source that a task has fetched, and that nothing else needs.
type kept struct {
	content artifact.Content
	path    string
}

// keptPrefix begins the names of sources that tasks have fetched, so that a restarted agent finds them.
const keptPrefix = "fetched-"

// KeptName returns the name of the file, in a directory that only the agent's user can write to, in which a
// source waits for Collect.
func KeptName(c artifact.Content) string { return keptPrefix + c.Kind + "-" + c.Sum }

// parseKeptName returns the content of a file with such a name.
func parseKeptName(name string) (artifact.Content, bool) {
	kind, sum, ok := strings.Cut(strings.TrimPrefix(name, keptPrefix), "-")
	return artifact.Content{Kind: kind, Sum: sum}, ok && strings.HasPrefix(name, keptPrefix)
}

// errNotRegular refuses a source that a task has replaced.
var errNotRegular = errors.New("it is not a regular file")

// Collect adds a source to the cache, and deletes its file, later: Run does it. It does not block.
func (c *Cache) Collect(content artifact.Content, path string) {
	select {
	case c.queue <- kept{content, path}:
	default:
		_ = os.Remove(path) // a directory, which may be large, is deleted with the attempt
	}
}

// Run adds the sources of Collect until ctx ends, and before those what a killed agent has left in the
// directories that match leftovers.
func (c *Cache) Run(ctx context.Context, leftovers string) {
	paths, _ := filepath.Glob(filepath.Join(leftovers, keptPrefix+"*")) // the only error is a bad pattern
	for _, path := range paths {
		if content, ok := parseKeptName(filepath.Base(path)); ok && ctx.Err() == nil {
			c.addKept(ctx, kept{content, path})
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case k := <-c.queue:
			c.addKept(ctx, k)
		}
	}
}

// addKept adds a source and deletes its file. The task may have replaced the file by anything.
func (c *Cache) addKept(ctx context.Context, k kept) {
	source, err := openRegular(k.path)
	if err == nil {
		err = errors.Join(c.Add(ctx, k.content, source), source.Close())
	}
	if ctx.Err() != nil {
		return // the next agent adds it
	}
	if removed := os.RemoveAll(k.path); err != nil || removed != nil {
		c.config.Log.Info("an artifact was not added to the cache", "checksum", k.content.String(), "reason", errors.Join(err, removed))
	}
}

// openRegular opens a file, and nothing whose opening blocks or has effects. It looks at the file again
// once that is open: the path may have been replaced meanwhile.
func openRegular(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Add copies a source into the cache, if it has the content. It replaces a file that the cache has, which
// may be damaged. After a crash at any moment the cache has the complete file, or none. No other file makes
// room for a source that does not have the content, so no task can empty the cache.
func (c *Cache) Add(ctx context.Context, content artifact.Content, source *os.File) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if info.Size() > c.config.Quota {
		return ErrTooLarge
	}
	// The copy is verified too: the task may change the source at any time.
	if err := content.Verify(contextReader{ctx, io.NewSectionReader(source, 0, info.Size())}); err != nil {
		return err
	}
	if err := c.reserve(0, info.Size()); err != nil {
		return err
	}
	defer c.release(info.Size())
	f, err := os.CreateTemp(filepath.Join(c.config.Dir, incomingDir), "add-")
	if err != nil {
		return err
	}
	err = copyVerified(ctx, f, source, content, info.Size())
	if err == nil {
		err = c.install(f.Name(), content, info.Size())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// copyVerified copies a source of that size and writes it to the disk.
func copyVerified(ctx context.Context, f, source *os.File, content artifact.Content, size int64) error {
	whole := io.NewSectionReader(source, 0, size)
	if _, err := io.Copy(f, contextReader{ctx, whole}); err != nil {
		return err
	}
	if err := content.Verify(contextReader{ctx, io.NewSectionReader(f, 0, size)}); err != nil {
		return err
	}
	return f.Sync()
}

// install moves a complete file, which is on the disk, to its place.
func (c *Cache) install(from string, content artifact.Content, bytes int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	to, now := c.path(content), c.config.Now()
	if err := errors.Join(os.Chtimes(from, now, now), os.Rename(from, to)); err != nil {
		return err
	}
	c.dropLocked(content)
	c.entries[content] = entry{bytes, now}
	c.bytes += bytes
	return syncDir(filepath.Dir(to))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// contextReader ends when its context is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}
