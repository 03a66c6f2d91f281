package remember

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestALaterObjectOfTheNameBeginsAnew(t *testing.T) {
	s := New(func() int { return 7 })
	k := types.NamespacedName{Namespace: "ns", Name: "a"}
	s.Known(k, func(*int) { t.Error("nothing is remembered yet") })
	var got []int
	add := func(uid types.UID) { s.Of(k, uid, func(n *int) { *n++; got = append(got, *n) }) }
	add("1")
	add("1")
	add("2")
	s.Known(k, func(n *int) { got = append(got, *n) })
	s.Each(func(_ types.NamespacedName, n *int) { got = append(got, *n) })
	if want := []int{8, 9, 8, 8, 8}; len(got) != len(want) || got[0] != 8 || got[1] != 9 || got[2] != 8 || got[3] != 8 || got[4] != 8 {
		t.Errorf("%v, want %v", got, want)
	}
	if uid := s.Forget(k); uid != "2" {
		t.Errorf("forgot %q, want 2", uid)
	}
	if uid := s.Forget(k); uid != "" {
		t.Errorf("forgot %q once more", uid)
	}
}

func TestALateWordLeavesALaterObjectAlone(t *testing.T) {
	s := New(func() int { return 7 })
	k := types.NamespacedName{Namespace: "ns", Name: "a"}
	s.Late(k, "1", func(n *int) { *n++ })
	s.Late(k, "1", func(n *int) { *n++ })
	s.Known(k, func(n *int) {
		if *n != 9 {
			t.Errorf("%d, want 9", *n)
		}
	})
	s.Of(k, "2", func(n *int) { *n = 20 })
	s.Late(k, "1", func(*int) { t.Error("a word of the first was taken for one of the second") })
	s.Known(k, func(n *int) {
		if *n != 20 {
			t.Errorf("%d, want 20", *n)
		}
	})
	if uid := s.Forget(k); uid != "2" {
		t.Errorf("forgot %q, want 2", uid)
	}
}
