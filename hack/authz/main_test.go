package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSumFigures(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("topics-embedded", `{"topic_cells":300,"leaks":0}`)
	write("topics-mosquitto", `{"topic_cells":20,"leaks":1}`)
	write("topics-anonymous", `{}`)
	write("fields", `{"field_cells":500,"leaks":2}`)
	if _, err := sumFigures(dir); err == nil || !strings.Contains(err.Error(), "the tests of privileges have recorded nothing") {
		t.Errorf("one is missing: %v", err)
	}
	write("privileges", `{"field_cells":30,"leaks":0}`)
	if got, err := sumFigures(dir); err != nil || got != (figures{320, 530, 3}) {
		t.Errorf("%+v, %v", got, err)
	}
}
