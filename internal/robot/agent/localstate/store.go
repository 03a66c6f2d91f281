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
	if err := json.Unmarshal(text, &s.state); err != nil {
		return nil, fmt.Errorf("%s is damaged; remove it to end the maintenance of this robot and to allow all tasks that were stopped here: %w", s.path, err)
	}
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
	text, err := json.Marshal(to)
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
