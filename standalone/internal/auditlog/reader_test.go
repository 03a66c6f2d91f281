package auditlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"k8s4r.io/k8s4r/internal/archive"
)

// nextDay is after all events.
var nextDay = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// bench is an audit log and an archive.
type bench struct {
	*testing.T
	dir   string
	store *flakyStore
	n     int
}

// flakyStore is an archive that may be down.
type flakyStore struct {
	*archive.Store
	down bool
}

func (s *flakyStore) RecordActions(ctx context.Context, all []archive.Action, p *archive.AuditPosition) error {
	if s.down {
		return errors.New("down")
	}
	return s.Store.RecordActions(ctx, all, p)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	store, err := archive.Open("sqlite:"+filepath.Join(t.TempDir(), "history.db"), archive.WithClock(func() time.Time { return nextDay }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &bench{T: t, dir: t.TempDir(), store: &flakyStore{Store: store}}
}

func (b *bench) newReader() *Reader {
	r := NewReader(b.dir, b.store, slog.New(slog.NewTextHandler(io.Discard, nil)))
	b.Cleanup(r.closeFile)
	return r
}

func (b *bench) nextEvent() string {
	b.n++
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id-%d","stage":"ResponseComplete","requestURI":"/apis/x","verb":"patch","user":{"username":"anna"},`+
		`"objectRef":{"resource":"jobs","namespace":"default","name":"j","apiGroup":"robot.k8s4r.io","apiVersion":"v1alpha1"},"responseStatus":{"metadata":{},"code":200},`+
		`"requestReceivedTimestamp":"2026-11-24T12:00:00.%06dZ"}`+"\n", b.n, b.n)
}

// write appends text to the current file.
func (b *bench) write(text string) {
	b.Helper()
	f, err := os.OpenFile(filepath.Join(b.dir, fileName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		b.Fatal(err)
	}
}

// rotate renames the current file as the API server does. It creates no new one.
func (b *bench) rotate(name string) {
	b.Helper()
	if err := os.Rename(filepath.Join(b.dir, fileName), filepath.Join(b.dir, "audit-"+name+".log")); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) read(r *Reader) {
	b.Helper()
	if err := r.readAvailable(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// expect compares the ids in the archive, the first action first.
func (b *bench) expect(numbers ...int) {
	b.Helper()
	var want, got []string
	for _, n := range numbers {
		want = append(want, fmt.Sprint("id-", n))
	}
	p, err := b.store.ListActions(b.Context(), archive.ActionFilter{Limit: archive.MaxLimit})
	if err != nil {
		b.Fatal(err)
	}
	for i := len(p.Items) - 1; i >= 0; i-- {
		got = append(got, p.Items[i].ID)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		b.Errorf("recorded %q, want %q", got, want)
	}
}

func TestReader_FollowsRotations(t *testing.T) {
	b := newBench(t)
	r := b.newReader()
	b.read(r) // there is no log yet
	b.write(b.nextEvent())
	b.read(r)
	b.expect(1)
	b.write(b.nextEvent())
	b.rotate("1")
	b.read(r) // there is no new file yet
	b.write(b.nextEvent())
	b.rotate("2")
	b.write(b.nextEvent())
	b.read(r)
	b.expect(1, 2, 3, 4)
}

func TestReader_ContinuesAfterRestarts(t *testing.T) {
	b := newBench(t)
	b.write(b.nextEvent() + b.nextEvent())
	b.read(b.newReader())
	b.write(b.nextEvent())
	b.rotate("1")
	b.write(b.nextEvent())
	b.rotate("2")
	b.write(b.nextEvent())
	r := b.newReader()
	b.read(r)
	b.expect(1, 2, 3, 4, 5)
	if at, err := b.store.FindAuditPosition(t.Context(), b.dir); err != nil || at != r.position {
		t.Errorf("%+v, %v; want %+v", at, err, r.position)
	}
}

// TestReader_RereadsNothing removes what was read from the archive: it must not come back.
func TestReader_RereadsNothing(t *testing.T) {
	b := newBench(t)
	b.write(b.nextEvent() + b.nextEvent())
	b.read(b.newReader())
	if got, err := b.store.Prune(t.Context(), archive.Retention{Age: time.Hour}); err != nil || got.Actions != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	b.rotate("1")
	b.write(b.nextEvent())
	b.read(b.newReader())
	b.expect(3)
}

func TestReader_WaitsForTheArchive(t *testing.T) {
	b := newBench(t)
	r := b.newReader()
	b.store.down = true
	b.write(b.nextEvent())
	if err := r.readAvailable(t.Context()); err == nil {
		t.Error("no error")
	}
	b.rotate("1")
	b.write(b.nextEvent())
	b.store.down = false
	b.read(r)
	b.expect(1, 2)
}

func TestReader_SkipsWhatAKillLeft(t *testing.T) {
	b := newBench(t)
	r := b.newReader()
	whole := b.nextEvent()
	b.write(whole[:100])
	b.read(r)
	b.write(b.nextEvent()) // after the restart, in the same line
	b.write(strings.Repeat("x", 3*chunkBytes) + "\n")
	b.write(b.nextEvent())
	b.write(b.nextEvent()[:50])
	b.rotate("1")
	b.write(b.nextEvent())
	b.read(r)
	b.expect(2, 3, 5)
}

func TestReader_ContinuesWithTheOldestAfterAGap(t *testing.T) {
	b := newBench(t)
	b.write(b.nextEvent())
	b.read(b.newReader())
	if err := os.Remove(filepath.Join(b.dir, fileName)); err != nil {
		t.Fatal(err)
	}
	b.write(b.nextEvent())
	b.rotate("1")
	b.write(b.nextEvent())
	b.read(b.newReader())
	b.expect(1, 2, 3)
}

// TestReader_KeepsUpWithTheWriter uses the rotation of the API server while the log is read.
func TestReader_KeepsUpWithTheWriter(t *testing.T) {
	b := newBench(t)
	log := &lumberjack.Logger{Filename: filepath.Join(b.dir, fileName), MaxSize: 1}
	defer log.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.newReader().Run(ctx) }()
	const events = 6000 // more than two files
	for range events {
		if _, err := log.Write([]byte(b.nextEvent())); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		n := b.count()
		if n == events {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("%d of %d are recorded", n, events)
		case <-tick.C:
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func (b *bench) count() (n int) {
	b.Helper()
	for f := (archive.ActionFilter{Limit: archive.MaxLimit}); ; {
		p, err := b.store.ListActions(b.Context(), f)
		if err != nil {
			b.Fatal(err)
		}
		n += len(p.Items)
		if f.Cursor = p.Next; f.Cursor == "" {
			return n
		}
	}
}
