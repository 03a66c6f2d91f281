package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serveLink answers each connection to a socket with a line.
func serveLink(t *testing.T, line string) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, line)
			conn.Close()
		}
	}()
	return socket
}

func TestOpen_FindsConsole(t *testing.T) {
	const link = "http://127.0.0.1:8800/signin?code=abc"
	up := func(server, url, socket string) string {
		return fmt.Sprintf(`{"server":%q,"consoleURL":%q,"consoleSocket":%q}`, server, url, socket)
	}
	const server, url = "https://cluster:6443", "http://127.0.0.1:8800"
	for _, row := range []struct {
		name, state, line string
		args              []string
		noBrowser         bool
		opened, out, err  string
		status            int
	}{
		{name: "it opens a browser", state: up(server, url, "SOCKET"), line: link + "\n", opened: link, out: "k8s4r open --print"},
		{name: "it prints the link", state: up(server, url, "SOCKET"), line: link + "\n", args: []string{"--print"}, out: link + "\n"},
		{name: "there is no browser", state: up(server, url, "SOCKET"), line: link + "\n", noBrowser: true, out: link + "\n", err: "no browser was opened (there is no display)"},
		{name: "nothing answers at the socket: the user signs in there", state: up(server, url, "/nowhere"), args: []string{"--print"}, out: url + "\n"},
		{name: "what answers sends no link", state: up(server, url, "SOCKET"), line: "hello\n", args: []string{"--print"}, out: url + "\n"},
		{name: "up without a console", state: up(server, "", ""), err: "runs no console", status: ExitFailed},
		{name: "another up", state: up("https://127.0.0.1:1", url, ""), err: "port-forward service/k8s4r-console", status: ExitFailed},
		{name: "no up", err: "port-forward service/k8s4r-console", status: ExitFailed},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			if row.state != "" {
				state := strings.ReplaceAll(row.state, "SOCKET", serveLink(t, row.line))
				if err := os.WriteFile(filepath.Join(dir, upStateFile), []byte(state), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b := newBench(t)
			connect := b.deps.connect
			b.deps.connect = func(conn *connection) (*cluster, error) {
				c, err := connect(conn)
				c.kubeconfigs = []string{filepath.Join(dir, "missing", "config"), filepath.Join(dir, "kubeconfig")}
				return c, err
			}
			opened := ""
			b.deps.browse = func(link string) error {
				if row.noBrowser {
					return errors.New("there is no display")
				}
				opened = link
				return nil
			}
			status := b.run(append([]string{"open"}, row.args...)...)
			if status != row.status || opened != row.opened || !strings.Contains(b.out.String(), row.out) || !strings.Contains(b.err.String(), row.err) {
				t.Errorf("exit %d, opened %q, stdout %q, stderr %q", status, opened, b.out.String(), b.err.String())
			}
		})
	}
}

func TestBrowserCommand_NeedsDisplay(t *testing.T) {
	for _, row := range []struct {
		name, system, want string
		env                map[string]string
	}{
		{"Linux with X", "linux", "xdg-open", map[string]string{"DISPLAY": ":0"}},
		{"Linux with Wayland", "linux", "xdg-open", map[string]string{"WAYLAND_DISPLAY": "wayland-0"}},
		{"the user's choice", "linux", "firefox", map[string]string{"BROWSER": "firefox"}},
		{"Linux without a display", "linux", "", nil},
		{"macOS", "darwin", "open", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got, _ := browserCommand(row.system, func(name string) string { return row.env[name] }); got != row.want {
				t.Errorf("%q, not %q", got, row.want)
			}
		})
	}
}
