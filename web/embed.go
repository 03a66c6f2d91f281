// Package web carries the console's pages, as Vite has built them from the sources beside this file.
package web

import (
	"embed"
	"io/fs"
)

// dist holds one page that says what to do where nothing was built, so that Go compiles without Node.
//
//go:embed all:dist
var dist embed.FS

// Dist is what was built: index.html, icon.svg, assets/, whose names carry a hash of what is in them, so that browsers
// may keep them for good, and packages.json, the npm packages that are bundled into them. Where nothing was built it has only unbuilt.html, which says how to.
func Dist() fs.FS {
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // cannot be: the name is a valid one
	}
	return sub
}

// Built tells whether Dist has the console's pages.
func Built() bool {
	_, err := fs.Stat(Dist(), "index.html")
	return err == nil
}
