package up

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestMakeEphemeral_UsesFreePortsAndNewDirectory(t *testing.T) {
	temp := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(temp, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", link)
	for _, row := range []struct {
		name, mqtts, logs, console string
		flags                      []string
	}{
		{"all ports are free ones", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", nil},
		{"a flag wins", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:9999", []string{"--console-address=127.0.0.1:9999"}},
		{"robots on other machines reach it", ":0", ":0", "127.0.0.1:0", []string{"--advertise-address=10.0.0.1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var o options
			f := pflag.NewFlagSet("up", pflag.ContinueOnError)
			o.addFlags(f)
			if err := errors.Join(f.Parse(append(row.flags, "--ephemeral")), o.makeEphemeral(f), o.validate()); err != nil {
				t.Fatal(err)
			}
			if o.securePort != 0 || o.mqttsListenAddress() != row.mqtts || o.logsListenAddress() != row.logs || o.consoleAddress != row.console || o.mqttAddress != "127.0.0.1:0" {
				t.Errorf("port %d, MQTT %s and %s, logs %s, console %s", o.securePort, o.mqttsListenAddress(), o.mqttAddress, o.logsListenAddress(), o.consoleAddress)
			}
			info, err := os.Stat(o.dataDir)
			if err != nil || info.Mode().Perm() != 0o711 || filepath.Dir(o.dataDir) != temp {
				t.Errorf("data directory %s: %v, %v", o.dataDir, info, err)
			}
			if err := o.removeIfEphemeral(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(o.dataDir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the data directory is still there: %v", err)
			}
		})
	}
}

func TestMakeEphemeral_RefusesWhatWouldStay(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, flag := range []string{"--data-dir=/x", "--kubeconfig=/x", "--archive=sqlite:/x"} {
		var o options
		f := pflag.NewFlagSet("up", pflag.ContinueOnError)
		o.addFlags(f)
		name, _, _ := strings.Cut(flag, "=")
		if err := errors.Join(f.Parse([]string{"--ephemeral", flag}), o.makeEphemeral(f)); err == nil || !strings.Contains(err.Error(), "--ephemeral: cannot be combined with "+name) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestRemoveIfEphemeral_KeepsOtherData(t *testing.T) {
	o := options{dataDir: t.TempDir()}
	if err := o.removeIfEphemeral(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(o.dataDir); err != nil {
		t.Error(err)
	}
}

func TestPrintSummary_ShowsWhetherDataStays(t *testing.T) {
	for ephemeral, want := range map[bool][]string{
		false: {"/data (kept when this process ends)", "continues with the same data"},
		true:  {"/data (removed when this process ends)", "removes all data"},
	} {
		var out bytes.Buffer
		printSummary(&out, State{DataDir: "/data"}, ephemeral, "")
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("ephemeral %v: no %q in %q", ephemeral, text, out.String())
			}
		}
	}
}

func TestServeLinks_SendsEachClientNewLink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // left behind by a kill
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	links := []string{"http://a", "http://b"}
	done := make(chan error, 1)
	go func() {
		done <- serveLinks(ctx, path, func() string { link := links[0]; links = links[1:]; return link })
	}()
	for _, want := range []string{"http://a\n", "http://b\n"} {
		if got := readSocket(t, path); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// readSocket returns what a socket sends, as soon as it accepts clients.
func readSocket(t *testing.T, path string) string {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("unix", path)
		if err != nil && time.Now().Before(until) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		text, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}
