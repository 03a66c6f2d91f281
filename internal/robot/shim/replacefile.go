package shim

import "os"

// replaceFile gives a file another content. If that fails, for example because the disk is full, the
// file stays as it was.
func replaceFile(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
