package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
)

const listed = `[
{"name":"react","version":"19.3.1","license":"MIT"},
{"name":"@xyflow/react","version":"12.12.1","license":"(MIT OR Apache-2.0)"}
]
`

// put writes a file into a directory of the test.
func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPages_PackagesOnlyOfProgramsThatEmbedThem(t *testing.T) {
	dir := t.TempDir()
	p, err := readPages(put(t, dir, "packages.json", listed))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		program, code string
		want          int
	}{
		{"console", "code\x00" + listed + "\x00more code", 2},
		{"older", "code\x00" + listed[:len(listed)-10] + "\x00more code", 0},
		{"agent", "code", 0},
	} {
		got, err := p.in(put(t, dir, test.program, test.code))
		if err != nil || len(got) != test.want {
			t.Errorf("%s carries %v (%v), want %d packages", test.program, got, err, test.want)
		}
	}
}

func TestPages_NoPackagesWithoutList(t *testing.T) {
	dir := t.TempDir()
	p, err := readPages(filepath.Join(dir, "packages.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.in(put(t, dir, "console", "code")); err != nil || len(got) != 0 {
		t.Errorf("it carries %v (%v), and no pages were built", got, err)
	}
}

func TestWrite_RejectsUnusedPackages(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// Not the constant: this test is a program that contains it.
	list := put(t, dir, "packages.json", `[{"name":"react","version":"`+filepath.Base(dir)+`","license":"MIT"}]`)
	if err := write(list, dir, []string{self}); err == nil {
		t.Error("no error, but the programs were built before the pages")
	}
}

func TestBill_ListsComponents(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.0", Deps: []*debug.Module{{Path: "example.org/m", Version: "v1.0.0", Sum: "h1:x"}}}
	dir := t.TempDir()
	p, err := readPages(put(t, dir, "packages.json", listed))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range *bill("console", info, p.packages).Components {
		line := c.PackageURL
		if c.Licenses != nil {
			for _, l := range *c.Licenses {
				line += " " + l.Expression
				if l.License != nil {
					line += l.License.ID
				}
			}
		}
		got = append(got, line)
	}
	want := []string{
		"pkg:golang/std@go1.26.0", "pkg:golang/example.org/m@v1.0.0",
		"pkg:npm/%40xyflow/react@12.12.1 (MIT OR Apache-2.0)", "pkg:npm/react@19.3.1 MIT",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
