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
	return nounCommand("broker", "Configure a broker other than the embedded one",
		brokerConfigCommand(d), pluginCommand(d, "admit", "Allow robots to use a broker", mosquitto.AdmitCommands), pluginCommand(d, "revoke", "Revoke the access of robots to a broker", mosquitto.RevokeCommands))
}

func brokerConfigCommand(d *deps) *cobra.Command {
	return nounCommand("config", "Generate the configuration of a broker", mosquittoConfigCommand(d))
}

func mosquittoConfigCommand(d *deps) *cobra.Command {
	var c mosquitto.Config
	var dir string
	cmd := &cobra.Command{
		Use:   "mosquitto",
		Short: "Generate the configuration of Mosquitto 2.0 or newer",
		Long: `Writes mosquitto.conf and the initial configuration of the dynamic security plugin,
which restricts each robot to its own topics. Without --dir it prints both. It does
not connect to a cluster. See docs/how-to/connect-a-broker.md for the limits of
Mosquitto.`,
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
	f.StringVar(&dir, "dir", "", "configuration directory of Mosquitto to write to; if empty, prints the files for /etc/mosquitto/k8s4r")
	f.StringVar(&c.Listen, "listen", ":8883", "address on which the broker listens")
	f.StringVar(&c.CAFile, "ca-file", "ca.crt", "PEM file with the CA certificates of robots and server; relative to --dir")
	f.StringVar(&c.CertFile, "cert-file", "tls.crt", "PEM file with the certificate of the broker; relative to --dir")
	f.StringVar(&c.KeyFile, "key-file", "tls.key", "PEM file with the key of the broker; relative to --dir")
	f.StringVar(&c.CRLFile, "crl-file", "", "PEM file with the certificates of revoked robots, which k8s4r-server writes (--robot-crl-file); relative to --dir; if empty, none is read")
	f.StringVar(&c.Plugin, "plugin", "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so", "path of the dynamic security plugin")
	f.StringSliceVar(&c.Robots, "robots", nil, "ids of the robots that may connect initially")
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
			return usagef("--dir: %s already exists; remove it, or choose another directory", filepath.Join(dir, name))
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

// pluginCommand returns a command that prints commands to Mosquitto's plugin, one line per robot.
func pluginCommand(d *deps, verb, short string, commands func(string) ([]byte, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mosquitto ROBOT...",
		Short: "Print commands for Mosquitto's dynamic security plugin",
		Long: `Prints the commands for the dynamic security plugin, one line per robot. Publish them
on the topic ` + mosquitto.ControlTopic + ` with the certificate of ` + mosquitto.AdminName + `.`,
		Example: "  " + d.program + " broker " + verb + " mosquitto rover-1 | mosquitto_pub -l -q 1 -t '" + mosquitto.ControlTopic + "' \\\n" +
			"    -h broker -p 8883 --cafile ca.crt --cert admin.crt --key admin.key",
		Args: checkArgs(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, robots []string) error {
			for _, id := range robots {
				line, err := commands(id)
				if err != nil {
					return usagef("%w", err)
				}
				fmt.Fprintf(d.Out, "%s\n", line)
			}
			return nil
		},
	}
	return nounCommand(verb, short, cmd)
}
