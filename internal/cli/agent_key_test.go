package cli

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
)

func TestAgentKey_SignsWhatItsPublicKeyVerifies(t *testing.T) {
	key := filepath.Join(t.TempDir(), "agent.key")
	var shown, manifest bytes.Buffer
	if err := makeAgentKey(&shown, key); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the private key: %v, %v", info.Mode(), err)
	}
	if err := makeAgentKey(&shown, key); err == nil {
		t.Error("an existing key is replaced")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := (agentKeySign{key: key, version: "v0.5.0"}).sign(&manifest, program); err != nil {
		t.Fatal(err)
	}
	m, err := agentupdate.Parse(manifest.Bytes())
	if err != nil || m.Version != "v0.5.0" || m.CheckPlatform(runtime.GOOS, runtime.GOARCH) != nil {
		t.Errorf("manifest %+v, %v", m, err)
	}
	public, err := agentupdate.ParsePublicKey(strings.TrimSpace(shown.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify([]ed25519.PublicKey{public}); err != nil {
		t.Error(err)
	}
}

func TestAgentKeySign_RefusesBadInput(t *testing.T) {
	dir := t.TempDir()
	key, script := filepath.Join(dir, "agent.key"), filepath.Join(dir, "script")
	if err := makeAgentKey(&bytes.Buffer{}, key); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		agentKeySign
		program string
	}{
		"--key and --version are required": {agentKeySign{key: key}, script},
		"--version: must be at most":       {agentKeySign{key, "a b"}, script},
		"--key: open":                      {agentKeySign{key + "2", "v1"}, script},
		"is not PEM":                       {agentKeySign{script, "v1"}, script},
		"is not a program for Linux":       {agentKeySign{key, "v1"}, script},
		"no such file":                     {agentKeySign{key, "v1"}, script + "2"},
	} {
		if err := c.sign(&bytes.Buffer{}, c.program); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
