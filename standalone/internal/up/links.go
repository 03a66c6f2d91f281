package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"k8s4r.io/k8s4r/standalone/internal/component"
)

// linkSocket is where `k8s4r open` gets a link that signs a browser in at the console. Its folder
// has the administrator's keys, and only the user of this process can enter it.
const linkSocket = "pki/console.sock"

// maxSocketPath is the longest path of a Unix socket, in bytes.
const maxSocketPath = 107

// consoleSocket returns the path of the socket. It is empty if there is no link, or if the path is
// too long for a socket; `k8s4r open` then opens the console without signing in.
func (s *system) consoleSocket() string {
	if s.console == nil || !s.opts.embedsCluster() {
		return ""
	}
	if path := s.dir.Join(linkSocket); len(path) <= maxSocketPath {
		return path
	}
	return ""
}

// addLinks adds the socket for links.
func (s *system) addLinks() {
	path := s.consoleSocket()
	if path == "" {
		return
	}
	s.group.Add("console links", component.NewBackground(func(ctx context.Context) error { return serveLinks(ctx, path, s.signInLink) }, nil))
}

// serveLinks sends a new link to each client of the socket until ctx ends.
func serveLinks(ctx context.Context, path string, newLink func() string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // left behind by a kill
		return fmt.Errorf("console links: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("console links: %w", err)
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("console links: %w", err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, newLink()+"\n") // the client may be gone
		_ = conn.Close()
	}
}
