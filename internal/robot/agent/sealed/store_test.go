package sealed

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const password = "hunter2-never-written"

var values = wire.Secrets{"PASSWORD": password, "EMPTY": ""}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// requireValues checks what the next agent reads.
func requireValues(t *testing.T, state, uid string, attempt int32, want wire.Secrets) {
	t.Helper()
	got, err := fileStore(state).Get(uid, attempt)
	if err != nil || !maps.Equal(got, want) || (got == nil) != (want == nil) {
		t.Errorf("attempt %d of %s has %d values, %v, want %d", attempt, uid, len(got), err, len(want))
	}
}

func TestStore_KeepsSecretsForTheNextAgent(t *testing.T) {
	state := t.TempDir()
	s := fileStore(state)
	must(t, s.Put("t1", 2, values))
	must(t, s.Put("t2", 1, wire.Secrets{}))
	requireValues(t, state, "t1", 2, values)
	requireValues(t, state, "t2", 1, wire.Secrets{})
	requireValues(t, state, "t1", 1, nil)
	must(t, s.Put("t1", 2, wire.Secrets{"PASSWORD": "changed"}))
	requireValues(t, state, "t1", 2, wire.Secrets{"PASSWORD": "changed"})
	must(t, s.Remove("t1", 2))
	must(t, s.Remove("t1", 2))
	requireValues(t, state, "t1", 2, nil)
	requireValues(t, state, "t2", 1, wire.Secrets{})
}

func TestStore_WritesNoPlainText(t *testing.T) {
	state := t.TempDir()
	must(t, fileStore(state).Put("t1", 1, values))
	files := 0
	must(t, filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == state {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
		}
		if d.IsDir() {
			return nil
		}
		files++
		if b, err := os.ReadFile(path); err != nil || bytes.Contains(b, []byte(password)) || bytes.Contains(b, []byte("PASSWORD")) {
			t.Errorf("%s contains the secret, %v", path, err)
		}
		return nil
	}))
	if files != 2 {
		t.Errorf("there are %d files, want the key and the secrets", files)
	}
}

func TestStore_DoesNotReadWhatWasChanged(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, state string){
		"secrets of another attempt": func(t *testing.T, state string) {
			must(t, os.Rename(fileStore(state).path("t1", 1), fileStore(state).path("t1", 2)))
		},
		"a changed byte": func(t *testing.T, state string) {
			editFile(t, fileStore(state).path("t1", 1), func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		},
		"half a file": func(t *testing.T, state string) {
			editFile(t, fileStore(state).path("t1", 1), func(b []byte) []byte { return b[:len(b)/2] })
		},
		"an empty file": func(t *testing.T, state string) {
			editFile(t, fileStore(state).path("t1", 1), func([]byte) []byte { return nil })
		},
		"another key": func(t *testing.T, state string) {
			editFile(t, filepath.Join(state, DirName, "key"), func(b []byte) []byte { b[0] ^= 1; return b })
		},
		"no key": func(t *testing.T, state string) { must(t, os.Remove(filepath.Join(state, DirName, "key"))) },
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			must(t, fileStore(state).Put("t1", 1, values))
			change(t, state)
			attempt := int32(1)
			if _, err := os.Stat(fileStore(state).path("t1", 1)); errors.Is(err, fs.ErrNotExist) {
				attempt = 2
			}
			if got, err := fileStore(state).Get("t1", attempt); err == nil || got != nil {
				t.Errorf("read %d values", len(got))
			}
		})
	}
}

func editFile(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, change(b), 0o600))
}

// A power cut may leave a key that was not written completely. What it has sealed is lost.
func TestStore_ReplacesAnUnusableKey(t *testing.T) {
	state := t.TempDir()
	must(t, fileStore(state).Put("t1", 1, values))
	editFile(t, filepath.Join(state, DirName, "key"), func(b []byte) []byte { return b[:3] })
	must(t, fileStore(state).Put("t2", 1, values))
	requireValues(t, state, "t2", 1, values)
}

func TestStore_SweepKeepsLiveAttempts(t *testing.T) {
	state := t.TempDir()
	s := fileStore(state)
	for attempt := range int32(3) {
		must(t, s.Put("a.b", attempt+1, values))
	}
	must(t, os.WriteFile(filepath.Join(state, DirName, "unknown.secrets"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(state, DirName, ".a.b.2.secrets-123456"), nil, 0o600)) // the power failed during a write
	must(t, s.Sweep(func(uid string, attempt int32) bool { return uid == "a.b" && attempt == 2 }))
	left, _ := filepath.Glob(filepath.Join(state, DirName, "*"))
	if len(left) != 2 || filepath.Base(left[0]) != "a.b.2.secrets" || filepath.Base(left[1]) != keyInFile {
		t.Errorf("left are %v", left)
	}
	requireValues(t, state, "a.b", 2, values)
	must(t, fileStore(t.TempDir()).Sweep(func(string, int32) bool { return true }))
}

// fileStore returns a store on a robot without a TPM.
func fileStore(state string) *Store { return storeWith(state, openNoTPM) }
