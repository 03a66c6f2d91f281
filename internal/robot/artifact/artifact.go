// Package artifact brings the files that a task needs into its directory: by
// http, https, or from the robot itself.
//
// It has no rights of its own. Whoever calls it does so as the task's user,
// because that, and nothing in here, keeps a job from reading the robot's
// files with a file: address.
//
// All or nothing: what is fetched is kept in a hidden directory until it is
// whole, has the checksum that was asked for and is unpacked. Only then it is
// moved to where it belongs. After an error the task's directory is as it was.
package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Mode says what is made of a source.
type Mode string

// The modes of a Request.
const (
	// ModeAny unpacks what has the name of an archive, and stores all else.
	// The destination is a directory in both cases. It is the zero value's
	// meaning as well.
	ModeAny Mode = "any"
	// ModeFile stores the source as it is. The destination is the file.
	ModeFile Mode = "file"
	// ModeDir unpacks the source, which must be an archive.
	ModeDir Mode = "dir"
)

// Request is one artifact of a task.
type Request struct {
	// Index of the artifact in the task's list, for errors.
	Index int
	// Source is an http, https or file address.
	Source string
	// Options are getterOptions: checksum, archive and perms.
	Options map[string]string
	// Dest is a path below the task's directory. Empty: that directory.
	Dest string
	// Mode is ModeAny when it is empty.
	Mode Mode
}

// Limits bound what one artifact may cost. A zero field stands for its
// default.
type Limits struct {
	// MaxBytes of the source as it is transferred. Default 4 GiB.
	MaxBytes int64
	// MaxUnpacked bytes of all files of an archive together. Default 8 GiB.
	MaxUnpacked int64
	// MaxFiles and directories of an archive. Default 65,536.
	MaxFiles int
	// Timeout of the whole: transfer, retries and unpacking. Default 30 min.
	Timeout time.Duration
	// IdleTimeout ends a try in which nothing has come for so long.
	// Default 30 s.
	IdleTimeout time.Duration
	// Tries in a row that bring nothing new before it is given up. Default 5.
	Tries int
	// Backoff before the second try; it doubles with each further one.
	// Default 500 ms.
	Backoff time.Duration
	// MaxWait is the longest time between two tries. A server whose
	// Retry-After asks for more is not tried again. Default 1 min.
	MaxWait time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxBytes:    cmp.Or(l.MaxBytes, 4<<30),
		MaxUnpacked: cmp.Or(l.MaxUnpacked, 8<<30),
		MaxFiles:    cmp.Or(l.MaxFiles, 1<<16),
		Timeout:     cmp.Or(l.Timeout, 30*time.Minute),
		IdleTimeout: cmp.Or(l.IdleTimeout, 30*time.Second),
		Tries:       cmp.Or(l.Tries, 5),
		Backoff:     cmp.Or(l.Backoff, 500*time.Millisecond),
		MaxWait:     cmp.Or(l.MaxWait, time.Minute),
	}
}

// Check refuses a request that could never be fetched. Its error is the one
// that Fetch would return, and needs neither network nor directory.
func (r Request) Check() error {
	if _, err := newPlan(r); err != nil {
		return r.explain(err)
	}
	return nil
}

// Fetch brings an artifact into dir, the task's directory, which exists. Its
// error is one sentence for the owner of the job that names the artifact,
// without what may be secret in its address; the directory is then as it was.
//
// A process that is killed in Fetch leaves its part of the download, in a
// hidden directory, and the next call for the same request continues it.
func Fetch(ctx context.Context, r Request, l Limits, dir string) error {
	return fetcher{limits: l.withDefaults(), sleep: sleep}.fetch(ctx, r, dir)
}

// explain names the artifact that an error is about.
func (r Request) explain(err error) error {
	if where := redact(r.Source); where != "" {
		return fmt.Errorf("artifacts[%d] %s: %w", r.Index, where, err)
	}
	return fmt.Errorf("artifacts[%d]: %w", r.Index, err)
}

// fetcher is what a Fetch has at hand.
type fetcher struct {
	limits Limits
	// sleep waits between tries. Tests do not.
	sleep func(context.Context, time.Duration)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (f fetcher) fetch(ctx context.Context, r Request, dir string) error {
	p, err := newPlan(r)
	if err != nil {
		return r.explain(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return r.explain(fmt.Errorf("open the task's directory: %w", err))
	}
	defer root.Close()
	late := fmt.Errorf("took longer than %v", f.limits.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, f.limits.Timeout, late)
	defer cancel()
	if err := f.run(ctx, p, root); err != nil {
		return r.explain(err)
	}
	return nil
}

// run does everything in the hidden directory of the request, and moves what
// comes of it to its place as the last step.
func (f fetcher) run(ctx context.Context, p *plan, root *os.Root) error {
	if err := root.MkdirAll(p.stage, 0o700); err != nil {
		return fmt.Errorf("create a directory for the download: %w", err)
	}
	defer func() { _ = root.RemoveAll(p.stage) }()
	body, err := f.verified(ctx, p, root)
	if err != nil {
		return err
	}
	defer body.Close()
	if p.format == "" {
		return p.store(root, body)
	}
	if err := f.unpack(ctx, p, root, body); err != nil {
		return fmt.Errorf("cannot be unpacked as %s: %w", p.format, err)
	}
	return place(root, p.stage, treeDir, p.dest)
}

// verified returns the whole body, in a file whose checksum is right.
func (f fetcher) verified(ctx context.Context, p *plan, root *os.Root) (*os.File, error) {
	part, err := openPartial(root, p.stage)
	if err != nil {
		return nil, fmt.Errorf("create a file for the download: %w", err)
	}
	inherited := part.size > 0
	err = f.transfer(ctx, p, part)
	// A part that an earlier process left may be damaged, for example by a
	// full disk. That is no reason to call the source wrong.
	if inherited && errors.As(err, new(*mismatchError)) {
		if err = part.discard(); err == nil {
			err = f.transfer(ctx, p, part)
		}
	}
	if err != nil {
		part.Close()
		return nil, err
	}
	return part.File, nil
}

// transfer completes the partial file and looks at its checksum.
func (f fetcher) transfer(ctx context.Context, p *plan, part *partial) error {
	get := f.download
	if p.url.Scheme == "file" {
		get = f.copyLocal
	}
	if err := get(ctx, p, part); err != nil {
		return err
	}
	return p.checksum.verify(reader{ctx, part.whole()})
}

// store puts the body to its place as one file.
func (p *plan) store(root *os.Root, body *os.File) error {
	if err := body.Chmod(p.perms); err != nil {
		return err
	}
	return place(root, p.stage, bodyFile, p.dest)
}

// reader ends when its context does, so that no copy outlives its deadline.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}
