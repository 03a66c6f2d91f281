package limits

import (
	"errors"
	"testing"
)

func TestSlots_BoundInAllAndOfOneName(t *testing.T) {
	s := Slots{Max: 3, MaxPerName: 2}
	for _, step := range []struct {
		name string
		want error
	}{{"a", nil}, {"a", nil}, {"a", ErrTooManyOfName}, {"b", nil}, {"b", ErrTooMany}, {"c", ErrTooMany}} {
		if err := s.Take(step.name); !errors.Is(err, step.want) {
			t.Errorf("%s: %v, want %v", step.name, err, step.want)
		}
	}
	s.Free("a")
	if err := s.Take("c"); err != nil || s.Count() != 3 {
		t.Errorf("a slot that was freed: %v, %d are taken", err, s.Count())
	}
	for _, name := range []string{"a", "b", "c"} {
		s.Free(name)
	}
	if s.Count() != 0 || len(s.byName) != 0 {
		t.Errorf("%d slots of %v are taken after all were freed", s.Count(), s.byName)
	}
}

func TestAddressName_GroupsIPv6Networks(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "pipe": "pipe", "[fe80::1%eth0]:80": "fe80::/64",
		"[2001:db8::1]:80": "2001:db8::/64", "[2001:db8::ffff:0:0:1]:80": "2001:db8::/64", "[2001:db8:0:1::1]:80": "2001:db8:0:1::/64",
	} {
		if got := AddressName(address); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}
