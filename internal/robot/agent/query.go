package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/agent/service"
)

// outputFlag selects the format of the output: text or json.
const outputFlag = "o"

// agentQuery is the command line of a subcommand about an agent, by default the service of
// this host.
type agentQuery struct {
	*flags
	output string
}

func newAgentQuery(name, usage string) *agentQuery {
	a := &agentQuery{flags: newFlags(name, usage)}
	a.StringVar(&a.output, outputFlag, "text", "`format` of the output: text or json")
	if _, err := os.Stat(service.DefaultConfig); err == nil {
		a.file = service.DefaultConfig
	}
	return a
}

func (a *agentQuery) parseQuery(args []string, help io.Writer) error {
	if err := a.parseAll(args, os.LookupEnv, help); err != nil {
		return err
	}
	if a.output != "text" && a.output != "json" {
		return fmt.Errorf("-%s %q must be text or json", outputFlag, a.output)
	}
	return nil
}

// errNoAgent reports that no agent runs.
var errNoAgent = errors.New("no agent responds")

// fetchHealth gets the state of the agent.
func (a *agentQuery) fetchHealth(ctx context.Context) (h Health, err error) {
	socket := a.config.HealthSocket
	client := http.Client{
		Timeout: 2 * healthTimeout,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/status", nil)
	if err != nil {
		return h, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return h, explainFetchError(socket, err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&h); err != nil {
		return h, fmt.Errorf("the program that responds on %s is not an agent: %w", socket, err)
	}
	return h, nil
}

func explainFetchError(socket string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("permission to open %s denied: run this as the agent's user", socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w on %s: start it (systemctl start k8s4r-agent), or set --state-dir or --health-socket", errNoAgent, socket)
	}
	return fmt.Errorf("query the agent on %s: %w", socket, err)
}

func writeJSON(w io.Writer, v any) {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(v)
}

// formatAge returns how long ago t was, such as 5m10s.
func formatAge(now time.Time, t *time.Time) string {
	d := max(now.Sub(*t), 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
