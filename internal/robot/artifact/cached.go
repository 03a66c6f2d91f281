package artifact

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Content identifies the content of a source by its checksum.
type Content struct {
	// Kind of the checksum, sha256 or sha512.
	Kind string
	// Sum is the checksum in lower-case hexadecimal digits.
	Sum string
}

// String returns the checksum as users write it.
func (c Content) String() string { return c.Kind + ":" + c.Sum }

// Content returns what the source contains. It returns false if a cache must not have it: without a
// checksum; for a file: address, whose rights a cache would bypass; and if the address has a user, a
// password or a query, which may be what its owner protects it with.
func (r Request) Content() (Content, bool) {
	p, err := newPlan(r)
	if err != nil || p.checksum.kind == "" || p.url.Scheme == "file" || p.url.User != nil || p.url.RawQuery != "" {
		return Content{}, false
	}
	return Content{p.checksum.kind, hex.EncodeToString(p.checksum.want)}, true
}

// Verify returns an error if the reader has other content.
func (c Content) Verify(r io.Reader) error {
	sum, err := parseChecksum(c.String())
	if err != nil {
		return err
	}
	return sum.verifyReader(r)
}

// openSource returns the complete source, in a file whose checksum has been verified, and whether that is a
// copy of the cached file.
func (f fetcher) openSource(ctx context.Context, p *plan, root *os.Root) (body *os.File, isCached bool, err error) {
	if f.cached != nil && p.checksum.kind != "" {
		body, err = f.copyCached(ctx, p, root)
		switch {
		case err == nil:
			return body, true, nil
		case ctx.Err() != nil:
			return nil, false, context.Cause(ctx)
		}
		// A damaged or unreadable file is as good as none.
	}
	body, err = f.downloadVerified(ctx, p, root)
	return body, false, err
}

// copyCached returns a copy of the cached file, in the hidden directory of the request. It replaces what an
// earlier process has downloaded.
func (f fetcher) copyCached(ctx context.Context, p *plan, root *os.Root) (*os.File, error) {
	part, err := openPartial(root, p.stage)
	if err != nil {
		return nil, err
	}
	err = part.discardContent()
	if err == nil {
		err = f.fillPart(part, reader{ctx, io.NewSectionReader(f.cached, 0, math.MaxInt64)})
	}
	if err == nil {
		err = p.checksum.verifyReader(reader{ctx, part.openWhole()})
	}
	if err != nil {
		return nil, errors.Join(err, part.discardContent(), part.Close())
	}
	return part.File, nil
}

// tidyStage removes the hidden directory, or everything in it except for what is kept.
func (p *plan) tidyStage(root *os.Root, keeps bool) {
	if !keeps {
		_ = root.RemoveAll(p.stage)
		return
	}
	for _, name := range []string{bodyFile, validatorFile, treeDir, replacedDir} {
		_ = root.RemoveAll(path.Join(p.stage, name))
	}
}

// dirFlags open a directory of a task. Whatever the task has put in its place, the open neither blocks nor
// leaves the task's directory.
const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

// TakeKept moves the source that Fetch has kept in dir, the task's directory, to the path into, which must be
// on the same mount. It returns false if there is no regular file. What it moves has not been verified: the
// task may have replaced it, after the check even by something other than a file. It takes the same time for
// anything that the task has put there: a hidden directory that is not empty remains.
func (r Request) TakeKept(dir, into string) (taken bool, err error) {
	taken, err = takeKept(dir, stageOf(r), into)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("take the source of artifacts[%d]: %w", r.Index, err)
	}
	return taken, nil
}

func takeKept(dir, stage, into string) (bool, error) {
	root, err := unix.Open(dir, dirFlags, 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(root) }()
	from, err := unix.Openat(root, stage, dirFlags, 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(from) }()
	var info unix.Stat_t
	if err := unix.Fstatat(from, keptFile, &info, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, errors.New("the task has replaced it by something that is not a regular file")
	}
	if err := unix.Renameat(from, keptFile, unix.AT_FDCWD, into); err != nil {
		return false, err
	}
	_ = unix.Unlinkat(root, stage, unix.AT_REMOVEDIR) // the task's directory is deleted with the attempt
	return true, nil
}
