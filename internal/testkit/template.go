package testkit

import (
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	// systemCount counts the systems that this process has started.
	systemCount atomic.Int32
	// template is an archive of the data directory of a control plane that was started once. It has
	// no name, so that it ends with the process. Nil before it is needed, or if it could not be made.
	template     *os.File
	templateOnce sync.Once
)

// UseTemplateAlways makes also the first system start from the template, for a process that starts
// many and has no test of a first start.
func UseTemplateAlways() { systemCount.Store(1) }

// fillDataDir extracts the template into a new data directory, which halves the processor time of a
// start. The first system of a process is left as a first start, unless UseTemplateAlways was called.
func fillDataDir(t testing.TB, dir string) {
	t.Helper()
	if systemCount.Add(1) == 1 {
		return
	}
	templateOnce.Do(func() { template = makeTemplate(t) })
	if template == nil {
		return
	}
	info, err := template.Stat()
	if err != nil {
		t.Fatal(err)
	}
	extract := exec.Command("tar", "-C", dir, "-xf", "-")
	extract.Stdin = io.NewSectionReader(template, 0, info.Size())
	if out, err := extract.CombinedOutput(); err != nil {
		t.Fatalf("extract the data directory: %v\n%s", err, out)
	}
}

// makeTemplate starts a control plane, stops it, and archives its data directory.
func makeTemplate(t testing.TB) *os.File {
	t.Helper()
	dir := makeDataDir(t)
	defer os.RemoveAll(dir)
	u := &Up{t: t, DataDir: dir, args: ControlPlaneOnly}
	u.Start()
	u.Stop()
	file, err := os.CreateTemp("", "k8s4r-template-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file.Name()); err != nil {
		t.Fatal(err)
	}
	archive := exec.Command("tar", "-C", dir, "--sparse", "--exclude=./logs", "--exclude=./up.json", "-cf", "-", ".")
	archive.Stdout = file
	if err := archive.Run(); err != nil {
		t.Fatalf("archive the data directory: %v", err)
	}
	return file
}
