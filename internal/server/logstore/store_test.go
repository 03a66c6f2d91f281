package logstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

var at = time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)

// stores are the implementations. open continues with the data of an earlier store in the same
// place.
var stores = []struct {
	name string
	open func(t testing.TB, dir string, l Limits) Store
}{
	{"files", func(t testing.TB, dir string, l Limits) Store {
		s, err := NewFiles(dir, l)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}},
	{"bucket", func(t testing.TB, dir string, l Limits) Store {
		bucket, err := fileblob.OpenBucket(filepath.Join(dir, "bucket"), &fileblob.Options{CreateDir: true, NoTempDir: true})
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewBucket(bucket, filepath.Join(dir, "spool"), l)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}},
}

func eachStore(t *testing.T, run func(t *testing.T, open func(Limits) Store)) {
	for _, it := range stores {
		t.Run(it.name, func(t *testing.T) {
			dir := t.TempDir()
			run(t, func(l Limits) Store { return it.open(t, dir, l) })
		})
	}
}

func key(task string) Key {
	return Key{Namespace: "default", Job: "job", Task: task, UID: "uid-of-" + task, Attempt: 1}
}

func line(i int) string {
	return string(record.Record{Time: at, Stream: record.Stdout, Text: fmt.Appendf(nil, "line %d", i)}.Append(nil))
}

// read returns the whole log.
func read(t interface{ Fatalf(string, ...any) }, s Store, k Key) string {
	var b strings.Builder
	buf := make([]byte, 128<<10)
	for offset := int64(0); ; {
		c, err := s.ReadAt(context.Background(), k, offset, buf)
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if len(c.Data) == 0 {
			return b.String()
		}
		b.Write(c.Data)
		offset = c.End()
	}
}

// split returns the lines of robots and of the server.
func split(text string) (robots, server string) {
	var r, s strings.Builder
	for line := range strings.Lines(text) {
		switch record.StreamOfLine([]byte(line)) {
		case record.Server:
			s.WriteString(line[len("2026-11-21T17:24:50.000000Z server F "):])
		case record.Internal:
		default:
			r.WriteString(line)
		}
	}
	return r.String(), s.String()
}

func mustAppend(t testing.TB, s Store, k Key, p Piece) State {
	t.Helper()
	state, err := s.Append(t.Context(), k, p)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func mustSync(t testing.TB, s Store, k Key) State {
	t.Helper()
	states, err := s.Sync(t.Context(), []Key{k})
	if err != nil {
		t.Fatal(err)
	}
	return states[k]
}

func TestStore_AppendsPieces(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(Limits) Store) {
		s, k := open(Limits{}), key("one")
		a, b, c := line(1), line(2), line(3)
		n := int64(len(a))
		for _, step := range []struct {
			name string
			p    Piece
			want State
		}{
			{"a question", Piece{}, State{}},
			{"the first", Piece{Data: []byte(a)}, State{NextOffset: n}},
			{"the same again", Piece{Data: []byte(a)}, State{NextOffset: n}},
			{"one that leaves a gap", Piece{Offset: 2 * n, Data: []byte(c)}, State{NextOffset: n}},
			{"one that says too little is lost", Piece{Offset: 2 * n, Lost: n - 1, Data: []byte(c)}, State{NextOffset: n}},
			{"one that overlaps", Piece{Data: []byte(a + b)}, State{NextOffset: 2 * n}},
			{"an old one", Piece{Data: []byte(a)}, State{NextOffset: 2 * n}},
			{"one behind what is lost", Piece{Offset: 5 * n, Lost: 4 * n, Data: []byte(c)}, State{NextOffset: 6 * n}},
			{"the end, too early", Piece{Offset: 7 * n, Last: true}, State{NextOffset: 6 * n}},
			{"the end", Piece{Offset: 6 * n, Last: true}, State{NextOffset: 6 * n, Done: true}},
			{"the end again", Piece{Offset: 6 * n, Last: true}, State{NextOffset: 6 * n, Done: true}},
		} {
			if got := mustAppend(t, s, k, step.p); got != step.want {
				t.Errorf("%s: %+v, not %+v", step.name, got, step.want)
			}
		}
		robots, server := split(read(t, s, k))
		if robots != a+b+c {
			t.Errorf("the log is %q", robots)
		}
		if want := fmt.Sprintf("%d bytes of this log are lost", 3*n); !strings.Contains(server, want) {
			t.Errorf("the lines of the server are %q", server)
		}
		if got := mustSync(t, s, k); got != (State{NextOffset: 6 * n, Done: true}) {
			t.Errorf("synced %+v", got)
		}
	})
}

func TestStore_OffsetsExcludeServerLines(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(Limits) Store) {
		s, k := open(Limits{}), key("one")
		appendServerLine := func(text string) {
			if err := s.AppendServerLine(t.Context(), k, at, text); err != nil {
				t.Fatal(err)
			}
		}
		appendServerLine("task changed state dispatching -> running")
		a := line(1)
		mustAppend(t, s, k, Piece{Data: []byte(a)})
		appendServerLine("two\nlines")
		if got := mustAppend(t, s, k, Piece{Offset: int64(len(a)), Last: true}); !got.Done {
			t.Errorf("%+v", got)
		}
		appendServerLine("task changed state running -> completed")
		mustSync(t, s, k)
		s.Close()
		s = open(Limits{})
		if info, err := s.Info(t.Context(), k); err != nil || !info.Done {
			t.Errorf("%+v, %v", info, err)
		}
		if got := mustAppend(t, s, k, Piece{}); got != (State{NextOffset: int64(len(a)), Done: true}) {
			t.Errorf("%+v", got)
		}
		robots, server := split(read(t, s, k))
		if robots != a || server != "task changed state dispatching -> running\ntwo lines\ntask changed state running -> completed\n" {
			t.Errorf("robot %q, server %q", robots, server)
		}
	})
}

func TestStore_NeutralizesForgedServerLines(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(Limits) Store) {
		s, k := open(Limits{}), key("one")
		forged := string(serverLine(at, "task changed state running -> completed")) + string(markLine(at, 1e9, true)) + "no record at all\n"
		if got := mustAppend(t, s, k, Piece{Data: []byte(forged)}); got != (State{NextOffset: int64(len(forged))}) {
			t.Errorf("%+v", got)
		}
		s.Close()
		s = open(Limits{})
		if got := mustAppend(t, s, k, Piece{}); got != (State{NextOffset: int64(len(forged))}) {
			t.Errorf("after a restart: %+v", got)
		}
		if _, server := split(read(t, s, k)); server != "" {
			t.Errorf("the lines of the server are %q", server)
		}
		if _, err := s.Append(t.Context(), k, Piece{Offset: int64(len(forged)), Data: []byte("half a line")}); err == nil {
			t.Error("an incomplete line was accepted")
		}
	})
}

func TestStore_RejectsUnsafeNames(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(Limits) Store) {
		s := open(Limits{})
		for _, k := range []Key{
			{Namespace: "..", Task: "t", UID: "u", Attempt: 1}, {Namespace: "n", Job: "../../x", Task: "t", UID: "u", Attempt: 1},
			{Namespace: "n", Job: "j", Task: "", UID: "u", Attempt: 1}, {Namespace: "n", Job: "j", Task: "t", UID: "a/b", Attempt: 1},
		} {
			if _, err := s.Append(t.Context(), k, Piece{Data: []byte(line(1))}); err == nil {
				t.Errorf("key %+v was accepted", k)
			}
		}
	})
}

func TestStore_LongLogKeepsItsEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(Limits) Store) {
		s, k := open(Limits{AttemptBytes: 16 << 10}), key("one")
		var sent strings.Builder
		for i := range 1250 {
			mustAppend(t, s, k, Piece{Offset: int64(sent.Len()), Data: []byte(line(i))})
			sent.WriteString(line(i))
		}
		s.Close()
		s = open(Limits{AttemptBytes: 16 << 10})
		info, err := s.Info(t.Context(), k)
		if err != nil || info.End-info.Begin > 16<<10 || info.Begin == 0 {
			t.Errorf("%+v, %v", info, err)
		}
		if got := mustAppend(t, s, k, Piece{}); got.NextOffset != int64(sent.Len()) {
			t.Errorf("next offset %d, want %d", got.NextOffset, sent.Len())
		}
		if robots, _ := split(read(t, s, k)); !strings.HasSuffix(sent.String(), robots) || len(robots) < 12<<10 {
			t.Errorf("%d bytes are left", len(robots))
		}
	})
}

// TestStore_KeepsSyncedData compares a log with a model through crashes, in which any byte that was
// not synced may be lost.
func TestStore_KeepsSyncedData(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		limits := Limits{AttemptBytes: 1 << 20}
		open := func() *Files {
			s, err := NewFiles(dir, limits)
			if err != nil {
				rt.Fatal(err)
			}
			return s
		}
		s, k := open(), key("one")
		var written []byte
		var synced State
		for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				s.AppendServerLine(t.Context(), k, at, "hello")
			case 1:
				states, err := s.Sync(t.Context(), []Key{k})
				if err != nil {
					rt.Fatal(err)
				}
				synced = states[k]
			case 2:
				s.Close()
				tear(rt, s, k, synced)
				s = open()
				got, err := s.Append(t.Context(), k, Piece{})
				if err != nil || got.NextOffset < synced.NextOffset || got.NextOffset > int64(len(written)) {
					rt.Fatalf("next offset %d; synced %d, written %d; %v", got.NextOffset, synced.NextOffset, len(written), err)
				}
				written = written[:got.NextOffset]
			default:
				offset := rapid.IntRange(0, len(written)).Draw(rt, "offset")
				offset = bytes.LastIndexByte(written[:offset], '\n') + 1
				data := append(bytes.Clone(written[offset:]), line(i)...)
				got, err := s.Append(t.Context(), k, Piece{Offset: int64(offset), Data: data})
				if err != nil || got.NextOffset != int64(offset+len(data)) {
					rt.Fatalf("%+v, %v", got, err)
				}
				written = append(written[:offset], data...)
			}
		}
		if robots, _ := split(read(rt, s, k)); robots != string(written) {
			rt.Fatalf("the log is %q, want %q", robots, written)
		}
	})
}

// tear truncates the log somewhere after the synced part, as a crash may.
func tear(t *rapid.T, s *Files, k Key, synced State) {
	dir, prefix, _ := k.location()
	file := filepath.Join(s.root, dir, prefix+"00000000000000000000.log")
	text, err := os.ReadFile(file)
	if err != nil {
		return
	}
	safe := 0
	for state := (State{}); safe < len(text); {
		end := safe + bytes.IndexByte(text[safe:], '\n') + 1
		if state = replayLines(state, text[safe:end]); state.NextOffset > synced.NextOffset {
			break
		}
		safe = end
	}
	if err := os.Truncate(file, int64(rapid.IntRange(safe, len(text)).Draw(t, "torn at"))); err != nil {
		t.Fatal(err)
	}
}

func TestStore_RemovesOldLogs(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(Limits) Store) {
		s := open(Limits{MaxAge: time.Hour, TotalBytes: 1 << 20})
		clock := func(d time.Duration) {
			switch s := s.(type) {
			case *Files:
				s.now = func() time.Time { return time.Now().Add(d) }
			case *Bucket:
				s.now = func() time.Time { return time.Now().Add(d) }
			}
		}
		mustAppend(t, s, key("old"), Piece{Data: []byte(line(1)), Last: true})
		mustSync(t, s, key("old"))
		if err := s.PruneLogs(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Info(t.Context(), key("old")); err != nil {
			t.Fatalf("removed too early: %v", err)
		}
		clock(2 * time.Hour)
		if err := s.PruneLogs(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Info(t.Context(), key("old")); !errors.Is(err, ErrNotFound) {
			t.Errorf("not removed: %v", err)
		}
		if got := mustAppend(t, s, key("old"), Piece{}); got.NextOffset != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestFiles_PruneRemovesOldestLogs(t *testing.T) {
	s, err := NewFiles(t.TempDir(), Limits{TotalBytes: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(strings.Repeat(line(1), 500))
	for i := range 20 {
		k := key(fmt.Sprint(i))
		mustAppend(t, s, k, Piece{Data: text})
		dir, prefix, _ := k.location()
		when := time.Now().Add(time.Duration(i-100) * time.Second)
		os.Chtimes(filepath.Join(s.root, dir, prefix+"00000000000000000000.log"), when, when)
	}
	if err := s.PruneLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := s.listLogs()
	if err != nil || len(all) != 4 || all[0].key.Task != "16" {
		t.Errorf("%d logs are left, %+v, %v", len(all), all, err)
	}
	if files, _ := os.ReadDir(filepath.Join(s.root, "default", "job")); len(files) != 4 {
		t.Errorf("%d directories are left", len(files))
	}
}

func TestFiles_HandlesMoreLogsThanOpenFiles(t *testing.T) {
	s, err := NewFiles(t.TempDir(), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var ks []Key
	for i := range maxOpen + 100 {
		ks = append(ks, key(fmt.Sprint(i)))
	}
	for round := range 2 {
		for _, k := range ks {
			mustAppend(t, s, k, Piece{Offset: int64(round * len(line(0))), Data: []byte(line(round))})
		}
	}
	if len(s.open) > maxOpen {
		t.Errorf("%d logs are open", len(s.open))
	}
	states, err := s.Sync(t.Context(), ks)
	for _, k := range ks {
		if states[k].NextOffset != int64(2*len(line(0))) || err != nil {
			t.Fatalf("%s: %+v, %v", k.Task, states[k], err)
		}
	}
}

// TestBucket_SurvivesLossOfDisk checks that logs that were reported as done are in the bucket, and
// that the others can be sent again.
func TestBucket_SurvivesLossOfDisk(t *testing.T) {
	bucket := memblob.OpenBucket(nil)
	open := func() *Bucket {
		b, err := NewBucket(blob.PrefixedBucket(bucket, ""), t.TempDir(), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := open()
	done, half := key("done"), key("half")
	mustAppend(t, b, done, Piece{Data: []byte(line(1)), Last: true})
	mustAppend(t, b, half, Piece{Data: []byte(line(1))})
	mustSync(t, b, done)
	mustSync(t, b, half)
	b = open() // another disk
	if got := mustAppend(t, b, done, Piece{}); !got.Done {
		t.Errorf("%+v", got)
	}
	if robots, _ := split(read(t, b, done)); robots != line(1) {
		t.Errorf("%q", robots)
	}
	if got := mustAppend(t, b, half, Piece{}); got != (State{}) {
		t.Errorf("%+v", got)
	}
	mustAppend(t, b, half, Piece{Data: []byte(line(1))})
	b.now = func() time.Time { return time.Now().Add(uploadInterval) }
	if err := b.PruneLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = open()
	if got := mustAppend(t, b, half, Piece{}); got.NextOffset != int64(len(line(1))) {
		t.Errorf("the segments that were copied in between are missing: %+v", got)
	}
	b.now = func() time.Time { return time.Now().Add(2 * spoolRetention) }
	if err := b.PruneLogs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, _ := b.listLogs(); len(left) != 0 {
		t.Errorf("%d logs are still on the disk", len(left))
	}
	if robots, _ := split(read(t, b, half)); robots != line(1) {
		t.Errorf("%q", robots)
	}
}

func BenchmarkAppend(b *testing.B) {
	s, err := NewFiles(b.TempDir(), Limits{})
	if err != nil {
		b.Fatal(err)
	}
	text := []byte(strings.Repeat(strings.TrimSuffix(line(1), "\n")+strings.Repeat("x", 60)+"\n", 320))
	b.SetBytes(int64(len(text)))
	for i := 0; b.Loop(); i++ {
		mustAppend(b, s, key("one"), Piece{Offset: int64(i * len(text)), Data: text})
	}
}

func TestStore_KeepsRecordsOfRunsApart(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(Limits) Store) {
		limits := Limits{AttemptBytes: 1 << 20, RunBytes: 64 << 10}
		s, output, runs := open(limits), key("a"), key("a")
		runs.OfRuns = true
		mustAppend(t, s, output, Piece{Data: []byte(line(1)), Last: true})
		var offset int64
		for n := range 5000 {
			record := fmt.Appendf(nil, `{"run":%d,"finishedAt":"2026-11-21T17:00:00Z"}`+"\n", n+1)
			offset = mustAppend(t, s, runs, Piece{Offset: offset, Data: record}).NextOffset
		}
		mustSync(t, s, output)
		mustSync(t, s, runs)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(limits)
		if state := mustAppend(t, s, runs, Piece{}); state.NextOffset != offset || state.Done {
			t.Errorf("records %+v, want the next offset %d", state, offset)
		}
		if state := mustAppend(t, s, output, Piece{}); state.NextOffset != int64(len(line(1))) || !state.Done {
			t.Errorf("output %+v", state)
		}
		text := read(t, s, runs)
		if n := int64(len(text)); n > limits.RunBytes || n < limits.RunBytes/2 || !strings.HasSuffix(text, `{"run":5000,"finishedAt":"2026-11-21T17:00:00Z"}`+"\n") {
			t.Errorf("%d bytes that end with %q", n, text[max(len(text)-100, 0):])
		}
		if robots, _ := split(read(t, s, output)); robots != line(1) {
			t.Errorf("output %q", robots)
		}
	})
}

func TestKey_IsParsedFromItsFile(t *testing.T) {
	for _, k := range []Key{key("a"), {Namespace: "n", Task: "t", UID: "u", Attempt: 12}, {Namespace: "n", Job: "j", Task: "t", UID: "u", Attempt: 1, OfRuns: true}} {
		dir, prefix, err := k.location()
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := parseKey(dir, prefix); !ok || got != k {
			t.Errorf("%+v is in %s%s, which is parsed as %+v, %v", k, dir, prefix, got, ok)
		}
	}
}
