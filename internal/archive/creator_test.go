package archive_test

import (
	"maps"
	"slices"
	"testing"

	"k8s4r.io/k8s4r/internal/archive"
)

// findsCreators has three objects: two of anna, of which one was changed by bob, and one of a controller.
// Another request of bob to create one was refused. Few is 1, so both ways of the filter are taken.
func findsCreators(s *suite) {
	for _, name := range []string{"a", "b", "c"} {
		if err := s.Record(s.ctx, task(name)); err != nil {
			s.Fatal(err)
		}
	}
	uids := map[string]string{}
	all, err := s.List(s.ctx, archive.Filter{})
	if err != nil {
		s.Fatal(err)
	}
	for _, o := range all.Items {
		uids[o.Name] = o.UID
	}
	action := func(id, name, user, did string, code int) archive.Action {
		a := actionAt(len(id), all.Items[0].Namespace, user, id)
		a.Kind, a.Name, a.UID, a.Did, a.Code = archive.Task, name, uids[name], did, code
		return a
	}
	if err := s.RecordActions(s.ctx, []archive.Action{
		action("1", "a", "anna", "create", 201), action("22", "b", "anna", "create", 0), action("333", "b", "bob", "pause", 200), action("4444", "c", "bob", "create", 403),
	}, nil); err != nil {
		s.Fatal(err)
	}
	names := map[string]string{}
	for name, uid := range uids {
		names[uid] = name
	}
	got, err := s.FindCreators(s.ctx, names)
	if want := map[string]string{uids["a"]: "anna", uids["b"]: "anna"}; err != nil || !maps.Equal(got, want) {
		s.Errorf("creators %v, %v; want %v", got, err, want)
	}
	if none, err := s.FindCreators(s.ctx, nil); err != nil || len(none) > 0 {
		s.Errorf("creators of nothing: %v, %v", none, err)
	}
	for user, want := range map[string][]string{"anna": {"a", "b"}, "bob": nil, "cid": nil} {
		p, err := s.List(s.ctx, archive.Filter{User: user})
		var found, created []string
		for _, o := range p.Items {
			found = append(found, o.Name)
		}
		slices.Sort(found)
		list, listErr := s.ListCreatedBy(s.ctx, user)
		for _, uid := range list {
			created = append(created, names[uid])
		}
		slices.Sort(created)
		if err != nil || listErr != nil || !slices.Equal(found, want) || !slices.Equal(created, want) {
			s.Errorf("%s: filter %v, list %v; %v, %v", user, found, created, err, listErr)
		}
	}
}

func TestFindCreators_RefusesTooMany(t *testing.T) {
	s := open(t, "sqlite:"+t.TempDir()+"/x.db")
	names := map[string]string{}
	for i := range archive.MaxLimit + 1 {
		names[string(rune(0x4e00+i))] = "x"
	}
	if _, err := s.FindCreators(s.ctx, names); err == nil {
		t.Error("it accepts more than a page")
	}
}
