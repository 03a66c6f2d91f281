package kit

import (
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

func TestExpectations_PendingCreates(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	logged := ""
	s := NewExpectations(func() time.Time { return now }, funcr.New(func(_, args string) { logged = args }, funcr.Options{}))

	s.ExpectCreate("o", "a")
	s.ExpectCreate("o", "b")
	s.ObserveCreate("o", "b")
	if got := s.PendingCreates("o"); len(got) != 1 || !got["a"] {
		t.Errorf("creating %v", got)
	}
	if logged != "" {
		t.Errorf("logged %s", logged)
	}
	now = now.Add(ExpectationLifetime)
	if got := s.PendingCreates("o"); len(got) != 0 || logged == "" {
		t.Errorf("creating %v after its lifetime, logged %q", got, logged)
	}
	s.ExpectCreate("o", "c")
	s.ForgetOwner("o")
	if got := s.PendingCreates("o"); len(got) != 0 || len(s.owners) != 0 {
		t.Errorf("creating %v of a forgotten owner", got)
	}
}

func TestExpectations_PendingDeletes(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	logged := ""
	s := NewExpectations(func() time.Time { return now }, funcr.New(func(_, args string) { logged = args }, funcr.Options{}))
	s.ExpectCreate("o", "a")
	s.ExpectDelete("o", "u1")
	s.ExpectDelete("o", "u2")
	s.ObserveDelete("o", "u1")
	if got := s.PendingDeletes("o"); len(got) != 1 || !got["u2"] {
		t.Errorf("deleting %v", got)
	}
	s.ObserveCreate("o", "a")
	if got := s.PendingDeletes("o"); len(got) != 1 {
		t.Errorf("deleting %v after the create was observed", got)
	}
	now = now.Add(ExpectationLifetime)
	if got := s.PendingDeletes("o"); len(got) != 0 || len(s.owners) != 0 || logged == "" {
		t.Errorf("deleting %v after its lifetime, logged %q", got, logged)
	}
}

func TestExpectations_IsStale(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := NewExpectations(func() time.Time { return now }, funcr.New(func(_, _ string) {}, funcr.Options{}))
	s.RecordWrite("o", "10")
	if !s.IsStale("o", "9") {
		t.Error("a version before our write is not stale")
	}
	if s.IsStale("o", "10") || s.IsStale("o", "9") || len(s.versions) != 0 {
		t.Error("the version that we wrote is stale")
	}
	s.RecordWrite("o", "100")
	if !s.IsStale("o", "99") {
		t.Error("versions are compared as strings")
	}
	now = now.Add(ExpectationLifetime)
	if s.IsStale("o", "99") {
		t.Error("an expectation never expires")
	}
}
