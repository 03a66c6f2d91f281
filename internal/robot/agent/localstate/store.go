// Package localstate keeps what people at the robot have decided, in a file of its own: agents of earlier
// versions do not read it, and would take an unknown record of the journal for an attempt.
package localstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// fileName is the name of the file in the state directory.
const fileName = "local.json"

// Format is the version of the file that this agent writes, and the newest that it reads. A file without a
// version has the first one.
const Format = 1

// fileContent is what the file has. Agents before the version was added ignore it.
type fileContent struct {
	Format int `json:"format"`
	wire.LocalState
}

// ErrNewFormat rejects a file that an agent with a newer format has written.
var ErrNewFormat = errors.New("was written by an agent of a later version, and this agent cannot read it; start that version again")

// Store is safe for concurrent use.
type Store struct {
	path string

	mu    sync.Mutex // guards state
	state wire.LocalState
}

// Open reads the state in dir. Without a file it is empty. A file that cannot be read is an error: what it
// forbids must not start.
func Open(dir string) (*Store, error) {
	s := &Store{path: filepath.Join(dir, fileName)}
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what people at the robot have decided: %w", err)
	}
	var content fileContent
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, fmt.Errorf("%s is damaged; remove it to end the maintenance of this robot and to allow all tasks that were stopped here: %w", s.path, err)
	}
	if content.Format > Format {
		return nil, fmt.Errorf("%s %w", s.path, ErrNewFormat)
	}
	s.state = content.LocalState
	return s, nil
}

// Read returns the state. The caller must not change it.
func (s *Store) Read() *wire.LocalState {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.state
	return &now
}

// Write replaces the state. When it returns nil, the state is on the disk; else it has not changed.
func (s *Store) Write(to wire.LocalState) error {
	text, err := json.Marshal(fileContent{Format, to})
	if err != nil {
		return err
	}
	if err := keyfile.WriteFile(s.path, text); err != nil {
		return fmt.Errorf("write %s: %w", s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = to
	return nil
}
