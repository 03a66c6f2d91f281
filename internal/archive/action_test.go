package archive_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/archive"
)

func actionAt(minute int, namespace, user, id string) archive.Action {
	return archive.Action{
		ID: id, At: noon.Add(time.Duration(minute) * time.Minute), User: user, Verb: "patch", Kind: archive.Job,
		Namespace: namespace, NamespaceUID: "ns-" + namespace, Name: "a", UID: "u", Did: "pause", Code: 200,
	}
}

// ids lists the ids that a filter finds, over all pages.
func (s *suite) actionIDs(f archive.ActionFilter) string {
	s.Helper()
	var ids []string
	for {
		p, err := s.ListActions(s.ctx, f)
		if err != nil {
			s.Fatal(err)
		}
		for _, a := range p.Items {
			ids = append(ids, a.ID)
		}
		if f.Cursor = p.Next; f.Cursor == "" {
			return strings.Join(ids, " ")
		}
	}
}

func recordsActions(s *suite) {
	whole := actionAt(0, "a", "anna\x00", "1")
	whole.Impersonator = "root"
	position := archive.AuditPosition{Log: "/data/audit", File: "x", Offset: 7}
	if err := s.RecordActions(s.ctx, []archive.Action{whole, actionAt(1, "a", "bob", "2"), actionAt(1, "b", "bob", "3")}, &position); err != nil {
		s.Fatal(err)
	}
	changed := actionAt(9, "a", "mallory", "1")
	if err := s.RecordActions(s.ctx, []archive.Action{changed}, nil); err != nil {
		s.Fatal(err)
	}
	if got := s.actionIDs(archive.ActionFilter{Limit: 1}); got != "3 2 1" {
		s.Errorf("all: %s", got)
	}
	p, err := s.ListActions(s.ctx, archive.ActionFilter{Namespaces: []string{"a"}, User: "anna\uFFFD"})
	whole.User = "anna\uFFFD"
	if err != nil || len(p.Items) != 1 || p.Items[0] != whole {
		s.Errorf("%+v, %v; want %+v", p.Items, err, whole)
	}
	for want, f := range map[string]archive.ActionFilter{
		"2 1":   {Namespaces: []string{"a"}},
		"3":     {NamespaceUID: "ns-b"},
		"3 2":   {User: "bob", Kinds: []archive.Kind{archive.Job, archive.Robot}, Name: "a"},
		"1":     {Until: noon.Add(time.Minute)},
		"3 2 ":  {Since: noon.Add(time.Minute)},
		"":      {Namespaces: []string{}},
		" ":     {Kinds: []archive.Kind{}},
		"    ":  {Name: "other"},
		"     ": {Kinds: []archive.Kind{archive.Robot}},
	} {
		if got := s.actionIDs(f); got != strings.TrimSpace(want) {
			s.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
	if got, err := s.FindAuditPosition(s.ctx, "/data/audit"); err != nil || got != position {
		s.Errorf("%+v, %v", got, err)
	}
	if got, err := s.FindAuditPosition(s.ctx, "other"); err != nil || got != (archive.AuditPosition{Log: "other"}) {
		s.Errorf("%+v, %v", got, err)
	}
}

func prunesActions(s *suite) {
	var all []archive.Action
	for i := range 20 {
		all = append(all, actionAt(i, "many", "mallory", fmt.Sprint("m", i)))
	}
	all = append(all, actionAt(-60, "few", "anna", "few"), actionAt(-600, "few", "anna", "old"))
	if err := s.RecordActions(s.ctx, all, nil); err != nil {
		s.Fatal(err)
	}
	s.now = noon.Add(time.Hour)
	if got, err := s.Prune(s.ctx, archive.Retention{Age: 5 * time.Hour}); err != nil || got.Actions != 1 {
		s.Errorf("by age: %+v, %v", got, err)
	}
	if got, err := s.Prune(s.ctx, archive.Retention{}); err != nil || got.Actions != 0 {
		s.Errorf("below the maximum: %+v, %v", got, err)
	}
	// Ten of 768 bytes are a tenth of this size.
	if got, err := s.Prune(s.ctx, archive.Retention{Bytes: 10 * 10 * 768}); err != nil || got.Actions != 11 {
		s.Errorf("by size: %+v, %v", got, err)
	}
	if got := s.actionIDs(archive.ActionFilter{}); got != "m19 m18 m17 m16 m15 m14 m13 m12 m11 few" {
		s.Errorf("another namespace keeps its actions: %s", got)
	}
}

func TestPrune_BoundsActionsWithoutRetention(t *testing.T) {
	store, err := archive.Open("sqlite:"+t.TempDir()+"/history.db", archive.WithMaxActions(3), archive.WithPruneBatch(2))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var all []archive.Action
	for i := range 10 {
		all = append(all, actionAt(i, "a", "anna", fmt.Sprint(i)))
	}
	if err := store.RecordActions(t.Context(), all, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := store.Prune(t.Context(), archive.Retention{}); err != nil || got.Actions != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}
