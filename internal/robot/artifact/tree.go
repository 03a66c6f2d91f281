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

// Entries that are deeper or longer are malicious: most programs could not open their paths, so
// they could not even be removed by hand.
const (
	maxDepth = 64   // directories above an entry
	maxPath  = 1024 // bytes of an entry's path
	maxName  = 255  // bytes of one element of the path, the limit of Linux
)

// tree is the directory that an archive is unpacked into, with the remaining limits of the
// archive.
//
// Symbolic links are created last, so that nothing is ever written through one. An entry below a
// link creates a directory of that name instead, and creating the link then fails.
type tree struct {
	ctx    context.Context
	root   *os.Root
	limits Limits
	bytes  int64
	files  int
	// last is a directory that is known to exist.
	last  string
	links []link
}

// link is a symbolic link that still has to be created.
type link struct{ name, target string }

func (f fetcher) unpackArchive(ctx context.Context, p *plan, root *os.Root, body *os.File) error {
	dir := path.Join(p.stage, treeDir)
	// Remove what a process that was killed while unpacking has left.
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

// entryName returns the path of an entry of an archive. It rejects every path with "..", even if
// that is harmless.
func entryName(name string) (string, error) {
	switch {
	case strings.HasPrefix(name, "/"):
		return "", fmt.Errorf("entry %.100q has an absolute path", name)
	case strings.ContainsRune(name, 0):
		return "", fmt.Errorf("entry %.100q has a NUL byte in its name", name)
	case strings.Contains("/"+name+"/", "/../"):
		return "", fmt.Errorf("entry %.100q is outside the archive", name)
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

// countEntry counts a file or directory against the limit.
func (t *tree) countEntry() error {
	if t.files++; t.files > t.limits.MaxFiles {
		return errTooManyFiles(t.limits)
	}
	return nil
}

func errTooManyFiles(l Limits) error {
	return fmt.Errorf("it contains more than %d files", l.MaxFiles)
}

func errTooLarge(l Limits) error {
	return fmt.Errorf("it unpacks to more than %d bytes", l.MaxUnpacked)
}

func errDuplicateEntry(name string) error {
	return fmt.Errorf("entry %.100q is in the archive twice, or is both a directory and something else", name)
}

// enterEntry counts a new entry and creates the directory that contains it.
func (t *tree) enterEntry(name string) error {
	if err := t.countEntry(); err != nil {
		return err
	}
	if _, err := t.root.Lstat(name); err == nil {
		return errDuplicateEntry(name)
	}
	return t.makeDirs(path.Dir(name))
}

// makeDirs creates a directory and its missing parents.
func (t *tree) makeDirs(name string) error {
	if name == "." || name == t.last {
		return nil
	}
	if info, err := t.root.Lstat(name); err == nil {
		if !info.IsDir() {
			return errDuplicateEntry(name)
		}
		t.last = name
		return nil
	}
	if err := t.makeDirs(path.Dir(name)); err != nil {
		return err
	}
	if err := t.countEntry(); err != nil {
		return err
	}
	t.last = name
	return t.root.Mkdir(name, 0o755)
}

// addDir creates a directory of the archive. Its owner can always write to it: otherwise its
// entries could be neither unpacked nor removed.
func (t *tree) addDir(name string, mode fs.FileMode) error {
	if err := t.makeDirs(name); err != nil || name == "." {
		return err
	}
	return t.root.Chmod(name, mode.Perm()&^0o022|0o700)
}

// addFile writes one file. Bits such as setuid are dropped.
func (t *tree) addFile(name string, mode fs.FileMode, r io.Reader) error {
	if err := t.enterEntry(name); err != nil {
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
	return f.Close() // some file systems only report a full disk here
}

// hardLink creates a hard link to an earlier file of the archive.
func (t *tree) hardLink(name, target string) error {
	target, err := entryName(target)
	if err != nil {
		return fmt.Errorf("hard link %.100q: %w", name, err)
	}
	if err := t.enterEntry(name); err != nil {
		return err
	}
	if info, err := t.root.Lstat(target); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("hard link %.100q refers to %.100q, which is not an earlier file of the archive", name, target)
	}
	return t.root.Link(target, name)
}

// addSymlink records a symbolic link, to be created by makeLinks.
func (t *tree) addSymlink(name, target string) error {
	if err := t.countEntry(); err != nil {
		return err
	}
	if !staysInside(path.Dir(name), target) {
		return fmt.Errorf("symbolic link %.100q refers to %.100q, which may be outside the archive", name, target)
	}
	t.links = append(t.links, link{name, target})
	return nil
}

// staysInside reports whether the target of a symbolic link, which is in dir, stays in the
// archive. A ".." is allowed only at the front, where it leaves a real directory. After the name
// of another link it would be relative to the target of that link.
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
		if err := t.makeDirs(path.Dir(l.name)); err != nil {
			return err
		}
		err := t.root.Symlink(l.target, l.name)
		if errors.Is(err, fs.ErrExist) {
			return errDuplicateEntry(l.name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
