package backup

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// maxManifest bounds the manifest, in bytes: a million files of logs.
const maxManifest = 256 << 20

// extractFile writes the files of a backup to dir, and returns the manifest once every file is as it
// says.
func extractFile(file, dir string) (Manifest, error) {
	f, err := os.Open(file)
	if err != nil {
		return Manifest{}, fmt.Errorf("restore: %w", err)
	}
	defer f.Close()
	root, err := os.OpenRoot(dir) // no name of the backup can lead out of it
	if err != nil {
		return Manifest{}, fmt.Errorf("restore: %w", err)
	}
	defer root.Close()
	m, read, err := extractAll(f, root)
	if err != nil {
		return m, fmt.Errorf("read backup %s: %w", file, err)
	}
	return m, m.validate(read)
}

func extractAll(from io.Reader, root *os.Root) (m Manifest, read []File, err error) {
	z, err := gzip.NewReader(from)
	if err != nil {
		return m, nil, err
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, z) // checks gzip's checksum
			return m, read, err
		}
		if err != nil {
			return m, nil, err
		}
		if h.Name == manifestName {
			if err := json.NewDecoder(io.LimitReader(t, maxManifest)).Decode(&m); err != nil {
				return m, nil, fmt.Errorf("%s: %w", manifestName, err)
			}
			continue
		}
		one, err := extractOne(root, h, t)
		if err != nil {
			return m, nil, err
		}
		read = append(read, one)
	}
}

// extractOne writes one file and syncs it.
func extractOne(root *os.Root, h *tar.Header, content io.Reader) (File, error) {
	if err := checkName(h.Name); err != nil {
		return File{}, err
	}
	if h.Typeflag != tar.TypeReg {
		return File{}, fmt.Errorf("%s is not a file", h.Name)
	}
	if err := root.MkdirAll(path.Dir(h.Name), 0o700); err != nil {
		return File{}, err
	}
	f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return File{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return File{}, err
	}
	return File{Name: h.Name, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}
