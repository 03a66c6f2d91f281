package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// verifyRelease returns an error unless the key has signed the checksums and the provenance, and every file has
// the checksum that is named in both.
func verifyRelease(dir string, key ed25519.PublicKey, stdout io.Writer) error {
	sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return err
	}
	sig, err := os.ReadFile(filepath.Join(dir, signatureFile))
	if err != nil {
		return err
	}
	if !ed25519.Verify(key, sums, sig) {
		return fmt.Errorf("%s: the key has not signed it", sumsFile)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || name != filepath.Base(name) {
			return fmt.Errorf("%s: not a line of sha256sum: %q", sumsFile, line)
		}
		has, err := sumFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if has != sum {
			return fmt.Errorf("%s: its checksum is not the one in %s", name, sumsFile)
		}
		found[name] = sum
	}
	s, err := verifyProvenance(dir, key, found)
	if err != nil {
		return fmt.Errorf("%s: %w", provenanceFile, err)
	}
	fmt.Fprintf(stdout, "%d files of %s are signed, built from %s\n", len(found), s.Predicate.BuildDefinition.ExternalParameters["version"], s.Predicate.BuildDefinition.ResolvedDependencies[0].URI)
	return nil
}

// verifyProvenance checks that the statement is signed and is about exactly these files.
func verifyProvenance(dir string, key ed25519.PublicKey, sums map[string]string) (*statement, error) {
	text, err := os.ReadFile(filepath.Join(dir, provenanceFile))
	if err != nil {
		return nil, err
	}
	s, err := openEnvelope(text, key)
	if err != nil {
		return nil, err
	}
	if s.Type != statementType || s.PredicateType != predicateType || len(s.Predicate.BuildDefinition.ResolvedDependencies) == 0 {
		return nil, errors.New("it is no SLSA provenance of a commit")
	}
	if len(s.Subject) != len(sums)-1 {
		return nil, fmt.Errorf("it is about %d files, the release has %d", len(s.Subject), len(sums)-1)
	}
	for _, file := range s.Subject {
		if file.Digest["sha256"] == "" || sums[file.Name] != file.Digest["sha256"] {
			return nil, fmt.Errorf("its checksum of %s is not the one in %s", file.Name, sumsFile)
		}
	}
	return s, nil
}
