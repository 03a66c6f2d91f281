package hostnode

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPodPaths(t *testing.T) {
	p := podPaths("/data/pods/uid-1")
	d := p.attemptPath("web", 12)
	for got, want := range map[string]string{
		p.volumeDir("cache"):  "/data/pods/uid-1/volumes/cache",
		p.hostsFile():         "/data/pods/uid-1/hosts",
		p.addressFile():       "/data/pods/uid-1/ip",
		string(d):             "/data/pods/uid-1/containers/web/12",
		d.shimDir():           "/data/pods/uid-1/containers/web/12/shim",
		d.logsDir():           "/data/pods/uid-1/containers/web/12/logs",
		d.workDir():           "/data/pods/uid-1/containers/web/12/work",
		d.terminationFile():   "/data/pods/uid-1/containers/web/12/termination-log",
		d.delayFile():         "/data/pods/uid-1/containers/web/12/delay",
		d.cgroupName("uid-1"): "uid-1-web-12",
	} {
		if got != want {
			t.Errorf("path is %s, want %s", got, want)
		}
	}
}

func TestPodPaths_ListAttempts(t *testing.T) {
	p := podPaths(t.TempDir())
	if got := p.listAttempts("web"); len(got) != 0 {
		t.Errorf("without a directory: %v", got)
	}
	for _, name := range []string{"web/10", "web/9", "web/2", "web/lost+found", "db/1"} {
		if err := os.MkdirAll(filepath.Join(string(p), "containers", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := p.listAttempts("web"), []int{2, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("runs are %v, want %v", got, want)
	}
}

func TestPodPaths_ListShims(t *testing.T) {
	p := podPaths(t.TempDir())
	if got := p.listShims(); len(got) != 0 {
		t.Errorf("of a new pod: %v", got)
	}
	want := []attemptDir{p.attemptPath("db", 0), p.attemptPath("web", 0), p.attemptPath("web", 1)}
	for _, d := range want {
		if err := os.MkdirAll(d.shimDir(), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(p.volumeDir("cache"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := p.listShims(); !slices.Equal(got, want) {
		t.Errorf("shims are %v, want %v", got, want)
	}
}
