// Package backup writes the data directory of `k8s4r up` to one file, also while it runs, and restores
// it.
//
// The file is a tar archive, compressed by gzip, with these parts:
//
//	etcd.snapshot   all objects, as of one revision
//	pki/            keys and certificates, the CA of the robots among them
//	robots/         the keys of the robots on this machine, without what they ran
//	history.db      the archive of ended objects, if it is in the data directory
//	tasklogs/       the logs of tasks, on request
//	manifest.json   the version and the SHA-256 of each part; the last entry
package backup

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The parts of a backup.
const (
	partObjects  = "etcd.snapshot"
	partKeys     = "pki"
	partRobots   = "robots"
	partHistory  = "history.db"
	partLogs     = "tasklogs"
	manifestName = "manifest.json"
)

// format is the version of the file's format.
const format = 1

// Manifest describes a backup.
type Manifest struct {
	Format    int       `json:"format"`
	CreatedAt time.Time `json:"createdAt"`
	// Version of the program that wrote it.
	Version string `json:"version"`
	// Epoch is the number of restores before it.
	Epoch int32  `json:"epoch"`
	Files []File `json:"files"`
}

// File is one file of a backup.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// validate returns an error unless the files that were read are those of the manifest.
func (m Manifest) validate(read []File) error {
	if m.Format != format {
		return fmt.Errorf("the backup has format %d and this program reads format %d; restore it with k8s4r %s", m.Format, format, m.Version)
	}
	want := map[string]File{}
	for _, f := range m.Files {
		want[f.Name] = f
	}
	for _, f := range read {
		if want[f.Name] != f {
			return fmt.Errorf("the backup is damaged: %s is not as its manifest says", f.Name)
		}
		delete(want, f.Name)
	}
	for name := range want {
		return fmt.Errorf("the backup is damaged: %s is missing", name)
	}
	if !slices.ContainsFunc(read, func(f File) bool { return f.Name == partObjects }) {
		return fmt.Errorf("the backup is damaged: %s is missing", partObjects)
	}
	return nil
}

// checkName returns an error for the name of a file that no backup contains.
func checkName(name string) error {
	top, _, isNested := strings.Cut(name, "/")
	isDir := top == partKeys || top == partRobots || top == partLogs
	isKnown := isDir && isNested || !isNested && (name == partObjects || name == partHistory)
	if !isKnown || !filepath.IsLocal(name) || path.Clean(name) != name {
		return fmt.Errorf("the backup contains an unexpected file %.200q", name)
	}
	return nil
}
