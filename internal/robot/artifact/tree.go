package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// What is deeper or longer was made to harm: its path is longer than most
// programs can open, so it could not even be removed by hand.
const (
	maxDepth = 64   // directories above an entry
	maxPath  = 1024 // bytes of an entry's path
	maxName  = 255  // bytes of an element of it, as Linux has it
)

// tree is the directory that an archive is unpacked into, with what the
// archive may still use up.
//
// Symbolic links are made last, when everything else is in place. So nothing
// is ever written through one, and an entry that would be finds a directory
// of that name instead, with which the link then collides.
type tree struct {
	ctx    context.Context
	root   *os.Root
	limits Limits
	bytes  int64
	files  int
	// last directory that is known to be there.
	last  string
	links []link
}

// link is a symbolic link that is still to be made.
type link struct{ name, target string }

func (f fetcher) unpack(ctx context.Context, p *plan, root *os.Root, body *os.File) error {
	dir := path.Join(p.stage, treeDir)
	// What a process left that was killed while it unpacked.
	if err := root.RemoveAll(dir); err != nil {
		return err
	}
	if err := root.Mkdir(dir, 0o755); err != nil {
		return err
	}
	sub, err := root.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer sub.Close()
	t := &tree{ctx: ctx, root: sub, limits: f.limits, last: "."}
	read := t.readTar
	if p.format == "zip" {
		read = t.readZip
	}
	if err := read(p.format, body); err != nil {
		return err
	}
	return t.makeLinks()
}

// entryName is the path that an entry of an archive gets. It must say plainly
// what it is: a .. is refused also where it would lead nowhere bad.
func entryName(name string) (string, error) {
	switch {
	case strings.HasPrefix(name, "/"):
		return "", fmt.Errorf("entry %.100q has an absolute path", name)
	case strings.ContainsRune(name, 0):
		return "", fmt.Errorf("entry %.100q has a NUL byte in its name", name)
	case strings.Contains("/"+name+"/", "/../"):
		return "", fmt.Errorf("entry %.100q leads out of the archive", name)
	}
	clean := path.Clean(name)
	if strings.Count(clean, "/") > maxDepth {
		return "", fmt.Errorf("entry %.100q is more than %d directories deep", name, maxDepth)
	}
	if len(clean) > maxPath || slices.ContainsFunc(strings.Split(clean, "/"), tooLong) {
		return "", fmt.Errorf("entry %.100q… has a name that is too long", name)
	}
	return clean, nil
}

func tooLong(element string) bool { return len(element) > maxName }

// charge counts one more file or directory.
func (t *tree) charge() error {
	if t.files++; t.files > t.limits.MaxFiles {
		return errTooManyFiles(t.limits)
	}
	return nil
}

func errTooManyFiles(l Limits) error {
	return fmt.Errorf("it holds more than %d files", l.MaxFiles)
}

func errTooLarge(l Limits) error {
	return fmt.Errorf("it unpacks to more than %d bytes", l.MaxUnpacked)
}

func errTwice(name string) error {
	return fmt.Errorf("entry %.100q is in the archive twice, or is both a directory and something else", name)
}

// enter counts a new entry and makes the directory that it goes into.
func (t *tree) enter(name string) error {
	if err := t.charge(); err != nil {
		return err
	}
	if _, err := t.root.Lstat(name); err == nil {
		return errTwice(name)
	}
	return t.mkdir(path.Dir(name))
}

// mkdir makes a directory and those above it, where they are missing.
func (t *tree) mkdir(name string) error {
	if name == "." || name == t.last {
		return nil
	}
	if info, err := t.root.Lstat(name); err == nil {
		if !info.IsDir() {
			return errTwice(name)
		}
		t.last = name
		return nil
	}
	if err := t.mkdir(path.Dir(name)); err != nil {
		return err
	}
	if err := t.charge(); err != nil {
		return err
	}
	t.last = name
	return t.root.Mkdir(name, 0o755)
}

// dir makes a directory that the archive names. Its owner can always write
// there, else what comes next could be neither unpacked nor removed.
func (t *tree) dir(name string, mode fs.FileMode) error {
	if err := t.mkdir(name); err != nil || name == "." {
		return err
	}
	return t.root.Chmod(name, mode.Perm()&^0o022|0o700)
}

// file writes one file. Bits such as setuid are not taken over.
func (t *tree) file(name string, mode fs.FileMode, r io.Reader) error {
	if err := t.enter(name); err != nil {
		return err
	}
	f, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm())
	if err != nil {
		return err
	}
	defer f.Close()
	left := t.limits.MaxUnpacked - t.bytes
	n, err := io.Copy(f, io.LimitReader(reader{t.ctx, r}, left+1))
	if err != nil {
		return err
	}
	if t.bytes += n; n > left {
		return errTooLarge(t.limits)
	}
	return f.Close() // some file systems say only now that the disk is full
}

// hardLink links to a file that is in the archive before it.
func (t *tree) hardLink(name, target string) error {
	target, err := entryName(target)
	if err != nil {
		return fmt.Errorf("hard link %.100q: %w", name, err)
	}
	if err := t.enter(name); err != nil {
		return err
	}
	if info, err := t.root.Lstat(target); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("hard link %.100q leads to %.100q, which is no file that is in the archive before it", name, target)
	}
	return t.root.Link(target, name)
}

// symlink remembers a symbolic link.
func (t *tree) symlink(name, target string) error {
	if err := t.charge(); err != nil {
		return err
	}
	if !staysInside(path.Dir(name), target) {
		return fmt.Errorf("symbolic link %.100q leads to %.100q, which is not plainly in the archive", name, target)
	}
	t.links = append(t.links, link{name, target})
	return nil
}

// staysInside tells of the target of a symbolic link in a directory of the
// archive whether it leads to somewhere in the archive. A .. is allowed only in
// front, where it leaves a directory that is none but the link's own: behind
// the name of another link it would lead to wherever that link does.
func staysInside(dir, target string) bool {
	if target == "" || len(target) > maxPath || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return false
	}
	above, front := 0, true
	if dir != "." {
		above = 1 + strings.Count(dir, "/")
	}
	for element := range strings.SplitSeq(target, "/") {
		switch element {
		case "", ".":
		case "..":
			if above--; above < 0 || !front {
				return false
			}
		default:
			front = false
		}
	}
	return true
}

func (t *tree) makeLinks() error {
	for _, l := range t.links {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		if err := t.mkdir(path.Dir(l.name)); err != nil {
			return err
		}
		err := t.root.Symlink(l.target, l.name)
		if errors.Is(err, fs.ErrExist) {
			return errTwice(l.name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
