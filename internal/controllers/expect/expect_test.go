package expect

import (
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

func TestSet(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	logged := ""
	s := New(func() time.Time { return now }, funcr.New(func(_, args string) { logged = args }, funcr.Options{}))

	s.Create("o", "a")
	s.Create("o", "b")
	s.Created("o", "b")
	if got := s.Creating("o"); len(got) != 1 || !got["a"] {
		t.Errorf("creating %v", got)
	}
	if logged != "" {
		t.Errorf("logged %s", logged)
	}
	now = now.Add(Lifetime)
	if got := s.Creating("o"); len(got) != 0 || logged == "" {
		t.Errorf("creating %v after its lifetime, logged %q", got, logged)
	}
	s.Create("o", "c")
	s.Forget("o")
	if got := s.Creating("o"); len(got) != 0 || len(s.owners) != 0 {
		t.Errorf("creating %v of an owner that is gone", got)
	}
}

func TestDeletes(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	logged := ""
	s := New(func() time.Time { return now }, funcr.New(func(_, args string) { logged = args }, funcr.Options{}))
	s.Create("o", "a")
	s.Delete("o", "u1")
	s.Delete("o", "u2")
	s.Deleted("o", "u1")
	if got := s.Deleting("o"); len(got) != 1 || !got["u2"] {
		t.Errorf("deleting %v", got)
	}
	s.Created("o", "a")
	if got := s.Deleting("o"); len(got) != 1 {
		t.Errorf("deleting %v after what was created has shown", got)
	}
	now = now.Add(Lifetime)
	if got := s.Deleting("o"); len(got) != 0 || len(s.owners) != 0 || logged == "" {
		t.Errorf("deleting %v after its lifetime, logged %q", got, logged)
	}
}

func TestStale(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := New(func() time.Time { return now }, funcr.New(func(_, _ string) {}, funcr.Options{}))
	s.Wrote("o", "10")
	if !s.Stale("o", "9") {
		t.Error("a cache that does not show our write is not stale")
	}
	if s.Stale("o", "10") || s.Stale("o", "9") || len(s.versions) != 0 {
		t.Error("a cache that showed our write is stale")
	}
	s.Wrote("o", "100")
	if !s.Stale("o", "99") {
		t.Error("versions are compared as text")
	}
	now = now.Add(Lifetime)
	if s.Stale("o", "99") {
		t.Error("an expectation lives for ever")
	}
}
