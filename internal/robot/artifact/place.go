package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"

	"k8s4r.io/k8s4r/internal/robot/hostfs"
)

// The entries in the hidden directory of a request.
const (
	bodyFile      = "body"      // the source as transferred
	validatorFile = "validator" // identifies the version of the source
	treeDir       = "tree"      // an archive while it is unpacked
	replacedDir   = "replaced"  // files that were replaced
	keptFile      = "kept"      // the source, for TakeKept
)

// moveToDestination moves an entry of the hidden directory to its destination. A directory is
// merged into an existing one, and a file replaces a file. After an error everything is back in
// its old place.
func moveToDestination(root *os.Root, stage, name, dest string) error {
	forget, err := hostfs.MakeParents(root, dest)
	if err != nil {
		return fmt.Errorf("relativeDest: %w", err)
	}
	m := mover{root: root, aside: path.Join(stage, replacedDir)}
	err = root.MkdirAll(m.aside, 0o700)
	if err == nil {
		err = m.moveEntry(path.Join(stage, name), dest)
	}
	if err != nil {
		m.undoMoves()
		forget()
	}
	return err
}

// mover moves files and records the moves.
type mover struct {
	root  *os.Root
	aside string
	moved []move
	// replaced counts the files that were moved to aside.
	replaced int
}

type move struct{ from, to string }

func (m *mover) moveEntry(from, to string) error {
	source, err := m.root.Lstat(from)
	if err != nil {
		return err
	}
	there, err := m.root.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m.renameEntry(from, to)
	case err != nil:
		return err
	case source.IsDir() && there.IsDir():
		return m.mergeDir(from, to)
	case source.IsDir():
		return fmt.Errorf("%.100q is a directory in the artifact, but exists and is not a directory", to)
	case there.IsDir():
		return fmt.Errorf("%.100q is a directory: end relativeDest with / to put the file into it", to)
	}
	m.replaced++
	if err := m.renameEntry(to, path.Join(m.aside, strconv.Itoa(m.replaced))); err != nil {
		return err
	}
	return m.renameEntry(from, to)
}

// mergeDir moves each entry of a directory into another directory.
func (m *mover) mergeDir(from, to string) error {
	entries, err := fs.ReadDir(m.root.FS(), from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := m.moveEntry(path.Join(from, e.Name()), path.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) renameEntry(from, to string) error {
	err := m.root.Rename(from, to)
	if err == nil {
		m.moved = append(m.moved, move{from, to})
	}
	return err
}

// undoMoves undoes all moves, the last one first.
func (m *mover) undoMoves() {
	for i := len(m.moved) - 1; i >= 0; i-- {
		_ = m.root.Rename(m.moved[i].to, m.moved[i].from)
	}
}
