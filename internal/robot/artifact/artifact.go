// Package artifact fetches the files that a task needs into its directory: over http or https, or
// from the robot itself.
//
// The package drops no privileges. The caller must run it as the task's user: that is the only
// thing that keeps a job from reading the robot's files with a file: address.
//
// A fetch is atomic. The source stays in a hidden directory until it is complete, has the right
// checksum and is unpacked. Only then it is moved to its destination. After an error the task's
// directory is unchanged.
package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"
)

// Mode is what to do with a source.
type Mode string

// The modes of a Request.
const (
	// ModeAny unpacks sources whose name is that of an archive, and stores all others. The
	// destination is a directory in both cases. The empty mode means ModeAny.
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
	// Dest is a path below the task's directory. If empty, it is that directory.
	Dest string
	// Mode is what to do with the source. If empty, it is ModeAny.
	Mode Mode
	// Keep leaves a source that was transferred in the hidden directory, for TakeKept.
	Keep bool
}

// Limits bound the cost of one artifact. A zero field means its default.
type Limits struct {
	// MaxBytes is the size limit of the transferred source. Default 4 GiB.
	MaxBytes int64
	// MaxUnpacked is the size limit of all files of an archive together, in bytes. Default 8 GiB.
	MaxUnpacked int64
	// MaxFiles is the limit of files and directories of an archive. Default 65,536.
	MaxFiles int
	// Timeout is the limit for transfer, retries and unpacking together. Default 30 min.
	Timeout time.Duration
	// IdleTimeout ends a try that has not received anything for this long. Default 30 s.
	IdleTimeout time.Duration
	// Tries is the limit of consecutive tries that receive nothing new. Default 5.
	Tries int
	// Backoff is the delay before the second try. It doubles with each further one. Default 500
	// ms.
	Backoff time.Duration
	// MaxWait is the longest delay between two tries. If the Retry-After of a server is longer,
	// there is no further try. Default 1 min.
	MaxWait time.Duration
	// Admit is called before received bytes are written, with their number and the size that the source
	// then has. It blocks as long as the transfer must wait; an error ends it. If nil, nothing is limited.
	Admit func(ctx context.Context, bytes int, size int64) error
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
		Admit:       l.Admit,
	}
}

// Check returns the error that Fetch would return for a request that can never succeed. It needs
// neither the network nor a directory.
func (r Request) Check() error {
	if _, err := newPlan(r); err != nil {
		return r.wrapError(err)
	}
	return nil
}

// Fetch fetches an artifact into dir, the task's directory, which must exist. The error is one
// sentence for the user that names the artifact, without the parts of its address that may be
// secret. After an error the directory is unchanged.
//
// A process that is killed during Fetch leaves a partial download in a hidden directory. The next
// call for the same request resumes it.
func Fetch(ctx context.Context, r Request, l Limits, dir string) error {
	return FetchCached(ctx, r, nil, l, dir)
}

// FetchCached is Fetch that copies the source from a file, and transfers it only if the file does not have
// its checksum. If the file is nil, or the artifact has no checksum, the source is transferred.
func FetchCached(ctx context.Context, r Request, cached *os.File, l Limits, dir string) error {
	return fetcher{limits: l.withDefaults(), sleep: sleepContext, cached: cached}.fetchArtifact(ctx, r, dir)
}

// wrapError adds the name of the artifact to an error.
func (r Request) wrapError(err error) error {
	if where := redactSource(r.Source); where != "" {
		return fmt.Errorf("artifacts[%d] %s: %w", r.Index, where, err)
	}
	return fmt.Errorf("artifacts[%d]: %w", r.Index, err)
}

// fetcher holds the settings of one Fetch.
type fetcher struct {
	limits Limits
	// sleep waits between tries. Tests replace it.
	sleep func(context.Context, time.Duration)
	// cached may have the content of the source. If nil, there is no such file.
	cached *os.File
}

func sleepContext(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (f fetcher) fetchArtifact(ctx context.Context, r Request, dir string) error {
	p, err := newPlan(r)
	if err != nil {
		return r.wrapError(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return r.wrapError(fmt.Errorf("open the task's directory: %w", err))
	}
	defer root.Close()
	late := fmt.Errorf("took longer than %v", f.limits.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, f.limits.Timeout, late)
	defer cancel()
	if err := f.runPlan(ctx, p, root); err != nil {
		return r.wrapError(err)
	}
	return nil
}

// runPlan works in the hidden directory of the request, and moves the result to its destination as
// the last step.
func (f fetcher) runPlan(ctx context.Context, p *plan, root *os.Root) error {
	if err := root.MkdirAll(p.stage, 0o700); err != nil {
		return fmt.Errorf("create a directory for the download: %w", err)
	}
	keeps := false
	defer func() { p.tidyStage(root, keeps) }()
	body, isCached, err := f.openSource(ctx, p, root)
	if err != nil {
		return err
	}
	defer body.Close()
	if p.keep && !isCached {
		_ = root.RemoveAll(path.Join(p.stage, keptFile)) // of an earlier process
		// Without a link, for which some file systems have no support, only the cache lacks the source.
		keeps = root.Link(path.Join(p.stage, bodyFile), path.Join(p.stage, keptFile)) == nil
	}
	if err := f.placeSource(ctx, p, root, body); err != nil {
		keeps = false
		return err
	}
	return nil
}

// placeSource moves the source to its destination, or what it unpacks to.
func (f fetcher) placeSource(ctx context.Context, p *plan, root *os.Root, body *os.File) error {
	if p.format == "" {
		return p.storeFile(root, body)
	}
	if err := f.unpackArchive(ctx, p, root, body); err != nil {
		return fmt.Errorf("cannot be unpacked as %s: %w", p.format, err)
	}
	return moveToDestination(root, p.stage, treeDir, p.dest)
}

// downloadVerified returns the complete source, in a file whose checksum has been verified.
func (f fetcher) downloadVerified(ctx context.Context, p *plan, root *os.Root) (*os.File, error) {
	part, err := openPartial(root, p.stage)
	if err != nil {
		return nil, fmt.Errorf("create a file for the download: %w", err)
	}
	inherited := part.size > 0
	err = f.completePart(ctx, p, part)
	// A part that an earlier process left may be damaged, for example by a full disk. In that case
	// the source itself may be right, so it is fetched again.
	if inherited && errors.As(err, new(*mismatchError)) {
		if err = part.discardContent(); err == nil {
			err = f.completePart(ctx, p, part)
		}
	}
	if err != nil {
		part.Close()
		return nil, err
	}
	return part.File, nil
}

// completePart completes the partial file and verifies its checksum.
func (f fetcher) completePart(ctx context.Context, p *plan, part *partial) error {
	get := f.downloadSource
	if p.url.Scheme == "file" {
		get = f.copyLocal
	}
	if err := get(ctx, p, part); err != nil {
		return err
	}
	return p.checksum.verifyReader(reader{ctx, part.openWhole()})
}

// storeFile moves the source to its destination as one file.
func (p *plan) storeFile(root *os.Root, body *os.File) error {
	if err := body.Chmod(p.perms); err != nil {
		return err
	}
	return moveToDestination(root, p.stage, bodyFile, p.dest)
}

// reader ends when its context is done, so that no copy runs past its deadline.
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
