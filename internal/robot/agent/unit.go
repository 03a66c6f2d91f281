package agent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s4r.io/k8s4r/internal/robot/agent/service"
)

const unitUsage = `Usage: k8s4r-agent unit [flags]

Prints a systemd unit that runs this program as a service:

  k8s4r-agent unit | sudo tee /etc/systemd/system/k8s4r-agent.service
  sudo systemctl daemon-reload && sudo systemctl enable --now k8s4r-agent

`

// unitCommand prints the unit for this program.
func unitCommand(args []string, stdout, stderr io.Writer) int {
	f := newFlagSet("k8s4r-agent unit", unitUsage)
	config := f.String("config", service.DefaultConfig, "configuration `file` of the service")
	if err := f.parseArgs(args, stdout); err != nil {
		return exitForError(err, stdout, stderr)
	}
	program, err := os.Executable()
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "k8s4r-agent: find the path of this program:", err)
		return exitFailed
	}
	path, err := filepath.Abs(*config)
	if err != nil {
		return exitForError(err, stdout, stderr)
	}
	_, _ = io.WriteString(stdout, service.Unit(program, path))
	return exitOK
}
