package sealed

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2/transport"
)

// startTPM returns how to open a software TPM that no other test uses.
func startTPM(t *testing.T) func() (transport.TPMCloser, error) {
	t.Helper()
	if _, err := exec.LookPath("swtpm"); err != nil {
		t.Skip("needs the program swtpm (make deps installs it)")
	}
	dir, err := os.MkdirTemp("", "tpm") // the path of a socket must be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	// Each connection starts the TPM, as a restart of the robot does.
	return func() (transport.TPMCloser, error) {
		_ = os.Remove(socket)
		program := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir, "--server", "type=unixio,path="+socket, "--flags", "not-need-init,startup-clear")
		if err := program.Start(); err != nil {
			return nil, err
		}
		tpm, err := openSocket(socket)
		return closer{tpm, program}, err
	}
}

// openSocket opens the TPM that is about to listen on a socket.
func openSocket(path string) (transport.TPMCloser, error) {
	for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("unix", path)
		if err == nil {
			return transport.FromReadWriteCloser(c), nil
		}
		if time.Now().After(until) {
			return nil, err
		}
	}
}

// closer ends the TPM with its connection.
type closer struct {
	transport.TPMCloser
	program *exec.Cmd
}

func (c closer) Close() error {
	err := c.TPMCloser.Close()
	_ = c.program.Process.Kill()
	_ = c.program.Wait()
	return err
}

// storeWith returns a store on a robot with this TPM.
func storeWith(state string, connect func() (transport.TPMCloser, error)) *Store {
	s := Open(state)
	s.key = robotKey{s.dir, connect}
	return s
}

func TestTPM_KeepsTheKey(t *testing.T) {
	state, tpm := t.TempDir(), startTPM(t)
	must(t, storeWith(state, tpm).Put("t1", 1, values))
	if got, err := storeWith(state, tpm).Get("t1", 1); err != nil || got["PASSWORD"] != password {
		t.Errorf("the next agent reads %d values, %v", len(got), err)
	}
	must(t, storeWith(state, tpm).Put("t2", 1, values))
	if got, err := storeWith(state, tpm).Get("t1", 1); err != nil || got["PASSWORD"] != password {
		t.Errorf("after another agent has sealed secrets: %d values, %v", len(got), err)
	}
	if _, err := os.Stat(filepath.Join(state, DirName, "key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a key without a TPM, too: %v", err)
	}
}

// A disk is not enough to read the secrets, and the key is not on it.
func TestTPM_OfAnotherRobotReadsNothing(t *testing.T) {
	state, tpm := t.TempDir(), startTPM(t)
	must(t, storeWith(state, tpm).Put("t1", 1, values))
	other := startTPM(t)
	if got, err := storeWith(state, other).Get("t1", 1); err == nil {
		t.Errorf("another TPM reads %d values", len(got))
	}
	if got, err := storeWith(state, openNoTPM).Get("t1", 1); err == nil {
		t.Errorf("without a TPM: %d values", len(got))
	}
	must(t, storeWith(state, other).Put("t2", 1, values)) // with a key of its own
	if got, err := storeWith(state, other).Get("t2", 1); err != nil || got["PASSWORD"] != password {
		t.Errorf("the other TPM reads its own: %d values, %v", len(got), err)
	}
}

func openNoTPM() (transport.TPMCloser, error) { return nil, fs.ErrNotExist }

// A TPM that fails is not replaced by a file.
func TestTPM_ThatFailsSealsNothing(t *testing.T) {
	state := t.TempDir()
	broken := errors.New("broken")
	err := storeWith(state, func() (transport.TPMCloser, error) { return nil, broken }).Put("t1", 1, values)
	if !errors.Is(err, broken) {
		t.Errorf("%v, want that the TPM is broken", err)
	}
	if files, _ := filepath.Glob(filepath.Join(state, DirName, "*")); len(files) > 0 {
		t.Errorf("there are %v", files)
	}
}

// The agent's user may not be allowed to use the TPM.
func TestTPM_ThatIsForbiddenIsLikeNone(t *testing.T) {
	state := t.TempDir()
	must(t, storeWith(state, func() (transport.TPMCloser, error) { return nil, fs.ErrPermission }).Put("t1", 1, values))
	b, err := os.ReadFile(filepath.Join(state, DirName, "key"))
	if err != nil || len(b) != keySize || bytes.Equal(b, make([]byte, keySize)) {
		t.Errorf("the key has %d bytes, %v", len(b), err)
	}
}

// A TPM that is missing or busy for a moment, such as early after the boot, loses nothing.
func TestTPM_ThatIsMissingForAMomentKeepsItsKey(t *testing.T) {
	for name, missing := range map[string]error{"no device": fs.ErrNotExist, "not permitted": fs.ErrPermission, "busy": errors.New("busy")} {
		t.Run(name, func(t *testing.T) {
			state, tpm := t.TempDir(), startTPM(t)
			must(t, storeWith(state, tpm).Put("t1", 1, values))
			err := storeWith(state, func() (transport.TPMCloser, error) { return nil, missing }).Put("t2", 1, values)
			if !errors.Is(err, missing) {
				t.Errorf("%v, want that the secrets are not sealed", err)
			}
			if got, err := storeWith(state, tpm).Get("t1", 1); err != nil || got["PASSWORD"] != password {
				t.Errorf("later it reads %d values, %v", len(got), err)
			}
		})
	}
}
