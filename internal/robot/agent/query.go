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

	"k8s4r.io/k8s4r/internal/agent/service"
)

// outputFlag is the flag of commands for people and programs: text or json.
const outputFlag = "o"

// about is a command line that is about an agent which may run: the service of
// this host, if nothing else is said.
type about struct {
	*flags
	output string
}

func newAbout(name, usage string) *about {
	a := &about{flags: newFlags(name, usage)}
	a.StringVar(&a.output, outputFlag, "text", "`format` of the output: text or json")
	if _, err := os.Stat(service.DefaultConfig); err == nil {
		a.file = service.DefaultConfig
	}
	return a
}

func (a *about) parse(args []string, help io.Writer) error {
	if err := a.flags.parse(args, os.LookupEnv, help); err != nil {
		return err
	}
	if a.output != "text" && a.output != "json" {
		return fmt.Errorf("-%s %q must be text or json", outputFlag, a.output)
	}
	return nil
}

// errSilent tells that no agent answers.
var errSilent = errors.New("no agent answers")

// ask asks the agent how it is.
func (a *about) ask(ctx context.Context) (h Health, err error) {
	socket := a.config.HealthSocket
	client := http.Client{
		Timeout: 2 * healthPatience,
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
		return h, explainSilence(socket, err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&h); err != nil {
		return h, fmt.Errorf("what answers on %s is no agent: %w", socket, err)
	}
	return h, nil
}

func explainSilence(socket string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be opened: run this as the user that the agent runs as", socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w on %s: start it (systemctl start k8s4r-agent), or say where it is with --state-dir or --health-socket", errSilent, socket)
	}
	return fmt.Errorf("ask the agent on %s: %w", socket, err)
}

func writeJSON(w io.Writer, v any) {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(v)
}

// ago is for people how long a time is past.
func ago(now time.Time, t *time.Time) string {
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
