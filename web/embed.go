// Package web embeds the console's pages, which Vite builds from the sources in this folder.
package web

import (
	"embed"
	"io/fs"
)

// dist always contains unbuilt.html, so that Go compiles without Node.
//
//go:embed all:dist
var dist embed.FS

// Dist returns the build: index.html, icon.svg, packages.json (the bundled npm packages), and
// assets/, whose file names contain a hash of the content, so that browsers may cache them forever.
// If the pages are not built, it contains only unbuilt.html, with instructions.
func Dist() fs.FS {
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // a programming error: the path is constant
	}
	return sub
}

// Built reports whether Dist contains the console's pages.
func Built() bool {
	_, err := fs.Stat(Dist(), "index.html")
	return err == nil
}
