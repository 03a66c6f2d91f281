package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/standalone/internal/controlplane"
	"k8s4r.io/k8s4r/standalone/internal/datadir"
)

var moment = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func at() time.Time { return moment }

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// filesIn returns the files below a directory, with their content, without those of etcd.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := walkFiles(dir, dir, func(name string) error {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if !strings.HasPrefix(name, "etcd/") && name != datadir.LockFile {
			found[name] = string(content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// shortDir returns a directory whose path leaves room for the name of a Unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "k8s4r-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// newData returns a data directory with one object, keys, a history and logs.
func newData(t *testing.T) string {
	t.Helper()
	dir := shortDir(t)
	withObjects(t, dir, func(c *clientv3.Client) {
		if _, err := c.Put(t.Context(), "/registry/object", "kept"); err != nil {
			t.Fatal(err)
		}
	})
	writeFiles(t, dir, map[string]string{
		"pki/ca.key": "secret", "pki/ca.crt": "ca", "pki/robots/ca.key": "robots", "pki/.half-written": "x",
		"robots/robot-1/identity/key.pem": "its key", "robots/robot-1/journal": "what it ran",
		"tasklogs/default/job/one.log": "output", "kubeconfig": "made at the start",
	})
	store, err := archive.Open("sqlite:" + filepath.Join(dir, partHistory))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Check(t.Context()), store.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// withObjects runs the etcd of a data directory.
func withObjects(t *testing.T, dir string, do func(*clientv3.Client)) {
	t.Helper()
	stop, endpoint, err := controlplane.RunObjects(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: time.Minute, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	do(c)
	if err := errors.Join(c.Close(), stop()); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, dir string, logs bool) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup.tar.gz")
	if _, err := Create(t.Context(), CreateOptions{DataDir: dir, File: file, IncludeLogs: logs, Now: at}); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRestore_BringsBackWhatWasBackedUp(t *testing.T) {
	data := newData(t)
	file := create(t, data, true)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file with the keys: %v, %v", info, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	next := filepath.Join(shortDir(t), "next")
	res, err := Restore(RestoreOptions{File: file, DataDir: next, Now: at})
	if err != nil {
		t.Fatal(err)
	}
	if res.State != (State{Epoch: 1, AwaitsRobots: true, BackupAt: moment, RestoredAt: moment}) || res.MovedTo != "" {
		t.Errorf("result %+v", res)
	}
	got := filesIn(t, next)
	for name, want := range map[string]string{
		"pki/ca.key": "secret", "pki/ca.crt": "ca", "pki/robots/ca.key": "robots", "robots/robot-1/identity/key.pem": "its key", "tasklogs/default/job/one.log": "output",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
		delete(got, name)
	}
	if left := slices.Sorted(maps.Keys(got)); !slices.Equal(left, []string{partHistory, stateFile}) {
		t.Errorf("other files: %v", left)
	}
	store, err := archive.Open("sqlite:" + filepath.Join(next, partHistory))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Check(t.Context()), store.Close()); err != nil {
		t.Errorf("history: %v", err)
	}
	withObjects(t, next, func(c *clientv3.Client) {
		r, err := c.Get(t.Context(), "/registry/object")
		if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "kept" {
			t.Fatalf("objects: %v, %v", r, err)
		}
		if r.Header.Revision < 1_000_000_000 {
			t.Errorf("revision %d: clients have seen later ones", r.Header.Revision)
		}
	})
}

func TestCreate_LeavesOutLogs(t *testing.T) {
	next := filepath.Join(shortDir(t), "next")
	if _, err := Restore(RestoreOptions{File: create(t, newData(t), false), DataDir: next, Now: at}); err != nil {
		t.Fatal(err)
	}
	if got := filesIn(t, next); got["tasklogs/default/job/one.log"] != "" {
		t.Error("logs are included without --logs")
	}
}

func TestRestore_MovesTheOldDirectoryAside(t *testing.T) {
	data := newData(t)
	file := create(t, data, false)
	writeFiles(t, data, map[string]string{"pki/ca.key": "newer", "robots/robot-1/journal": "what it ran since", "node/pod": "what it runs"})

	before := filesIn(t, data)
	if _, err := Restore(RestoreOptions{File: file, DataDir: data, Now: at}); err == nil || !strings.Contains(err.Error(), "--replace") {
		t.Fatalf("a directory with data: %v", err)
	}
	if !maps.Equal(filesIn(t, data), before) {
		t.Fatal("a refused restore has changed the directory")
	}
	res, err := Restore(RestoreOptions{File: file, DataDir: data, Replace: true, Now: at})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(res.MovedTo) })
	if got := filesIn(t, data); got["pki/ca.key"] != "secret" || got["robots/robot-1/journal"] != "what it ran since" || got["node/pod"] != "what it runs" {
		t.Errorf("restored %v", got)
	}
	if got := filesIn(t, res.MovedTo); got["pki/ca.key"] != "newer" {
		t.Errorf("moved aside: %v", got)
	}
	// The same backup again: its epoch must not be used a second time.
	again, err := Restore(RestoreOptions{File: file, DataDir: data, Replace: true, Now: func() time.Time { return moment.Add(time.Hour) }})
	if err != nil || again.State.Epoch != 2 {
		t.Errorf("epoch %d, %v; want 2", again.State.Epoch, err)
	}
	os.RemoveAll(again.MovedTo)
}

// TestFinishRestore_AfterAKill kills a restore after the exchange of the directories: the next program
// finds what the robots of this machine ran.
func TestFinishRestore_AfterAKill(t *testing.T) {
	data := newData(t)
	file := create(t, data, false)
	writeFiles(t, data, map[string]string{"robots/robot-1/journal": "what it ran since", "node/pod": "what it runs"})
	old, err := openOld(data, true)
	if err != nil {
		t.Fatal(err)
	}
	next := data + ".next"
	t.Cleanup(func() { os.RemoveAll(next) })
	if err := os.Mkdir(next, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := fillDir(next, old, RestoreOptions{File: file, DataDir: data, Now: at}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(old.exchangeWith(next), old.dir.Close()); err != nil {
		t.Fatal(err)
	}

	for range 2 { // the second time there is nothing to do
		if err := FinishRestore(data); err != nil {
			t.Fatal(err)
		}
		got := filesIn(t, data)
		if got["pki/ca.key"] != "secret" || got["robots/robot-1/journal"] != "what it ran since" || got["node/pod"] != "what it runs" {
			t.Errorf("restored %v", got)
		}
	}
	if s, err := ReadState(data); err != nil || s.MachinePartsIn != "" || s.Epoch != 1 {
		t.Errorf("state %+v, %v", s, err)
	}
}

func TestRestore_RefusesADirectoryInUse(t *testing.T) {
	data := newData(t)
	file := create(t, data, false)
	held, err := datadir.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := Restore(RestoreOptions{File: file, DataDir: data, Replace: true, Now: at}); !errors.Is(err, datadir.ErrHeld) {
		t.Errorf("%v", err)
	}
}

// TestRestore_RefusesDamage changes each part of a backup in turn. Nothing may be touched then.
func TestRestore_RefusesDamage(t *testing.T) {
	file := create(t, newData(t), false)
	entries := readEntries(t, file)
	parent := shortDir(t)
	target := filepath.Join(parent, "data")
	writeFiles(t, target, map[string]string{"pki/ca.key": "the current one"})
	refuse := func(what string, damaged []entry) {
		t.Helper()
		bad := filepath.Join(t.TempDir(), "bad.tar.gz")
		writeEntries(t, bad, damaged)
		refuseFile(t, what, bad, target)
	}
	for i, e := range entries {
		changed := slices.Clone(entries)
		changed[i].content = append(slices.Clone(e.content), 'x')
		if e.name != manifestName {
			refuse(e.name+" is changed", changed)
		}
		refuse(e.name+" is missing", slices.Delete(slices.Clone(entries), i, i+1))
	}
	for _, name := range []string{"../escape", "pki/../../escape", "/etc/passwd", "up.json", "pki", "unknown/file"} {
		refuse("a file "+name, append([]entry{{name, []byte("x")}}, entries...))
	}
	refuse("a newer format", replaceManifest(t, entries, func(m *Manifest) { m.Format = format + 1 }))
	refuse("too many restores", replaceManifest(t, entries, func(m *Manifest) { m.Epoch = 1 << 20 }))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 10, len(whole) / 2, len(whole) - 1} {
		cut := filepath.Join(t.TempDir(), "cut.tar.gz")
		if err := os.WriteFile(cut, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		refuseFile(t, fmt.Sprintf("cut after %d bytes", n), cut, target)
	}
	if left, _ := os.ReadDir(parent); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func refuseFile(t *testing.T, what, file, target string) {
	t.Helper()
	if _, err := Restore(RestoreOptions{File: file, DataDir: target, Replace: true, Now: at}); err == nil {
		t.Errorf("%s: restored", what)
	}
	if got := filesIn(t, target); len(got) != 1 || got["pki/ca.key"] != "the current one" {
		t.Fatalf("%s: the directory has changed: %v", what, got)
	}
}

type entry struct {
	name    string
	content []byte
}

func readEntries(t *testing.T, file string) (all []entry) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		one, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{h.Name, one})
	}
}

func writeEntries(t *testing.T, file string, all []entry) {
	t.Helper()
	w, err := newWriter(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if err := w.addBytes(e.name, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
}

func replaceManifest(t *testing.T, entries []entry, edit func(*Manifest)) []entry {
	t.Helper()
	entries = slices.Clone(entries)
	last := &entries[len(entries)-1]
	var m Manifest
	if err := json.Unmarshal(last.content, &m); err != nil {
		t.Fatal(err)
	}
	edit(&m)
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	last.content = text
	return entries
}

func TestCreate_FailsWithoutChangingAnEarlierFile(t *testing.T) {
	data := newData(t)
	file := create(t, data, false)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Create(ctx, CreateOptions{DataDir: data, File: file, Now: at}); err == nil {
		t.Error("backed up although it was interrupted")
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Error("the earlier backup is gone")
	}
	if _, err := Create(t.Context(), CreateOptions{DataDir: t.TempDir(), File: file, Now: at}); !errors.Is(err, errNoObjects) {
		t.Errorf("a directory without objects: %v", err)
	}
}
