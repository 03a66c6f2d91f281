package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// bench is a repository with a commit, built programs and a key.
type bench struct {
	*testing.T
	dir, key, public, out string
}

// newBench builds one tiny program, with a module of this repository as its only dependency, under the name of
// each program.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, dir: t.TempDir()}
	keys := t.TempDir()
	b.key, b.public, b.out = filepath.Join(keys, "release.key"), filepath.Join(keys, "release.pub"), filepath.Join(keys, "out")
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := encodePublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	b.write(b.key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	b.write(b.public, string(text))
	t.Chdir(b.dir)
	b.write("go.mod", "module example.com/tiny\n\ngo 1.26\n")
	b.write("main.go", "package main\n\nfunc main() { println(\"tiny\") }\n")
	b.write(".gitignore", "/bin/\n")
	b.run("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", "bin/k8s4r", ".")
	program, err := os.ReadFile("bin/k8s4r")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		b.write("bin/"+name, string(program))
	}
	b.run("git", "init", "-q")
	b.run("git", "add", ".")
	b.run("git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "tiny: start")
	return b
}

func (b *bench) write(path, text string) {
	b.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) run(name string, args ...string) string {
	b.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		b.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// release runs the command and returns what it printed.
func (b *bench) release(args ...string) (int, string) {
	b.Helper()
	var out bytes.Buffer
	status := runRelease(append([]string{"-out", b.out}, args...), &out, &out, func() time.Time { return noon })
	return status, out.String()
}

func (b *bench) makeRelease() {
	b.Helper()
	notes := filepath.Join(b.TempDir(), "notes.txt")
	b.write(notes, "notes\n")
	if status, out := b.release("-key", b.key, "-version", "v1", notes); status != 0 {
		b.Fatal(out)
	}
}

// TestRelease makes one release, because compression takes long under the race detector.
func TestRelease(t *testing.T) {
	b := newBench(t)
	b.makeRelease()
	for name, test := range map[string]func(*bench){
		"verifies with openssl":             (*bench).testOpenSSL,
		"provenance names commit and build": (*bench).testProvenance,
		"fails on each changed byte":        (*bench).testChangedBytes,
		"equal programs, equal archives":    (*bench).testEqualArchives,
	} {
		t.Run(name, func(t *testing.T) {
			inSubtest := *b
			inSubtest.T = t
			test(&inSubtest)
		})
	}
}

func (b *bench) testChangedBytes() {
	if status, out := b.release("-verify", "-key", b.public); status != 0 || !strings.Contains(out, "3 files of v1 are signed, built from git+https://k8s4r.io/k8s4r@"+b.run("git", "rev-parse", "HEAD")) {
		b.Errorf("%d %s", status, out)
	}
	files, err := os.ReadDir(b.out)
	if err != nil || len(files) != 6 {
		b.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if f.Name() == publicKeyFile {
			continue // users have their own
		}
		path := filepath.Join(b.out, f.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		for _, at := range []int{0, len(data) / 2, len(data) - 1} {
			changed := bytes.Clone(data)
			changed[at] ^= 1
			b.write(path, string(changed))
			if status, out := b.release("-verify", "-key", b.public); status != 1 {
				b.Errorf("byte %d of %s: %s", at, f.Name(), out)
			}
		}
		b.write(path, string(data))
	}
	other := newBench(b.T)
	if status, out := b.release("-verify", "-key", other.public); status != 1 || !strings.Contains(out, "has not signed") {
		b.Errorf("another key: %d %s", status, out)
	}
}

// testOpenSSL runs the commands of docs/how-to/install.md.
func (b *bench) testOpenSSL() {
	if _, err := exec.LookPath("openssl"); err != nil {
		b.Skip("no openssl here")
	}
	b.Chdir(b.out)
	b.run("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", b.public, "-rawin", "-in", sumsFile, "-sigfile", signatureFile)
	b.run("sha256sum", "--check", "--strict", sumsFile)
	b.run("tar", "-tzf", "k8s4r-v1-"+b.run("go", "env", "GOOS")+"-"+b.run("go", "env", "GOARCH")+".tar.gz")
}

func (b *bench) testProvenance() {
	text, err := os.ReadFile(filepath.Join(b.out, provenanceFile))
	if err != nil {
		b.Fatal(err)
	}
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		b.Fatal(err)
	}
	payload, err := base64.StdEncoding.DecodeString(e.Payload)
	if err != nil {
		b.Fatal(err)
	}
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		b.Fatal(err)
	}
	d := s.Predicate.BuildDefinition
	commit := b.run("git", "rev-parse", "HEAD")
	if e.PayloadType != payloadType || s.Type != statementType || s.PredicateType != predicateType ||
		d.ExternalParameters["version"] != "v1" || d.InternalParameters["go"] != b.run("go", "env", "GOVERSION") || d.InternalParameters["-trimpath"] != "true" ||
		d.ResolvedDependencies[0].Digest["gitCommit"] != commit || !s.Predicate.RunDetails.Metadata.StartedOn.Equal(noon) {
		b.Errorf("%s", payload)
	}
}

func (b *bench) testEqualArchives() {
	if testing.Short() {
		b.Skip("makes a second release")
	}
	first, err := os.ReadFile(filepath.Join(b.out, sumsFile))
	if err != nil {
		b.Fatal(err)
	}
	b.makeRelease()
	second, err := os.ReadFile(filepath.Join(b.out, sumsFile))
	if err != nil || !bytes.Equal(first, second) {
		b.Errorf("%v\n%s\n%s", err, first, second)
	}
}

func TestRelease_RefusesWhatItCannotVouchFor(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"no key", "RELEASE_KEY", []string{"-version", "v1"}},
		{"a public key", "has no PRIVATE KEY", []string{"-version", "v1", "-key", b.public}},
		{"no version", "-version", []string{"-key", b.key}},
		{"a version with a slash", "-version", []string{"-key", b.key, "-version", "a/b"}},
		{"no programs", "run make build", []string{"-key", b.key, "-version", "v1", "-bin", "nowhere"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if status, out := b.release(c.args...); status != 1 || !strings.Contains(out, c.want) {
				t.Errorf("%d %s", status, out)
			}
		})
	}
	b.write("main.go", "package main\n\nfunc main() {}\n")
	if status, out := b.release("-key", b.key, "-version", "v1"); status != 1 || !strings.Contains(out, "has changes") {
		t.Errorf("a changed source: %d %s", status, out)
	}
}
