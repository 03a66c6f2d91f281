package keyfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAKeyIsItsOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	key, text, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second replaces the first
		if err := Write(path, text); err != nil {
			t.Fatal(err)
		}
	}
	read, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadKey(read); err != nil || !got.Equal(key) {
		t.Errorf("it reads back as another key: %v", err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestWhatIsNoCertificate(t *testing.T) {
	for _, text := range []string{"", "text", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if _, err := Certificates([]byte(text)); err == nil {
			t.Errorf("%q passes", text)
		}
	}
	if _, err := ReadKey([]byte("text")); err == nil {
		t.Error("text passes for a key")
	}
}
