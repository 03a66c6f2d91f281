package kit

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestObjectMemory_ResetsForANewUID(t *testing.T) {
	s := NewObjectMemory(func() int { return 7 })
	k := types.NamespacedName{Namespace: "ns", Name: "a"}
	s.UpdateIfPresent(k, func(*int) { t.Error("f was called before there was a value") })
	var got []int
	add := func(uid types.UID) { s.Update(k, uid, func(n *int) { *n++; got = append(got, *n) }) }
	add("1")
	add("1")
	add("2")
	s.UpdateIfPresent(k, func(n *int) { got = append(got, *n) })
	s.ForEach(func(_ types.NamespacedName, n *int) { got = append(got, *n) })
	if want := []int{8, 9, 8, 8, 8}; len(got) != len(want) || got[0] != 8 || got[1] != 9 || got[2] != 8 || got[3] != 8 || got[4] != 8 {
		t.Errorf("%v, want %v", got, want)
	}
	if uid := s.ForgetObject(k); uid != "2" {
		t.Errorf("forgot %q, want 2", uid)
	}
	if uid := s.ForgetObject(k); uid != "" {
		t.Errorf("forgot %q a second time", uid)
	}
}

func TestObjectMemory_UpdateIfSameUIDIgnoresOldUID(t *testing.T) {
	s := NewObjectMemory(func() int { return 7 })
	k := types.NamespacedName{Namespace: "ns", Name: "a"}
	s.UpdateIfSameUID(k, "1", func(n *int) { *n++ })
	s.UpdateIfSameUID(k, "1", func(n *int) { *n++ })
	s.UpdateIfPresent(k, func(n *int) {
		if *n != 9 {
			t.Errorf("%d, want 9", *n)
		}
	})
	s.Update(k, "2", func(n *int) { *n = 20 })
	s.UpdateIfSameUID(k, "1", func(*int) { t.Error("f was called with the value of the newer object") })
	s.UpdateIfPresent(k, func(n *int) {
		if *n != 20 {
			t.Errorf("%d, want 20", *n)
		}
	})
	if uid := s.ForgetObject(k); uid != "2" {
		t.Errorf("forgot %q, want 2", uid)
	}
}
