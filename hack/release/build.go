package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Files of a release.
const (
	provenanceFile = "provenance.intoto.json"
	sumsFile       = "SHA256SUMS"
	signatureFile  = "SHA256SUMS.sig"
	publicKeyFile  = "release.pub"
)

// programs are all that a release contains.
var programs = []string{"k8s4r", "k8s4r-agent", "k8s4r-console", "k8s4r-manager", "k8s4r-server", "kubectl-k8s4r"}

func (o *options) makeRelease(key ed25519.PrivateKey, now func() time.Time) error {
	began := now()
	source, err := readSource()
	if err != nil {
		return err
	}
	if o.version == "" || strings.ContainsAny(o.version, "/ \n") {
		return fmt.Errorf("-version=%q: must be a name without slashes and spaces", o.version)
	}
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	name := fmt.Sprintf("k8s4r-%s-%s-%s.tar.gz", o.version, runtime.GOOS, runtime.GOARCH)
	if err := packPrograms(filepath.Join(o.out, name), o.bin, source.time); err != nil {
		return err
	}
	names := []string{name}
	for _, file := range o.files {
		if err := copyFile(file, filepath.Join(o.out, filepath.Base(file))); err != nil {
			return err
		}
		names = append(names, filepath.Base(file))
	}
	statement, err := o.newStatement(names, source, began, now())
	if err != nil {
		return err
	}
	envelope, err := signStatement(statement, key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, provenanceFile), envelope, 0o644); err != nil {
		return err
	}
	return signSums(o.out, append(names, provenanceFile), key)
}

// source is the commit from which the programs were built.
type source struct {
	commit string
	time   time.Time // of the commit
}

// readSource returns the commit of the working directory. It refuses one with changes: the provenance would
// name a commit from which the same programs cannot be built.
func readSource() (source, error) {
	status, err := runGit("status", "--porcelain")
	if err != nil {
		return source{}, err
	}
	if status != "" {
		return source{}, fmt.Errorf("the working directory has changes, which no commit names; commit them first:\n%s", status)
	}
	line, err := runGit("log", "-1", "--format=%H %ct")
	if err != nil {
		return source{}, err
	}
	commit, seconds, _ := strings.Cut(line, " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	return source{commit, time.Unix(n, 0).UTC()}, err
}

func runGit(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// packPrograms writes an archive that depends on nothing but the programs and the time.
func packPrograms(path, bin string, at time.Time) error {
	var text bytes.Buffer
	zip := gzip.NewWriter(&text)
	archive := tar.NewWriter(zip)
	for _, name := range programs {
		data, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return fmt.Errorf("%w; run make build", err)
		}
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if _, err := archive.Write(data); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// signSums writes the checksums in the format of sha256sum, their signature and the public key.
func signSums(dir string, names []string, key ed25519.PrivateKey) error {
	slices.Sort(names)
	var sums strings.Builder
	for _, name := range names {
		sum, err := sumFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, name)
	}
	public, err := encodePublicKey(key.Public().(ed25519.PublicKey))
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		sumsFile: []byte(sums.String()), signatureFile: ed25519.Sign(key, []byte(sums.String())), publicKeyFile: public,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sumFile returns the SHA-256 of a file in hex.
func sumFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
