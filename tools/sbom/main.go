// The program sbom writes, for each program that was built with Go, what it is made of: a
// bill of materials in CycloneDX, out of what the linker has recorded. A program may also
// carry pages for browsers, into which npm packages are bundled.
package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	list := flag.String("pages", "", "the list of the npm packages in the pages, as the build of the pages wrote it; none if there is no such file")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom [-pages FILE] DIRECTORY PROGRAM...")
		os.Exit(2)
	}
	if err := write(*list, flag.Arg(0), flag.Args()[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(list, dir string, programs []string) error {
	p, err := readPages(list)
	if err != nil {
		return err
	}
	carried := false
	for _, program := range programs {
		bundled, err := p.in(program)
		if err != nil {
			return err
		}
		carried = carried || len(bundled) > 0
		if err := writeOne(dir, program, bundled); err != nil {
			return err
		}
	}
	if !carried && len(p.packages) > 0 {
		return fmt.Errorf("no program contains the pages that %s describes: build the programs again", list)
	}
	return nil
}

func writeOne(dir, program string, bundled []npmPackage) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	name := filepath.Base(program)
	f, err := os.Create(filepath.Join(dir, name+".cdx.json"))
	if err != nil {
		return err
	}
	err = cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bill(name, info, bundled))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// npmPackage is one that is bundled into the pages.
type npmPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// License by its SPDX identifier, or an expression of several.
	License string `json:"license"`
}

// pages are what the console shows in browsers. The zero value has none.
type pages struct {
	list     []byte
	packages []npmPackage
}

// readPages reads the list that the build of the pages has written. No file: nothing was built.
func readPages(file string) (p pages, err error) {
	p.list, err = os.ReadFile(file)
	if file == "" || errors.Is(err, fs.ErrNotExist) {
		return pages{}, nil
	}
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(p.list, &p.packages); err != nil {
		return p, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// in are the packages that a program carries. Who embeds the pages embeds the list that lies
// among them too: it is found in the program byte for byte, or it is not of these pages.
func (p pages) in(program string) ([]npmPackage, error) {
	if len(p.list) == 0 {
		return nil, nil
	}
	code, err := os.ReadFile(program)
	if err != nil || !bytes.Contains(code, p.list) {
		return nil, err
	}
	return p.packages, nil
}

// bill has the program, the version of Go that it was built with, the modules in it, and the
// npm packages, each of them in order.
func bill(name string, info *buildinfo.BuildInfo, bundled []npmPackage) *cyclonedx.BOM {
	parts := []cyclonedx.Component{{Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" + info.GoVersion}}
	for _, m := range info.Deps {
		parts = append(parts, module(m))
	}
	var npm []cyclonedx.Component
	for _, p := range bundled {
		npm = append(npm, p.component())
	}
	slices.SortFunc(npm, func(a, b cyclonedx.Component) int { return strings.Compare(a.PackageURL, b.PackageURL) })
	parts = append(parts, npm...)
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: name, Version: info.Main.Version,
		PackageURL: "pkg:golang/" + info.Path,
	}}
	bom.Components = &parts
	return bom
}

func module(m *debug.Module) cyclonedx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, Name: m.Path, Version: m.Version, PackageURL: purl}
	if m.Sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}

// component names a package as npm does; a scope's @ is escaped in a package URL.
func (p npmPackage) component() cyclonedx.Component {
	scope, name, scoped := strings.Cut(p.Name, "/")
	path := p.Name
	if scoped {
		path = url.QueryEscape(scope) + "/" + name
	}
	purl := "pkg:npm/" + path + "@" + p.Version
	c := cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, Name: p.Name, Version: p.Version, PackageURL: purl}
	switch {
	case p.License == "":
	case strings.ContainsAny(p.License, " ("): // MIT OR Apache-2.0
		c.Licenses = &cyclonedx.Licenses{{Expression: p.License}}
	default:
		c.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: p.License}}}
	}
	return c
}
