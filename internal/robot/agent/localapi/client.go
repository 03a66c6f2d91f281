package localapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Client requests something of the agent at a socket.
type Client struct{ Socket string }

// ErrNoAgent reports that no agent runs.
var ErrNoAgent = errors.New("no agent responds")

// maxProblem bounds the text of an error that the agent returns, in bytes.
const maxProblem = 4 << 10

// ListTasks returns the tasks of the robot.
func (c Client) ListTasks(ctx context.Context) (all Tasks, err error) {
	body, err := c.send(ctx, http.MethodGet, "/tasks", nil)
	if err != nil {
		return all, err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&all); err != nil {
		return all, fmt.Errorf("the program that responds on %s is not an agent: %w", c.Socket, err)
	}
	return all, nil
}

// OpenLog returns the records of a task's log. If it is followed, reads wait for the next records until
// the attempt has ended.
func (c Client) OpenLog(ctx context.Context, task string, follow bool) (io.ReadCloser, error) {
	parameters := url.Values{"task": {task}}
	if follow {
		parameters.Set("follow", "true")
	}
	return c.send(ctx, http.MethodGet, "/logs", parameters)
}

// ActOnTask stops or restarts a task, and returns what was done.
func (c Client) ActOnTask(ctx context.Context, action, task string) (string, error) {
	return c.post(ctx, "/"+action, url.Values{"task": {task}})
}

// SetMaintenance begins or ends the maintenance of the robot, and returns what was done.
func (c Client) SetMaintenance(ctx context.Context, on bool, reason string) (string, error) {
	return c.post(ctx, "/maintenance", url.Values{"on": {strconv.FormatBool(on)}, "reason": {reason}})
}

// Hold keeps a task from being interrupted, or all tasks of the robot if none is named, and returns what was
// done.
func (c Client) Hold(ctx context.Context, task, reason string) (string, error) {
	return c.post(ctx, "/hold", url.Values{"task": {task}, "reason": {reason}})
}

// Release ends the hold of a task, that of the robot if none is named, or all holds, and returns what was done.
func (c Client) Release(ctx context.Context, task string, all bool) (string, error) {
	return c.post(ctx, "/release", url.Values{"task": {task}, "all": {strconv.FormatBool(all)}})
}

// Update updates the agent to the version of a manifest, whose program is at an address. It returns when the agent
// is about to switch.
func (c Client) Update(ctx context.Context, manifest []byte, from string) (string, error) {
	return c.post(ctx, "/update", url.Values{"manifest": {string(manifest)}, "from": {from}})
}

func (c Client) post(ctx context.Context, path string, parameters url.Values) (string, error) {
	body, err := c.send(ctx, http.MethodPost, path, parameters)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxProblem))
	return strings.TrimSpace(string(text)), err
}

// send sends a request and returns the body of its answer.
func (c Client) send(ctx context.Context, method, path string, parameters url.Values) (io.ReadCloser, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	}}}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path+"?"+parameters.Encode(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, c.explainError(err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
		return nil, errors.New(strings.TrimSpace(string(text)))
	}
	return answer.Body, nil
}

func (c Client) explainError(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("permission to open %s denied: run this as root or as a member of the agent's localGroup", c.Socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w on %s: start it (systemctl start k8s4r-agent), or set --state-dir or --local-socket", ErrNoAgent, c.Socket)
	case isDialError(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("query the agent on %s: %w", c.Socket, err)
	}
	return fmt.Errorf("the agent has closed the connection on %s: it has been stopped, or %d connections are open already: %w", c.Socket, maxConnections, err)
}

// isDialError reports whether there was no connection at all.
func isDialError(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}
