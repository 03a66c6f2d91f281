package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"k8s4r.io/k8s4r/internal/broker/mosquitto"
)

func brokerCommand(d *deps) *cobra.Command {
	return nounCommand("broker", "Have a broker that is not K8s4r's own keep its rules",
		brokerConfigCommand(d), brokerWordCommand(d, "admit", "may speak from now on", mosquitto.AdmitCommands), brokerWordCommand(d, "revoke", "may not speak any more", mosquitto.RevokeCommands))
}

func brokerConfigCommand(d *deps) *cobra.Command {
	return nounCommand("config", "Write the configuration of a broker", mosquittoConfigCommand(d))
}

func mosquittoConfigCommand(d *deps) *cobra.Command {
	var c mosquitto.Config
	var dir string
	cmd := &cobra.Command{
		Use:   "mosquitto",
		Short: "Write the configuration of Mosquitto, 2.0 or newer",
		Long: `Writes mosquitto.conf and the first list of the dynamic security plugin, by which
a robot says and hears only what is its own. Without --dir both are printed.
It asks no cluster. What Mosquitto cannot do stands in docs/how-to/connect-a-broker.md.`,
		Example: "  " + d.program + " broker config mosquitto --dir /etc/mosquitto/k8s4r --robots rover-1,rover-2",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			c.Dir = dir
			if dir == "" {
				c.Dir = "/etc/mosquitto/k8s4r"
			}
			files, err := c.Files()
			if err != nil {
				return usagef("%w", err)
			}
			if dir == "" {
				return printFiles(d, files)
			}
			return writeFiles(d, dir, files)
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", "", "directory to write to, the one that Mosquitto reads; empty: print, as for /etc/mosquitto/k8s4r")
	f.StringVar(&c.Listen, "listen", ":8883", "address of the broker")
	f.StringVar(&c.CAFile, "ca-file", "ca.crt", "certificates that vouch for robots and server, PEM; below --dir unless absolute")
	f.StringVar(&c.CertFile, "cert-file", "tls.crt", "certificate of the broker, PEM; below --dir unless absolute")
	f.StringVar(&c.KeyFile, "key-file", "tls.key", "key of that certificate; below --dir unless absolute")
	f.StringVar(&c.Plugin, "plugin", "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so", "the dynamic security plugin")
	f.StringSliceVar(&c.Robots, "robots", nil, "ids of robots that may speak from the start")
	return cmd
}

// configFiles are the files that are printed or written, in this order.
var configFiles = []string{mosquitto.ConfFile, mosquitto.SecurityFile}

func printFiles(d *deps, files map[string][]byte) error {
	for _, name := range configFiles {
		if _, err := fmt.Fprintf(d.Out, "==> %s <==\n%s\n", name, files[name]); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles creates the files and fails if one exists: the plugin stores the robots that were
// added or revoked since in its file.
func writeFiles(d *deps, dir string, files map[string][]byte) error {
	for _, name := range configFiles {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return usagef("--dir: %s is there already; remove it, or choose another directory", filepath.Join(dir, name))
		}
	}
	for _, name := range configFiles {
		path := filepath.Join(dir, name)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
		_, err = f.Write(files[name])
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Fprintln(d.Out, path)
	}
	return nil
}

// brokerWordCommand returns a command that prints the plugin's commands for robots.
func brokerWordCommand(d *deps, verb, then string, word func(string) ([]byte, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mosquitto ROBOT...",
		Short: "Print what Mosquitto's dynamic security plugin is told of robots",
		Long: `Prints, one line a robot, what the plugin is to be told on the topic
` + mosquitto.ControlTopic + ` with the certificate of ` + mosquitto.AdminName + `.`,
		Example: "  " + d.program + " broker " + verb + " mosquitto rover-1 | mosquitto_pub -l -q 1 -t '" + mosquitto.ControlTopic + "' \\\n" +
			"    -h broker -p 8883 --cafile ca.crt --cert admin.crt --key admin.key",
		Args: checkArgs(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, robots []string) error {
			for _, id := range robots {
				line, err := word(id)
				if err != nil {
					return usagef("%w", err)
				}
				fmt.Fprintf(d.Out, "%s\n", line)
			}
			return nil
		},
	}
	return nounCommand(verb, "Tell a broker that a robot "+then, cmd)
}
