// The program sbom writes, for each program that was built with Go, what is linked into
// it: a bill of materials in CycloneDX beside it, out of what the linker has recorded.
package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom DIRECTORY PROGRAM...")
		os.Exit(2)
	}
	for _, program := range os.Args[2:] {
		if err := write(os.Args[1], program); err != nil {
			fmt.Fprintln(os.Stderr, "sbom:", err)
			os.Exit(1)
		}
	}
}

func write(dir, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	name := filepath.Base(program)
	f, err := os.Create(filepath.Join(dir, name+".cdx.json"))
	if err != nil {
		return err
	}
	err = cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bill(name, info))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// bill has the program, the modules in it, and the version of Go that it was built with.
func bill(name string, info *buildinfo.BuildInfo) *cyclonedx.BOM {
	parts := []cyclonedx.Component{{Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" + info.GoVersion}}
	for _, m := range info.Deps {
		parts = append(parts, component(m))
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: name, Version: info.Main.Version,
		PackageURL: "pkg:golang/" + info.Path,
	}}
	bom.Components = &parts
	return bom
}

func component(m *debug.Module) cyclonedx.Component {
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
