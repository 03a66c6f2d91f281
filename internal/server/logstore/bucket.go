package logstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
)

// The metadata of an object.
const (
	metaBegin = "begin" // offset of its first byte
	metaDone  = "done"  // the log is complete
)

const (
	// uploadInterval is the longest time that the object of an unfinished log lags behind the disk.
	uploadInterval = 5 * time.Minute
	// spoolRetention is how long a log stays on the disk after its last line.
	spoolRetention = 10 * time.Minute
	// pruneInterval is the time between two listings of the whole bucket.
	pruneInterval = time.Hour
)

// Bucket stores each log as one object in a bucket, {namespace}/{job}/{task}/{uid}.{attempt}.log. A
// log is collected on disk while it is written. The robot keeps its own copy until Sync reports the
// log as done, which is after the upload; so this disk may be lost.
type Bucket struct {
	*Files
	bucket *blob.Bucket

	mu       sync.Mutex
	changed  map[Key]time.Time // when the object became outdated
	copied   map[Key]int64     // for logs on disk: the end of what the object has
	prunedAt time.Time
}

// NewBucket returns a store that collects logs in the directory spool. Close also closes the
// bucket.
func NewBucket(bucket *blob.Bucket, spool string, l Limits) (*Bucket, error) {
	files, err := NewFiles(spool, l)
	if err != nil {
		return nil, err
	}
	b := &Bucket{Files: files, bucket: bucket, changed: map[Key]time.Time{}, copied: map[Key]int64{}}
	left, err := files.listLogs()
	for _, it := range left { // what was uploaded is unknown after a restart
		b.changed[it.key] = it.written
	}
	return b, err
}

// objectName returns the name of a log's object.
func objectName(k Key) (string, error) {
	dir, prefix, err := k.location()
	return path.Join(filepath.ToSlash(dir), prefix+"log"), err
}

// Append implements Store.
func (b *Bucket) Append(ctx context.Context, k Key, p Piece) (State, error) {
	if err := b.restoreLog(ctx, k); err != nil {
		return State{}, err
	}
	b.markChanged(k)
	return b.Files.Append(ctx, k, p)
}

// AppendServerLine implements Store.
func (b *Bucket) AppendServerLine(ctx context.Context, k Key, at time.Time, text string) error {
	if err := b.restoreLog(ctx, k); err != nil {
		return err
	}
	b.markChanged(k)
	return b.Files.AppendServerLine(ctx, k, at, text)
}

func (b *Bucket) markChanged(k Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed[k].IsZero() {
		b.changed[k] = b.now()
	}
}

// restoreLog downloads a log that is only in the bucket, so that it can be continued.
func (b *Bucket) restoreLog(ctx context.Context, k Key) error {
	if _, err := b.Files.Info(ctx, k); !errors.Is(err, ErrNotFound) {
		return err
	}
	name, err := objectName(k)
	if err != nil {
		return err
	}
	meta, err := b.readAttributes(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := b.bucket.ReadAll(ctx, name)
	if err != nil {
		return fmt.Errorf("bring back log %s: %w", name, err)
	}
	r, err := b.newReader(k)
	if err != nil {
		return err
	}
	return segment.RestoreLog(r.Dir, r.Prefix, meta.Begin, text)
}

// Sync implements Store. A log is done once it has been uploaded.
func (b *Bucket) Sync(ctx context.Context, ks []Key) (map[Key]State, error) {
	states, err := b.Files.Sync(ctx, ks)
	errs := []error{err}
	for k, s := range states {
		if !s.Done {
			continue
		}
		if err := b.uploadLog(ctx, k); err != nil {
			delete(states, k)
			errs = append(errs, err)
		}
	}
	return states, errors.Join(errs...)
}

// uploadLog uploads a log unless its object is up to date.
func (b *Bucket) uploadLog(ctx context.Context, k Key) error {
	name, err := objectName(k)
	if err != nil {
		return err
	}
	b.mu.Lock()
	delete(b.changed, k) // later changes are uploaded the next time
	copied := b.copied[k]
	b.mu.Unlock()
	info, err := b.Files.Info(ctx, k)
	if errors.Is(err, ErrNotFound) || err == nil && info.End == copied {
		return nil
	}
	if err == nil {
		err = b.writeObject(ctx, k, name, info)
	}
	if err != nil {
		b.markChanged(k)
		return fmt.Errorf("copy log %s: %w", name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.copied[k] = info.End
	return nil
}

func (b *Bucket) writeObject(ctx context.Context, k Key, name string, info Info) error {
	// If its context is canceled, a writer leaves no object behind.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.bucket.NewWriter(ctx, name, &blob.WriterOptions{
		ContentType: "text/plain; charset=utf-8",
		Metadata:    map[string]string{metaBegin: strconv.FormatInt(info.Begin, 10), metaDone: strconv.FormatBool(info.Done)},
	})
	if err != nil {
		return err
	}
	if err := b.copyLog(ctx, w, k, info); err != nil {
		cancel()
		return errors.Join(err, w.Close())
	}
	return w.Close()
}

func (b *Bucket) copyLog(ctx context.Context, w io.Writer, k Key, info Info) error {
	buf := make([]byte, 256<<10)
	for at := info.Begin; at < info.End; {
		c, err := b.Files.ReadAt(ctx, k, at, buf)
		if err != nil {
			return err
		}
		if c.Offset != at || len(c.Data) == 0 {
			return errors.New("it has changed meanwhile")
		}
		data := c.Data[:min(int64(len(c.Data)), info.End-at)]
		if _, err := w.Write(data); err != nil {
			return err
		}
		at += int64(len(data))
	}
	return nil
}

// readAttributes returns the attributes of an object.
func (b *Bucket) readAttributes(ctx context.Context, name string) (Info, error) {
	a, err := b.bucket.Attributes(ctx, name)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return Info{}, ErrNotFound
	}
	if err != nil {
		return Info{}, fmt.Errorf("log %s: %w", name, err)
	}
	begin, err := strconv.ParseInt(a.Metadata[metaBegin], 10, 64)
	if err != nil {
		return Info{}, fmt.Errorf("log %s: it does not say where it begins", name)
	}
	return Info{Begin: begin, End: begin + a.Size, Done: a.Metadata[metaDone] == "true"}, nil
}

// Info implements Store.
func (b *Bucket) Info(ctx context.Context, k Key) (Info, error) {
	if info, err := b.Files.Info(ctx, k); !errors.Is(err, ErrNotFound) {
		return info, err
	}
	name, err := objectName(k)
	if err != nil {
		return Info{}, err
	}
	return b.readAttributes(ctx, name)
}

// ReadAt implements Store.
func (b *Bucket) ReadAt(ctx context.Context, k Key, offset int64, buf []byte) (segment.Chunk, error) {
	if _, err := b.Files.Info(ctx, k); !errors.Is(err, ErrNotFound) {
		return b.Files.ReadAt(ctx, k, offset, buf)
	}
	name, err := objectName(k)
	if err != nil {
		return segment.Chunk{}, err
	}
	info, err := b.readAttributes(ctx, name)
	if errors.Is(err, ErrNotFound) || err == nil && offset >= info.End {
		return segment.Chunk{Offset: offset}, nil
	}
	if err != nil {
		return segment.Chunk{}, err
	}
	return b.readObject(ctx, name, info, max(offset, info.Begin), buf)
}

func (b *Bucket) readObject(ctx context.Context, name string, info Info, offset int64, buf []byte) (segment.Chunk, error) {
	want := min(int64(len(buf)), info.End-offset)
	r, err := b.bucket.NewRangeReader(ctx, name, offset-info.Begin, want, nil)
	if err != nil {
		return segment.Chunk{}, fmt.Errorf("read log %s: %w", name, err)
	}
	n, err := io.ReadFull(r, buf[:want])
	if err = errors.Join(err, r.Close()); err != nil {
		return segment.Chunk{}, fmt.Errorf("read log %s: %w", name, err)
	}
	if whole := bytes.LastIndexByte(buf[:n], '\n') + 1; whole > 0 {
		n = whole
	}
	return segment.Chunk{Offset: offset, Data: buf[:n], More: offset+int64(n) < info.End}, nil
}

// PruneLogs implements Store. It uploads what has changed and removes from disk what is no longer
// written.
func (b *Bucket) PruneLogs(ctx context.Context) error {
	var errs []error
	for _, k := range b.dueUploads() {
		errs = append(errs, b.uploadLog(ctx, k))
	}
	errs = append(errs, b.cleanSpool(ctx))
	b.mu.Lock()
	sweep := b.now().Sub(b.prunedAt) > pruneInterval
	b.mu.Unlock()
	if sweep {
		errs = append(errs, b.pruneObjects(ctx))
	}
	return errors.Join(errs...)
}

func (b *Bucket) dueUploads() (ks []Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, since := range b.changed {
		if b.now().Sub(since) >= uploadInterval {
			ks = append(ks, k)
		}
	}
	return ks
}

// cleanSpool removes logs from disk that have been in the bucket for some time.
func (b *Bucket) cleanSpool(ctx context.Context) error {
	all, err := b.listLogs()
	errs := []error{err}
	for _, it := range all {
		if b.now().Sub(it.written) < spoolRetention {
			break // they are sorted by time
		}
		if err := b.uploadLog(ctx, it.key); err != nil {
			errs = append(errs, err)
			continue
		}
		b.mu.Lock()
		busy := !b.changed[it.key].IsZero()
		if !busy {
			delete(b.copied, it.key)
		}
		b.mu.Unlock()
		if !busy {
			errs = append(errs, b.RemoveLog(it.key))
		}
	}
	return errors.Join(errs...)
}

// pruneObjects removes objects that are too old or exceed the total size.
func (b *Bucket) pruneObjects(ctx context.Context) error {
	all, total, err := b.listObjects(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range all {
		if total <= b.limits.TotalBytes && b.now().Sub(o.ModTime) <= b.limits.MaxAge {
			break
		}
		total -= o.Size
		if err := b.bucket.Delete(ctx, o.Key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
			errs = append(errs, fmt.Errorf("remove log %s: %w", o.Key, err))
		}
	}
	b.size.Store(total)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prunedAt = b.now()
	return errors.Join(errs...)
}

// Close implements Store. What has not been uploaded is uploaded after the next start.
func (b *Bucket) Close() error { return errors.Join(b.Files.Close(), b.bucket.Close()) }

// listObjects returns all logs in the bucket, the oldest first.
func (b *Bucket) listObjects(ctx context.Context) (all []*blob.ListObject, total int64, err error) {
	for i := b.bucket.List(nil); ; {
		o, err := i.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, fmt.Errorf("list logs: %w", err)
		}
		all, total = append(all, o), total+o.Size
	}
	slices.SortFunc(all, func(a, b *blob.ListObject) int { return a.ModTime.Compare(b.ModTime) })
	return all, total, nil
}
