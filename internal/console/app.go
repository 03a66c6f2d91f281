package console

import (
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// newApp serves the pages of the web app. Every address that is no file is the app's own: it
// knows what is there. Where it was not built, the one page says how to.
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
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable") // its name has a hash of it
			files.ServeHTTP(w, r)
		case err == nil && !is.IsDir() && name != "index.html":
			files.ServeHTTP(w, r)
		case strings.HasPrefix(name, "assets/"):
			http.NotFound(w, r) // of an older version: the app loads itself anew
		default:
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, dist, start)
		}
	})
}
