package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// The latest time counts, in whichever order the records are.
func TestJournal_KeepsTheLatestTime(t *testing.T) {
	dir, at := t.TempDir(), time.Unix(1700000000, 0).UTC()
	j, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !j.LastTime().IsZero() {
		t.Errorf("an empty journal ends at %s", j.LastTime())
	}
	for _, d := range []time.Duration{0, time.Hour, time.Minute} {
		if err := j.Append(Record{Kind: Accepted, UID: "t", Attempt: 1, At: at.Add(d)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if !j.LastTime().Equal(at.Add(time.Hour)) {
		t.Errorf("it ends at %s, want %s", j.LastTime(), at.Add(time.Hour))
	}
}

// The end of an attempt and a forgotten one leave no time of their own in the compacted file.
func TestJournal_KeepsTheLatestTimeWhenItIsCompacted(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	last := ended("a", 1)
	last.At = epoch.Add(time.Hour)
	gone := Record{Kind: Dropped, UID: "b", Attempt: 1, At: epoch.Add(2 * time.Hour)}
	add(t, j, accepted("a", 1), last, accepted("b", 1), gone)
	for range 2 {
		if err := j.compactFile(); err != nil {
			t.Fatal(err)
		}
		if !j.LastTime().Equal(gone.At) {
			t.Errorf("it ends at %s, want %s", j.LastTime(), gone.At)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open(t, dir, Options{})
		if !j.LastTime().Equal(gone.At) || len(j.Entries()) != 1 {
			t.Errorf("after compaction it ends at %s, with %+v; want %s, and attempt 1 of a", j.LastTime(), j.Entries(), gone.At)
		}
	}
}

func accepted(uid string, attempt int32) Record {
	return Record{Kind: Accepted, UID: uid, Attempt: attempt, At: epoch, Task: &wire.Task{Metadata: wire.TaskMeta{UID: uid, Name: "line\nend"}}}
}

func started(uid string, attempt int32) Record {
	return Record{Kind: Started, UID: uid, Attempt: attempt, At: epoch, Process: &Process{PID: 42, StartTicks: 99, BootID: "boot"}}
}

func ended(uid string, attempt int32) Record {
	return Record{Kind: Ended, UID: uid, Attempt: attempt, At: epoch, Status: &wire.Status{TaskUID: uid, Attempt: attempt, Seq: 2, State: wire.ReportCompleted}}
}

func acked(uid string, attempt int32, at time.Time) Record {
	return Record{Kind: Acked, UID: uid, Attempt: attempt, At: at}
}

func open(t testing.TB, dir string, o Options) *Journal {
	t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return epoch }
	}
	j, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func add(t testing.TB, j *Journal, recs ...Record) {
	t.Helper()
	if err := j.Append(recs...); err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sorted sorts entries for comparison.
func sorted(all []Entry) []Entry {
	slices.SortFunc(all, func(a, b Entry) int {
		return strings.Compare(fmt.Sprint(a.UID, a.Attempt), fmt.Sprint(b.UID, b.Attempt))
	})
	return all
}

func TestJournal_RestoresAttemptsWhenReopened(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	add(t, j, accepted("a", 1), started("a", 1))
	add(t, j, ended("a", 1), accepted("a", 2))
	add(t, j, acked("a", 1, epoch), ended("b", 1))
	want := sorted(j.Entries())
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(ended("c", 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Append to a closed journal = %v", err)
	}

	j = open(t, dir, Options{})
	if got := sorted(j.Entries()); !reflect.DeepEqual(got, want) {
		t.Errorf("after reopening\n%+v, want\n%+v", got, want)
	}
	if last, ok := j.Latest("a"); !ok || last.Attempt != 2 || last.HasEnded() || last.Task.Metadata.Name != "line\nend" {
		t.Errorf("Latest(a) = %+v, %v", last, ok)
	}
	if e, ok := j.Get("a", 1); !ok || !e.HasEnded() || !e.IsAcked() || e.Task != nil || e.Process != nil {
		t.Errorf("Get(a, 1) = %+v, %v; want ended, acked, and no task to run", e, ok)
	}
	if _, ok := j.Latest("nobody"); ok {
		t.Error("Latest knows a task that never was")
	}
}

func TestOpen_AcceptsEveryPrefixOfAJournal(t *testing.T) {
	var all []Record
	for i := range 3 {
		uid := fmt.Sprint("task", i)
		all = append(all, accepted(uid, 1), started(uid, 1), ended(uid, 1), acked(uid, 1, epoch))
	}
	checkEveryPrefix(t, all)
}

// checkEveryPrefix writes a journal and opens it as it is after each byte.
func checkEveryPrefix(t *testing.T, all []Record) {
	t.Helper()
	dir := t.TempDir()
	j := open(t, dir, Options{})
	histories, ends := [][]Entry{nil}, []int{0} // after each record
	for _, r := range all {
		add(t, j, r)
		histories, ends = append(histories, sorted(j.Entries())), append(ends, len(content(t, dir)))
	}
	whole := content(t, dir)
	for cut := range len(whole) + 1 {
		part := t.TempDir()
		if err := os.WriteFile(filepath.Join(part, fileName), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		records, _ := slices.BinarySearch(ends, cut+1)
		records--
		k := open(t, part, Options{})
		if got := sorted(k.Entries()); len(got)+len(histories[records]) > 0 && !reflect.DeepEqual(got, histories[records]) {
			t.Fatalf("cut at %d of %d: %+v, want the first %d records: %+v", cut, len(whole), got, records, histories[records])
		}
		if k.DamagedLines() != 0 {
			t.Fatalf("cut at %d: the torn end counts as %d damaged lines", cut, k.DamagedLines())
		}
		if cut%10 != 0 { // what follows costs syncs
			_ = k.Close()
			continue
		}
		add(t, k, ended("after", 1))
		_ = k.Close()
		if k = open(t, part, Options{}); k.DamagedLines() != 0 {
			t.Fatalf("cut at %d: what was appended after the repair spoilt the file", cut)
		}
		if _, ok := k.Get("after", 1); !ok {
			t.Fatalf("cut at %d: what was appended after the repair is lost", cut)
		}
		_ = k.Close()
	}
}

func TestOpen_SkipsDamagedLines(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	add(t, j, ended("a", 1), ended("b", 1), ended("c", 1))
	_ = j.Close()
	b := content(t, dir)
	line := len(b) / 3
	for offset := line; offset < 2*line; offset++ {
		bad := bytes.Clone(b)
		bad[offset] ^= 0x01
		part := t.TempDir()
		if err := os.WriteFile(filepath.Join(part, fileName), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		k := open(t, part, Options{})
		_, a := k.Get("a", 1)
		_, hurt := k.Get("b", 1)
		_, c := k.Get("c", 1)
		// Without its line end a line damages the next one, too.
		if last := offset == 2*line-1; !a || hurt || (!c && !last) || (k.DamagedLines() == 0 && !last) {
			t.Fatalf("bit flipped at %d: a %v, b %v, c %v, %d damaged", offset, a, hurt, c, k.DamagedLines())
		}
		_ = k.Close()
	}
}

func TestOpen_RejectsAnEarlierFormat(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	add(t, j, ended("a", 1), ended("b", 1))
	_ = j.Close()
	file := filepath.Join(dir, fileName)
	before := bytes.ReplaceAll(content(t, dir), []byte("\n"+version), []byte("\n"))
	before = append([]byte("a damaged line\n"), before[len(version):]...)
	if err := os.WriteFile(file, before, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, Options{})
	if !errors.Is(err, ErrOldFormat) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "k8s4r robot drain") {
		t.Errorf("Open: %v, want an error that names the file and what to do", err)
	}
	if after := content(t, dir); !bytes.Equal(after, before) {
		t.Error("the journal was changed")
	}
}

func TestOpen_RefusesJournalOfLaterVersion(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	add(t, j, ended("a", 1))
	_ = j.Close()
	old := content(t, dir)
	later := append([]byte("3 "), old[len(version):]...)
	for name, before := range map[string][]byte{"all lines": later, "appended lines": append(bytes.Clone(old), later...)} {
		if err := os.WriteFile(filepath.Join(dir, fileName), before, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{}); !errors.Is(err, ErrNewFormat) || !strings.Contains(err.Error(), fileName) {
			t.Errorf("%s: Open: %v", name, err)
		}
		if !bytes.Equal(content(t, dir), before) {
			t.Errorf("%s: the journal was changed", name)
		}
	}
	damaged := append(bytes.Clone(old), bytes.Replace(later, []byte("ended"), []byte("enced"), 1)...)
	if err := os.WriteFile(filepath.Join(dir, fileName), damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if j := open(t, dir, Options{}); len(j.Entries()) != 1 {
		t.Errorf("with a damaged line the journal has %d entries, want 1", len(j.Entries()))
	}
}

func TestOpen_SkipsALaterLineWithoutItsVersion(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	add(t, j, ended("a", 1), ended("b", 1), ended("c", 1))
	_ = j.Close()
	lines := bytes.SplitAfter(content(t, dir), []byte("\n"))
	lines[1] = lines[1][len(version):]
	if err := os.WriteFile(filepath.Join(dir, fileName), bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, Options{})
	_, b := j.Get("b", 1)
	if _, c := j.Get("c", 1); b || !c || j.DamagedLines() != 1 {
		t.Errorf("b %v, c %v, %d damaged lines; want c alone, and one damaged line", b, c, j.DamagedLines())
	}
}

func TestAppend_SharesSyncs(t *testing.T) {
	const writers, each = 50, 20
	j := open(t, t.TempDir(), Options{})
	j.flushing.Lock() // as if the sync of an earlier append took long
	var done sync.WaitGroup
	for w := range writers {
		done.Go(func() {
			for i := range each {
				if err := j.Append(accepted(fmt.Sprintf("%d-%d", w, i), 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for waiting := 0; waiting < writers; time.Sleep(time.Millisecond) {
		j.mu.Lock()
		waiting = len(j.gathering.recs)
		j.mu.Unlock()
	}
	j.flushing.Unlock()
	done.Wait()
	if n := len(j.Entries()); n != writers*each {
		t.Errorf("%d entries, want %d", n, writers*each)
	}
	if most := uint64(1 + writers*(each-1)); j.syncs > most {
		t.Errorf("%d syncs for %d appends, of which %d waited for the first sync; want at most %d", j.syncs, writers*each, writers, most)
	}
}

func TestAppend_SyncsOnlyDurableRecords(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	add(t, j, accepted("a", 1))
	add(t, j, ended("a", 1))
	if j.syncs != 2 {
		t.Errorf("%d syncs after accepted and ended, want 2", j.syncs)
	}
	add(t, j, started("a", 1))
	add(t, j, acked("a", 1, epoch))
	add(t, j)
	if j.syncs != 2 {
		t.Errorf("%d syncs after started and acked, want no more than 2", j.syncs)
	}
}

func TestJournal_ForgetsOldAcknowledgedAttempts(t *testing.T) {
	now := epoch
	var forgotten []string
	dir := t.TempDir()
	o := Options{Now: func() time.Time { return now }, Forget: func(e Entry) { forgotten = append(forgotten, e.UID) }}
	j := open(t, dir, o)
	add(t, j, ended("acked", 1), acked("acked", 1, epoch), ended("unacked", 1), accepted("alive", 1))

	now = epoch.Add(keepAcked)
	add(t, j, accepted("later", 1))
	if len(forgotten) != 0 {
		t.Errorf("forgot %v before a day was over", forgotten)
	}
	now = epoch.Add(keepAcked + 2*forgetInterval)
	add(t, j, accepted("latest", 1))
	if !slices.Equal(forgotten, []string{"acked"}) {
		t.Errorf("forgot %v, want only what the server has written down", forgotten)
	}
	_ = j.Close()
	if _, ok := open(t, dir, o).Get("acked", 1); ok {
		t.Error("reopening brought back what was forgotten")
	}
}

func TestJournal_CompactsTheFile(t *testing.T) {
	dir := t.TempDir()
	dropped := 0
	j := open(t, dir, Options{Forget: func(Entry) { dropped++ }})
	const n = 25_000
	var largest int64
	for i := range n {
		uid := fmt.Sprintf("11111111-2222-3333-4444-%012d", i)
		r := []Record{ended(uid, 1), acked(uid, 1, epoch.Add(time.Duration(i)))}
		// Many in one append, to avoid thousands of syncs.
		j.index.applyRecord(r[0])
		lines, err := encodeRecords(r)
		if err != nil {
			t.Fatal(err)
		}
		if i%100 != 0 {
			if _, err := j.file.Write(linesOf(j, lines)); err != nil {
				t.Fatal(err)
			}
			j.index.applyRecord(r[1])
			continue
		}
		add(t, j, r...)
		largest = max(largest, j.size)
	}
	if kept := len(j.Entries()); kept < maxAcked || kept > 2*maxAcked+1000 || kept+dropped != n {
		t.Errorf("%d kept and %d forgotten of %d, want %d or some more kept", kept, dropped, n, maxAcked)
	}
	if _, ok := j.Get(fmt.Sprintf("11111111-2222-3333-4444-%012d", n-1), 1); !ok {
		t.Error("the youngest entry is forgotten")
	}
	if largest > 16<<20 || largest < compactFloor {
		t.Errorf("the file grew to %d bytes", largest)
	}
	want := sorted(j.Entries())
	_ = j.Close()
	j = open(t, dir, Options{})
	if got := sorted(j.Entries()); j.DamagedLines() != 0 || len(got) < maxAcked || !reflect.DeepEqual(got[len(got)-1], want[len(want)-1]) {
		t.Errorf("reopened: %d entries and %d damaged lines, want %d and 0", len(got), j.DamagedLines(), len(want))
	}
	if _, err := os.Stat(filepath.Join(dir, fileName+".new")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the rewritten file was left behind: %v", err)
	}
}

func linesOf(j *Journal, recs []encodedRecord) []byte {
	var b []byte
	for _, r := range recs {
		b = formatLine(b, j.next, r.payload)
		j.next++
	}
	j.size += int64(len(b))
	return b
}

func TestAppend_DropsRecordsOfFailedWrite(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	add(t, j, ended("before", 1))
	good := j.file
	readOnly, err := os.Open(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	j.file = readOnly
	if err := j.Append(ended("refused", 1)); err == nil || errors.Is(err, ErrBroken) {
		t.Errorf("Append = %v, want an error that may be tried again", err)
	}
	if _, ok := j.Get("refused", 1); ok {
		t.Error("a record that was not written counts")
	}
	j.file = good
	_ = readOnly.Close()
	// The rest of the failed write, which could not be truncated at once.
	if _, err := good.WriteString("half a li"); err != nil {
		t.Fatal(err)
	}
	add(t, j, ended("after", 1))
	_ = j.Close()
	j = open(t, dir, Options{})
	if _, ok := j.Get("after", 1); !ok || j.DamagedLines() != 0 {
		t.Errorf("after: %v, %d damaged lines", ok, j.DamagedLines())
	}
}

func TestAppend_FailsForeverAfterFailedSync(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	r, w, err := os.Pipe() // takes writes, and no sync
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	good := j.file
	j.file = w
	if err := j.Append(ended("a", 1)); !errors.Is(err, ErrBroken) {
		t.Errorf("Append = %v, want ErrBroken", err)
	}
	j.file = good
	_ = w.Close()
	if err := j.Append(ended("b", 1)); !errors.Is(err, ErrBroken) {
		t.Errorf("Append after a failed sync = %v, want ErrBroken", err)
	}
}

func TestAppend_RejectsOversizedRecord(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	r := ended("a", 1)
	r.Status.Message = strings.Repeat("x", maxPayload)
	if err := j.Append(r); err == nil {
		t.Error("Append took a record that recovery would pass over")
	}
	// The largest message, with each byte escaped as six.
	r.Status.Message = strings.Repeat("<", wire.MaxPayload)
	add(t, j, r)
}

func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	j := open(f, dir, Options{})
	add(f, j, accepted("a", 1), started("a", 1), ended("a", 1), acked("a", 1, epoch))
	f.Add(content(f, dir))
	f.Add([]byte("\n\n"))
	f.Add(bytes.TrimPrefix(content(f, dir), []byte(version))) // begins with a line of format 1
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(dir, Options{Now: func() time.Time { return epoch }})
		if errors.Is(err, ErrOldFormat) || errors.Is(err, ErrNewFormat) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Close() })
		before := len(j.Entries())
		add(t, j, ended("a fresh one", 9))
		_ = j.Close()
		if after := len(open(t, dir, Options{}).Entries()); after < before || after > before+1 {
			t.Errorf("%d entries, then one appended, then %d", before, after)
		}
	})
}

func BenchmarkAppendByFifty(b *testing.B) {
	j := open(b, b.TempDir(), Options{})
	b.SetParallelism(25) // times two processors
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := j.Append(accepted("a", 1)); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(j.syncs)/float64(b.N), "syncs/op")
}
