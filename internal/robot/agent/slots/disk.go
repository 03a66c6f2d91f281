package slots

import (
	"errors"
	"os"
	"path/filepath"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// disk is what changes files. When a method returns nil, the change is durable. Tests cut the power in
// between.
type disk interface {
	makeDir(path string) error
	removeAll(path string) error
	// syncProgram makes a file executable and writes its content to the disk.
	syncProgram(path string) error
	// writeFile replaces a file: there is the old or the new content.
	writeFile(path string, content []byte) error
	// rename renames a directory, whose files are durable.
	rename(from, to string) error
}

// osDisk is the disk of the machine.
type osDisk struct{}

func (osDisk) makeDir(path string) error { return keyfile.MakeDir(path) }

func (osDisk) removeAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return keyfile.SyncDir(filepath.Dir(path))
}

func (osDisk) syncProgram(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(0o755), f.Sync(), f.Close())
	return errors.Join(err, keyfile.SyncDir(filepath.Dir(path)))
}

func (osDisk) writeFile(path string, content []byte) error { return keyfile.WriteFile(path, content) }

func (osDisk) rename(from, to string) error { return keyfile.Rename(from, to) }
