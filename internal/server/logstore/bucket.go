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

	"k8s4r.io/k8s4r/internal/seglog"
)

// The metadata of an object.
const (
	metaBegin = "begin" // offset of its first byte
	metaDone  = "done"  // the log has its last piece
)

const (
	// uploadEvery is how old the copy of a log may be that is still written.
	uploadEvery = 5 * time.Minute
	// spoolFor is how long a log stays on the disk after its last line.
	spoolFor = 10 * time.Minute
	// sweepEvery is the time between two looks at the whole bucket.
	sweepEvery = time.Hour
)

// Bucket keeps logs in a bucket, one object an attempt:
// {namespace}/{job}/{task}/{uid}.{attempt}.log. A log is gathered on the disk
// while it is written. The robot keeps its own until Sync says that it is done,
// which is when the object is there; so this disk may be lost.
type Bucket struct {
	*Files
	bucket *blob.Bucket

	mu      sync.Mutex
	changed map[Key]time.Time // since when the object is out of date
	copied  map[Key]int64     // the end of what the object has, for logs on the disk
	swept   time.Time
}

// NewBucket prepares a store that gathers logs in the directory spool. It closes
// the bucket with itself.
func NewBucket(bucket *blob.Bucket, spool string, l Limits) (*Bucket, error) {
	files, err := NewFiles(spool, l)
	if err != nil {
		return nil, err
	}
	b := &Bucket{Files: files, bucket: bucket, changed: map[Key]time.Time{}, copied: map[Key]int64{}}
	left, err := files.list()
	for _, it := range left { // nobody knows what of it has been copied
		b.changed[it.key] = it.written
	}
	return b, err
}

// object is the name of a log's object.
func object(k Key) (string, error) {
	dir, prefix, err := k.dir()
	return path.Join(filepath.ToSlash(dir), prefix+"log"), err
}

// Append implements Store.
func (b *Bucket) Append(ctx context.Context, k Key, p Piece) (State, error) {
	if err := b.restore(ctx, k); err != nil {
		return State{}, err
	}
	b.touch(k)
	return b.Files.Append(ctx, k, p)
}

// Say implements Store.
func (b *Bucket) Say(ctx context.Context, k Key, at time.Time, text string) error {
	if err := b.restore(ctx, k); err != nil {
		return err
	}
	b.touch(k)
	return b.Files.Say(ctx, k, at, text)
}

func (b *Bucket) touch(k Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed[k].IsZero() {
		b.changed[k] = b.now()
	}
}

// restore brings a log back to the disk, to go on with it, if it is in the bucket
// alone.
func (b *Bucket) restore(ctx context.Context, k Key) error {
	if _, err := b.Files.Info(ctx, k); !errors.Is(err, ErrNotFound) {
		return err
	}
	name, err := object(k)
	if err != nil {
		return err
	}
	meta, err := b.attributes(ctx, name)
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
	r, err := b.reader(k)
	if err != nil {
		return err
	}
	return seglog.Restore(r.Dir, r.Prefix, meta.Begin, text)
}

// Sync implements Store. A log that is done is there when its object is.
func (b *Bucket) Sync(ctx context.Context, ks []Key) (map[Key]State, error) {
	states, err := b.Files.Sync(ctx, ks)
	errs := []error{err}
	for k, s := range states {
		if !s.Done {
			continue
		}
		if err := b.upload(ctx, k); err != nil {
			delete(states, k)
			errs = append(errs, err)
		}
	}
	return states, errors.Join(errs...)
}

// upload copies a log to its object, unless that has it all.
func (b *Bucket) upload(ctx context.Context, k Key) error {
	name, err := object(k)
	if err != nil {
		return err
	}
	b.mu.Lock()
	delete(b.changed, k) // what changes from here on is copied another time
	copied := b.copied[k]
	b.mu.Unlock()
	info, err := b.Files.Info(ctx, k)
	if errors.Is(err, ErrNotFound) || err == nil && info.End == copied {
		return nil
	}
	if err == nil {
		err = b.write(ctx, k, name, info)
	}
	if err != nil {
		b.touch(k)
		return fmt.Errorf("copy log %s: %w", name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.copied[k] = info.End
	return nil
}

func (b *Bucket) write(ctx context.Context, k Key, name string, info Info) error {
	// A writer whose context is over leaves no object behind.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.bucket.NewWriter(ctx, name, &blob.WriterOptions{
		ContentType: "text/plain; charset=utf-8",
		Metadata:    map[string]string{metaBegin: strconv.FormatInt(info.Begin, 10), metaDone: strconv.FormatBool(info.Done)},
	})
	if err != nil {
		return err
	}
	if err := b.copyTo(ctx, w, k, info); err != nil {
		cancel()
		return errors.Join(err, w.Close())
	}
	return w.Close()
}

func (b *Bucket) copyTo(ctx context.Context, w io.Writer, k Key, info Info) error {
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

// attributes of an object.
func (b *Bucket) attributes(ctx context.Context, name string) (Info, error) {
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
	name, err := object(k)
	if err != nil {
		return Info{}, err
	}
	return b.attributes(ctx, name)
}

// ReadAt implements Store.
func (b *Bucket) ReadAt(ctx context.Context, k Key, offset int64, buf []byte) (seglog.Chunk, error) {
	if _, err := b.Files.Info(ctx, k); !errors.Is(err, ErrNotFound) {
		return b.Files.ReadAt(ctx, k, offset, buf)
	}
	name, err := object(k)
	if err != nil {
		return seglog.Chunk{}, err
	}
	info, err := b.attributes(ctx, name)
	if errors.Is(err, ErrNotFound) || err == nil && offset >= info.End {
		return seglog.Chunk{Offset: offset}, nil
	}
	if err != nil {
		return seglog.Chunk{}, err
	}
	return b.readObject(ctx, name, info, max(offset, info.Begin), buf)
}

func (b *Bucket) readObject(ctx context.Context, name string, info Info, offset int64, buf []byte) (seglog.Chunk, error) {
	want := min(int64(len(buf)), info.End-offset)
	r, err := b.bucket.NewRangeReader(ctx, name, offset-info.Begin, want, nil)
	if err != nil {
		return seglog.Chunk{}, fmt.Errorf("read log %s: %w", name, err)
	}
	n, err := io.ReadFull(r, buf[:want])
	if err = errors.Join(err, r.Close()); err != nil {
		return seglog.Chunk{}, fmt.Errorf("read log %s: %w", name, err)
	}
	if whole := bytes.LastIndexByte(buf[:n], '\n') + 1; whole > 0 {
		n = whole
	}
	return seglog.Chunk{Offset: offset, Data: buf[:n], More: offset+int64(n) < info.End}, nil
}

// Tidy implements Store. It copies what has changed, and takes off the disk what
// nobody writes to any more.
func (b *Bucket) Tidy(ctx context.Context) error {
	var errs []error
	for _, k := range b.due() {
		errs = append(errs, b.upload(ctx, k))
	}
	errs = append(errs, b.unspool(ctx))
	b.mu.Lock()
	sweep := b.now().Sub(b.swept) > sweepEvery
	b.mu.Unlock()
	if sweep {
		errs = append(errs, b.sweep(ctx))
	}
	return errors.Join(errs...)
}

func (b *Bucket) due() (ks []Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, since := range b.changed {
		if b.now().Sub(since) >= uploadEvery {
			ks = append(ks, k)
		}
	}
	return ks
}

// unspool removes from the disk what the bucket has, after some time.
func (b *Bucket) unspool(ctx context.Context) error {
	all, err := b.list()
	errs := []error{err}
	for _, it := range all {
		if b.now().Sub(it.written) < spoolFor {
			break // they are in order
		}
		if err := b.upload(ctx, it.key); err != nil {
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
			errs = append(errs, b.Remove(it.key))
		}
	}
	return errors.Join(errs...)
}

// sweep removes objects that are too old, or too much.
func (b *Bucket) sweep(ctx context.Context) error {
	all, total, err := b.objects(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range all {
		if total <= b.limits.Total && b.now().Sub(o.ModTime) <= b.limits.Age {
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
	b.swept = b.now()
	return errors.Join(errs...)
}

// Close implements Store. What has not been copied is after the next start.
func (b *Bucket) Close() error { return errors.Join(b.Files.Close(), b.bucket.Close()) }

// objects are all logs in the bucket, the oldest first.
func (b *Bucket) objects(ctx context.Context) (all []*blob.ListObject, total int64, err error) {
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
