package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"

	"k8s4r.io/k8s4r/internal/taskdir"
)

// What the hidden directory of a request holds.
const (
	bodyFile      = "body"      // the source as it is transferred
	validatorFile = "validator" // what tells that the source is still the same
	treeDir       = "tree"      // an archive as it is unpacked
	replacedDir   = "replaced"  // files whose place was taken
)

// place moves what a stage holds under a name to its destination. A directory
// is merged into one that is there, and a file replaces a file. After an error
// everything is back where it was.
func place(root *os.Root, stage, name, dest string) error {
	forget, err := taskdir.MakeParents(root, dest)
	if err != nil {
		return fmt.Errorf("relativeDest: %w", err)
	}
	m := mover{root: root, aside: path.Join(stage, replacedDir)}
	err = root.MkdirAll(m.aside, 0o700)
	if err == nil {
		err = m.move(path.Join(stage, name), dest)
	}
	if err != nil {
		m.undo()
		forget()
	}
	return err
}

// mover moves files and remembers it.
type mover struct {
	root  *os.Root
	aside string
	moved []move
	asked int
}

type move struct{ from, to string }

func (m *mover) move(from, to string) error {
	source, err := m.root.Lstat(from)
	if err != nil {
		return err
	}
	there, err := m.root.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m.rename(from, to)
	case err != nil:
		return err
	case source.IsDir() && there.IsDir():
		return m.merge(from, to)
	case source.IsDir():
		return fmt.Errorf("%.100q is a directory of the artifact, and is there already as something else", to)
	case there.IsDir():
		return fmt.Errorf("%.100q is a directory, end relativeDest with / to put a file into it", to)
	}
	m.asked++
	if err := m.rename(to, path.Join(m.aside, strconv.Itoa(m.asked))); err != nil {
		return err
	}
	return m.rename(from, to)
}

// merge moves each entry of a directory into another directory.
func (m *mover) merge(from, to string) error {
	entries, err := fs.ReadDir(m.root.FS(), from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := m.move(path.Join(from, e.Name()), path.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) rename(from, to string) error {
	err := m.root.Rename(from, to)
	if err == nil {
		m.moved = append(m.moved, move{from, to})
	}
	return err
}

// undo moves everything back, the last first.
func (m *mover) undo() {
	for i := len(m.moved) - 1; i >= 0; i-- {
		_ = m.root.Rename(m.moved[i].to, m.moved[i].from)
	}
}
