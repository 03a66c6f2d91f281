package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"k8s4r.io/k8s4r/internal/platform/serveraddr"
)

type openOptions struct {
	conn  connection
	print bool
}

func openCommand(d *deps) *cobra.Command {
	var o openOptions
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Open the console in a browser",
		Long: `Opens the console of ` + quoteArg("k8s4r up") + ` in a browser and signs it in. The link signs in one
browser and is valid for an hour. With --print, and on a machine without a
browser, the link is printed instead. For the console of another cluster it
prints how to reach it.`,
		Example: "  " + d.program + " open\n  " + d.program + " open --print",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runOpen(cmd.Context(), d, c) })
		},
	}
	cmd.Flags().BoolVar(&o.print, "print", false, "print the link and open no browser")
	o.conn.addFlags(cmd.Flags())
	return cmd
}

func (o *openOptions) runOpen(ctx context.Context, d *deps, c *cluster) error {
	if _, err := c.version(ctx); err != nil {
		return err
	}
	link, err := c.findConsole(ctx)
	if err != nil {
		return err
	}
	if o.print {
		fmt.Fprintln(d.Out, link)
		return nil
	}
	if err := d.browse(link); err != nil {
		fmt.Fprintf(d.Err, "no browser was opened (%s); open this link in one:\n", err)
		fmt.Fprintln(d.Out, link)
		return nil
	}
	fmt.Fprintf(d.Out, "opened the console in a browser; if none appears, run %s\n", quoteArg(d.program+" open --print"))
	return nil
}

// upState is the part of the file of a running `k8s4r up` that open needs.
type upState struct {
	Server        string `json:"server"`
	ConsoleURL    string `json:"consoleURL"`
	ConsoleSocket string `json:"consoleSocket"`
}

// upStateFile is beside the kubeconfig that `k8s4r up` writes, while up is ready.
const upStateFile = "up.json"

// findConsole returns a URL of the console, which signs a browser in if possible.
func (c *cluster) findConsole(ctx context.Context) (string, error) {
	up, found := c.findUp()
	switch {
	case !found:
		return "", fmt.Errorf("the console of the cluster at %s cannot be opened directly: run\n"+
			"  kubectl --namespace %s port-forward service/k8s4r-console 8800:443\nin another terminal, and open https://127.0.0.1:8800", c.server, serveraddr.Namespace)
	case up.ConsoleURL == "":
		return "", errors.New("this k8s4r up runs no console: start it without --without=console")
	}
	link, err := readSignInLink(ctx, up.ConsoleSocket)
	if err != nil {
		return up.ConsoleURL, nil //nolint:nilerr // the console then asks for a token
	}
	return link, nil
}

// findUp returns the state of the `k8s4r up` that runs the API server, if it runs on this machine.
func (c *cluster) findUp() (up upState, found bool) {
	for _, kubeconfig := range c.kubeconfigs {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(kubeconfig), upStateFile))
		if err != nil {
			continue
		}
		up = upState{}
		if json.Unmarshal(data, &up) == nil && up.Server == c.server {
			return up, true
		}
	}
	return upState{}, false
}

const (
	signInTimeout = 5 * time.Second
	maxLink       = 4096 // bytes
)

// readSignInLink reads a link that signs one browser in from the socket of up.
func readSignInLink(ctx context.Context, socket string) (string, error) {
	if socket == "" {
		return "", errors.New("up has no socket for links")
	}
	ctx, cancel := context.WithTimeout(ctx, signInTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(io.LimitReader(conn, maxLink)).ReadString('\n')
	if err != nil {
		return "", err
	}
	link := strings.TrimSpace(line)
	if u, err := url.Parse(link); err != nil || u.Host == "" {
		return "", fmt.Errorf("%q is not a link", link)
	}
	return link, nil
}

// openBrowser starts the user's browser with a link. It returns an error if there is none.
func openBrowser(link string, env func(string) string) error {
	name, args := browserCommand(runtime.GOOS, env)
	if name == "" {
		return errors.New("there is no display")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	cmd := exec.Command(path, append(args, link)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// browserCommand returns the program that opens links. The name is empty on a machine without a
// display.
func browserCommand(system string, env func(string) string) (name string, args []string) {
	switch {
	case system == "darwin":
		return "open", nil
	case system == "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler"}
	case env("BROWSER") != "":
		return env("BROWSER"), nil
	case env("DISPLAY") == "" && env("WAYLAND_DISPLAY") == "":
		return "", nil
	}
	return "xdg-open", nil
}
