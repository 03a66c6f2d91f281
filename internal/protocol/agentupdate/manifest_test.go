package agentupdate

import (
	"crypto/ed25519"
	"strings"
	"testing"
)

func newTestKey(t *testing.T) (ed25519.PrivateKey, ed25519.PublicKey) {
	t.Helper()
	text, shown, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	private, err := ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ParsePublicKey(shown)
	if err != nil {
		t.Fatal(err)
	}
	return private, public
}

var unsigned = Manifest{Version: "v0.5.0", OS: "linux", Arch: "arm64", Size: 5, SHA256: strings.Repeat("0a", 32)}

func TestVerify_RefusesEachChange(t *testing.T) {
	private, public := newTestKey(t)
	_, other := newTestKey(t)
	signed := unsigned.Sign(private)
	if err := signed.Verify([]ed25519.PublicKey{other, public}); err != nil {
		t.Errorf("a manifest signed with the second key: %v", err)
	}
	for name, change := range map[string]func(*Manifest){
		"nothing":   func(*Manifest) {},
		"version":   func(m *Manifest) { m.Version = "v0.4.0" },
		"os":        func(m *Manifest) { m.OS = "freebsd" },
		"arch":      func(m *Manifest) { m.Arch = "amd64" },
		"size":      func(m *Manifest) { m.Size++ },
		"sha256":    func(m *Manifest) { m.SHA256 = strings.Repeat("0b", 32) },
		"signature": func(m *Manifest) { m.Signature = "A" + m.Signature[1:] },
		"no base64": func(m *Manifest) { m.Signature = "!" },
		"moved":     func(m *Manifest) { m.OS, m.Arch = m.OS+"\n"+m.Arch, "" },
	} {
		m := signed
		change(&m)
		if err := m.Verify([]ed25519.PublicKey{public}); (err == nil) != (name == "nothing") && m != signed {
			t.Errorf("changed %s: %v", name, err)
		}
	}
	if signed.Verify([]ed25519.PublicKey{other}) == nil || signed.Verify(nil) == nil {
		t.Error("a manifest is accepted without its key")
	}
}

func TestParse_NamesInvalidFields(t *testing.T) {
	private, _ := newTestKey(t)
	signed := unsigned.Sign(private)
	if m, err := Parse(signed.Encode()); err != nil || m != signed {
		t.Errorf("parsed %+v, %v", m, err)
	}
	for want, change := range map[string]func(*Manifest){
		"version:":   func(m *Manifest) { m.Version = "v 1" },
		"os:":        func(m *Manifest) { m.OS = "" },
		"arch:":      func(m *Manifest) { m.Arch = "arm\n64" },
		"size:":      func(m *Manifest) { m.Size = MaxProgram + 1 },
		"sha256:":    func(m *Manifest) { m.SHA256 = strings.ToUpper(m.SHA256) },
		"signature:": func(m *Manifest) { m.Signature = "" },
	} {
		m := signed
		change(&m)
		if _, err := Parse(m.Encode()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want one about %s", err, want)
		}
	}
	for name, text := range map[string]string{
		"unknown field": `{"version":"v1","force":true}`, "two": string(signed.Encode()) + "{}", "long": strings.Repeat(" ", MaxManifest+1), "empty": "",
	} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestParsePublicKey_RefusesOtherTexts(t *testing.T) {
	for _, text := range []string{"", "ed25519:", "ed25519:AAAA", "rsa:" + strings.Repeat("A", 43) + "=", strings.Repeat("A", 43) + "="} {
		if _, err := ParsePublicKey(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if _, err := ParsePrivateKey([]byte("key")); err == nil {
		t.Error("a text that is not PEM is accepted")
	}
}
