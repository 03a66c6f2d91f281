package web

import (
	"io/fs"
	"strings"
	"testing"
)

func TestAnUnbuiltConsoleSaysWhatToDo(t *testing.T) {
	page, err := fs.ReadFile(Dist(), "unbuilt.html")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "make web") {
		t.Error("unbuilt.html does not name make web")
	}
}

func TestABuiltConsoleKeepsToItsOwnFiles(t *testing.T) {
	if !Built() {
		t.Log("not built: index.html is not there, which Built says")
		return
	}
	page, err := fs.ReadFile(Dist(), "index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, never := range []string{"http://", "https://", "<script>", "onload="} {
		if strings.Contains(string(page), never) {
			t.Errorf("index.html has %q: the Content-Security-Policy stops it, and robots' sites are offline", never)
		}
	}
}
