package console

import (
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// newApp returns a handler that serves the web app. Paths that are not files are routes of the
// app and get its index page. If the app was not built, a page explains how to build it.
func newApp(dist fs.FS) http.Handler {
	files := http.FileServerFS(dist)
	start := "index.html"
	if _, err := fs.Stat(dist, start); err != nil {
		start = "unbuilt.html"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		is, err := fs.Stat(dist, name)
		switch {
		case err == nil && !is.IsDir() && strings.HasPrefix(name, "assets/"):
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable") // the file name contains a hash of the content
			files.ServeHTTP(w, r)
		case err == nil && !is.IsDir() && name != "index.html":
			files.ServeHTTP(w, r)
		case strings.HasPrefix(name, "assets/"):
			http.NotFound(w, r) // a file of an older version: the app reloads itself
		default:
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, dist, start)
		}
	})
}
