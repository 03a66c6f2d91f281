package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// makeEphemeral gives the system an empty data directory and free ports, unless a flag sets one. It
// runs beside other systems on this machine. removeData removes the directory.
func (o *options) makeEphemeral(f *pflag.FlagSet) error {
	for flag, reason := range map[string]string{
		"data-dir":   "its directory is removed at the end",
		"kubeconfig": "the objects of that cluster would stay",
		"archive":    "that archive would stay",
	} {
		if f.Changed(flag) {
			return fmt.Errorf("--ephemeral: cannot be combined with --%s: %s", flag, reason)
		}
	}
	host := "127.0.0.1"
	if o.advertise != "" {
		host = "" // robots on other machines must reach these ports
	}
	for flag, value := range map[string]string{
		"secure-port": "0", "mqtt-address": "127.0.0.1:0", "mqtts-address": host + ":0", "logs-address": host + ":0", "console-address": "127.0.0.1:0",
	} {
		if f.Changed(flag) {
			continue
		}
		if err := f.Set(flag, value); err != nil {
			return err
		}
	}
	return o.createDataDir()
}

func (o *options) createDataDir() error {
	// removeData finds mounts by the path without symbolic links.
	parent, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return fmt.Errorf("--ephemeral: %w", err)
	}
	dir, err := os.MkdirTemp(parent, "k8s4r-")
	if err != nil {
		return fmt.Errorf("--ephemeral: %w", err)
	}
	o.dataDir = dir
	if err := os.Chmod(dir, 0o711); err != nil { // tasks of other users pass through it
		return errors.Join(fmt.Errorf("--ephemeral: %w", err), os.Remove(dir))
	}
	return nil
}

// removeData removes the data directory of an ephemeral system. Agents that were killed leave
// mounts: what is mounted there must not be removed, and it would keep the directory busy.
func removeData(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("remove the data in %s: %w", dir, err)
	}
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("remove the data in %s: unmount %s: %w", dir, m.Mountpoint, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the data: %w", err)
	}
	return nil
}
