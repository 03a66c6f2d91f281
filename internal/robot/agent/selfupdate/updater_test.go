package selfupdate

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
)

// fixture is an Updater of an agent that may update itself, and a version for it.
type fixture struct {
	config   Config
	request  Request
	key      ed25519.PrivateKey
	program  string
	switched int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{key: private, program: filepath.Join(dir, "program")}
	content := []byte("program v2")
	if err := os.WriteFile(f.program, content, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	m := agentupdate.Manifest{Version: "v2", OS: runtime.GOOS, Arch: runtime.GOARCH, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	f.request = Request{Manifest: m.Sign(private), Source: FileSource(f.program), By: "a test"}
	f.config = Config{
		Store: slots.Open(dir), Launcher: f.program, Running: "v1", IsOnTrial: func() bool { return false },
		ReadKeys:     func() ([]ed25519.PublicKey, error) { return []ed25519.PublicKey{public}, nil },
		CheckContact: func() error { return nil }, CheckSpace: func(int64) error { return nil },
		Switch: func() { f.switched++ }, Log: slog.New(slog.DiscardHandler),
	}
	return f
}

// resign signs the manifest after a change.
func (f *fixture) resign(change func(*agentupdate.Manifest)) {
	change(&f.request.Manifest)
	f.request.Manifest = f.request.Manifest.Sign(f.key)
}

func TestRequest_StagesAVersionAndSwitches(t *testing.T) {
	f := newFixture(t)
	u := New(f.config)
	switchOver, err := u.Request(context.Background(), f.request)
	if err != nil {
		t.Fatal(err)
	}
	if f.switched != 0 {
		t.Error("the agent ends before its answer")
	}
	switchOver()
	state, _, err := f.config.Store.Load()
	if err != nil || f.switched != 1 || state.Phase != slots.Trying || state.Active != slots.SlotA {
		t.Errorf("switched %d times, %+v, %v", f.switched, state, err)
	}
	if info, err := os.Stat(f.config.Store.Program(slots.SlotA)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the program in the slot: %v, %v", info, err)
	}
	if _, err := u.Request(context.Background(), f.request); !errors.Is(err, ErrBusy) {
		t.Errorf("a second update while the agent ends: %v", err)
	}
}

func TestRequest_RefusesAndLeavesTheAgentAsItWas(t *testing.T) {
	failing := func(text string) func() error { return func() error { return errors.New(text) } }
	for want, change := range map[string]func(*fixture){
		"update.publicKeys: the policy file of the robot has no key": func(f *fixture) {
			f.config.ReadKeys = func() ([]ed25519.PublicKey, error) { return nil, nil }
		},
		"policy: broken": func(f *fixture) {
			f.config.ReadKeys = func() ([]ed25519.PublicKey, error) { return nil, errors.New("policy: broken") }
		},
		"signature: it was not made": func(f *fixture) { f.request.Manifest.Version = "v3" },
		"os, arch:":                  func(f *fixture) { f.resign(func(m *agentupdate.Manifest) { m.Arch = "mips" }) },
		"version: the agent runs":    func(f *fixture) { f.config.Running = "v2" },
		"from: must be":              func(f *fixture) { f.request.Source = "ftp://host/program" },
		"is on trial itself":         func(f *fixture) { f.config.IsOnTrial = func() bool { return true } },
		"no contact":                 func(f *fixture) { f.config.CheckContact = failing("no contact") },
		"on hold":                    func(f *fixture) { f.config.MayUpdate = failing("on hold") },
		"disk is full":               func(f *fixture) { f.config.CheckSpace = func(int64) error { return errors.New("disk is full") } },
		"fetch version v2: sha256 is": func(f *fixture) {
			f.resign(func(m *agentupdate.Manifest) { m.SHA256 = strings.Repeat("00", 32) })
		},
		"is larger than":                      func(f *fixture) { f.resign(func(m *agentupdate.Manifest) { m.Size-- }) },
		"size:":                               func(f *fixture) { f.resign(func(m *agentupdate.Manifest) { m.Size++ }) },
		"no such file":                        func(f *fixture) { f.request.Source += "2" },
		"the installed program, which starts": func(f *fixture) { f.config.Launcher += "2" },
	} {
		f := newFixture(t)
		change(f)
		u := New(f.config)
		switchOver, err := u.Request(context.Background(), f.request)
		if err == nil || !strings.Contains(err.Error(), want) || switchOver != nil {
			t.Errorf("error %v, want %s", err, want)
		}
		if _, exists, err := f.config.Store.Load(); exists || err != nil {
			t.Errorf("%s: there is a state of the slots, %v", want, err)
		}
		if _, err := u.Request(context.Background(), f.request); errors.Is(err, ErrBusy) {
			t.Errorf("%s: the next update is refused: %v", want, err)
		}
	}
}

// TestRequest_AsksAgainAfterTheTransfer begins a hold while the version is fetched.
func TestRequest_AsksAgainAfterTheTransfer(t *testing.T) {
	f := newFixture(t)
	isHeld := false
	f.config.CheckSpace = func(int64) error { isHeld = true; return nil }
	f.config.MayUpdate = func() error {
		if isHeld {
			return errors.New("on hold")
		}
		return nil
	}
	if _, err := New(f.config).Request(context.Background(), f.request); err == nil || err.Error() != "on hold" {
		t.Errorf("error %v", err)
	}
	if _, exists, _ := f.config.Store.Load(); exists {
		t.Error("the version is on trial nevertheless")
	}
}

// TestRequest_EndsWithItsContext cancels a request after the transfer.
func TestRequest_EndsWithItsContext(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(context.Background())
	checks := 0
	f.config.MayUpdate = func() error {
		if checks++; checks == 2 {
			cancel()
		}
		return nil
	}
	if _, err := New(f.config).Request(ctx, f.request); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, exists, _ := f.config.Store.Load(); exists {
		t.Error("the version is on trial nevertheless")
	}
}
