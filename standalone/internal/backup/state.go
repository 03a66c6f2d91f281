package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// stateFile is in a data directory that was restored.
const stateFile = "restore.json"

// State is what a data directory keeps of its last restore. The zero value: it was never restored.
type State struct {
	// Epoch is the number of restores (restore.Gate).
	Epoch int32 `json:"epoch"`
	// AwaitsRobots is set until the robots have reported what they ran since the backup.
	AwaitsRobots bool      `json:"awaitsRobots"`
	BackupAt     time.Time `json:"backupAt"`
	RestoredAt   time.Time `json:"restoredAt"`
	// MachinePartsIn is the name of the directory beside it, which was the data directory before, from
	// which the state of this machine's robots and node still has to move. Empty: it has moved.
	MachinePartsIn string `json:"machinePartsIn,omitempty"`
}

// ReadState returns the state of a data directory.
func ReadState(dataDir string) (s State, err error) {
	text, err := os.ReadFile(filepath.Join(dataDir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", filepath.Join(dataDir, stateFile), err)
	}
	return s, nil
}

// Write stores the state in a data directory.
func (s State) Write(dataDir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", stateFile, err)
	}
	return keyfile.WriteFile(filepath.Join(dataDir, stateFile), append(text, '\n'))
}
