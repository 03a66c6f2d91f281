package localstate

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func TestStore_KeepsState(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Read(); !reflect.DeepEqual(*got, wire.LocalState{}) {
		t.Errorf("at first it has %+v", got)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	want := wire.LocalState{
		StoppedTasks: []wire.StoppedTask{{UID: "u", Namespace: "n", Name: "t", Attempt: 3, By: "alice (uid 1000)", Since: at}},
		Maintenance:  &wire.Maintenance{ID: "1", By: "bob (uid 1001)", Reason: "arm", Since: at},
	}
	if err := s.Write(want); err != nil {
		t.Fatal(err)
	}
	next, err := Open(dir)
	if err != nil || !reflect.DeepEqual(*next.Read(), want) || !reflect.DeepEqual(*s.Read(), want) {
		t.Errorf("the next agent has %+v, %v", next, err)
	}
}

func TestStore_RefusesDamagedFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	if err := os.WriteFile(path, []byte(`{"maintenance":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), path+" is damaged; remove it") {
		t.Error(err)
	}
}

func TestStore_ReadsOlderFilesAndRefusesLaterOnes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	if err := os.WriteFile(path, []byte(`{"maintenance":{"id":"1","reason":"arm"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir); err != nil || s.Read().Maintenance.Reason != "arm" {
		t.Errorf("a file without a format: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"format":2,"maintenance":{"id":"1","reason":"arm"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrNewFormat) || !strings.Contains(err.Error(), path) {
		t.Errorf("a file of a later version: %v", err)
	}
}

func TestStore_StaysAsItWasIfItCannotBeWritten(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.path = filepath.Join(s.path, "missing", "local.json")
	if err := s.Write(wire.LocalState{Maintenance: &wire.Maintenance{}}); err == nil || s.Read().Maintenance != nil {
		t.Errorf("error %v, state %+v", err, s.Read())
	}
}
