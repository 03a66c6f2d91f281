// Package sealed keeps the secrets of attempts on the disk, encrypted, so that the robot can restart a task
// without contact after its agent or the robot was restarted. Each attempt has a file, which is removed with
// its end. The key belongs to the robot: if it has a TPM, the TPM alone can decrypt it; otherwise it is a file
// of the agent beside them, which protects no stolen disk.
package sealed

import (
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// DirName is the name of the directory in the agent's state directory.
const DirName = "sealed"

// suffix ends the names of the files with secrets.
const suffix = ".secrets"

// The names of the files with a key.
const (
	keyInFile = "key"
	keyOfTPM  = "key.tpm"
)

// Store has the secrets of attempts. One goroutine uses it. It creates its key with the first secrets.
type Store struct {
	dir string
	key keyKeeper
	// aead is nil until the key was needed.
	aead cipher.AEAD
}

// Open returns the secrets in the state directory. It reads and writes nothing yet.
func Open(stateDir string) *Store {
	dir := filepath.Join(stateDir, DirName)
	return &Store{dir: dir, key: robotKey{dir, openTPM}}
}

// Put writes the secrets of an attempt to the disk. UIDs must be valid as names of files.
func (s *Store) Put(uid string, attempt int32, values wire.Secrets) error {
	if err := s.seal(uid, attempt, values); err != nil {
		return fmt.Errorf("seal the values of secretEnv: %w", err)
	}
	return nil
}

func (s *Store) seal(uid string, attempt int32, values wire.Secrets) error {
	plain, err := json.Marshal(values)
	if err != nil {
		return err
	}
	if s.aead == nil {
		if s.aead, err = s.key.openOrCreate(); err != nil {
			return err
		}
	}
	return keyfile.WriteFile(s.path(uid, attempt), s.aead.Seal(nil, nil, plain, identity(uid, attempt)))
}

// Get returns the secrets of an attempt. They are nil if there are none.
func (s *Store) Get(uid string, attempt int32) (wire.Secrets, error) {
	text, err := os.ReadFile(s.path(uid, attempt))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	values := wire.Secrets{}
	if err == nil && s.aead == nil {
		s.aead, err = s.key.open()
	}
	if err == nil {
		text, err = s.aead.Open(nil, nil, text, identity(uid, attempt))
	}
	if err == nil {
		err = json.Unmarshal(text, &values)
	}
	if err != nil {
		return nil, fmt.Errorf("read the sealed values of secretEnv: %w", err)
	}
	return values, nil
}

// Remove removes the secrets of an attempt, if there are any.
func (s *Store) Remove(uid string, attempt int32) error {
	if err := os.Remove(s.path(uid, attempt)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the sealed values of secretEnv: %w", err)
	}
	return nil
}

// Sweep removes the secrets of all attempts that are not to be kept, and files that a power cut has left while
// they were written.
func (s *Store) Sweep(keep func(uid string, attempt int32) bool) error {
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	for _, file := range files {
		name := filepath.Base(file)
		uid, attempt, ok := parseName(name)
		if isKey := name == keyInFile || name == keyOfTPM; !isKey && (!ok || !keep(uid, attempt)) {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}

// identity binds secrets to their attempt: the file of another one cannot take their place.
func identity(uid string, attempt int32) []byte { return fmt.Appendf(nil, "%s/%d", uid, attempt) }

func (s *Store) path(uid string, attempt int32) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s.%d%s", uid, attempt, suffix))
}

// parseName returns the attempt that a file name was made of.
func parseName(name string) (uid string, attempt int32, ok bool) {
	name, ok = strings.CutSuffix(name, suffix)
	i := strings.LastIndexByte(name, '.')
	if !ok || i < 0 {
		return "", 0, false
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	return name[:i], int32(n), err == nil
}
