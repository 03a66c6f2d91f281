package up

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/standalone/internal/datadir"
)

// stateFile exists while everything is ready, for scripts. A process that is killed leaves it until
// the next start, so they must compare its pid.
const stateFile = "up.json"

// State has the addresses of the parts of a running system. A part that does not run here and is
// not set by a flag is empty.
type State struct {
	PID           int      `json:"pid"`
	DataDir       string   `json:"dataDir"`
	Kubeconfig    string   `json:"kubeconfig"`
	Server        string   `json:"server"` // URL of the API server
	MQTTURL       string   `json:"mqttURL"`
	MQTTSURL      string   `json:"mqttsURL"` // for robots with certificates
	JoinURL       string   `json:"joinURL"`  // where robots join
	MetricsURL    string   `json:"metricsURL"`
	ProfileURL    string   `json:"profileURL"` // of pprof
	ConsoleURL    string   `json:"consoleURL"`
	ConsoleSocket string   `json:"consoleSocket"` // sends links that sign in at the console
	Robots        []string `json:"robots"`        // ids
	Node          string   `json:"node"`          // that pods are bound to
}

func (s State) writeFile(d *datadir.Dir) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return keyfile.WriteFile(d.Join(stateFile), append(data, '\n'))
}

func removeState(d *datadir.Dir) error {
	if err := os.Remove(d.Join(stateFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
