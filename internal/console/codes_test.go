package console

import (
	"context"
	"testing"
	"time"
)

// tokenOf returns a function that creates this token.
func tokenOf(text string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return text, nil }
}

func TestCodes_AreValidOnceUntilTheyExpire(t *testing.T) {
	c := &Codes{}
	if _, ok := c.takeCode("", noon); ok {
		t.Error("the zero value accepts a code")
	}
	first, second := c.NewCode(tokenOf("one"), noon.Add(time.Minute)), c.NewCode(tokenOf("two"), noon.Add(time.Hour))
	if first == second || len(first) != 32 {
		t.Errorf("codes %q and %q", first, second)
	}
	if _, ok := c.takeCode(first[:31], noon); ok {
		t.Error("a part of a code is accepted")
	}
	is, ok := c.takeCode(second, noon)
	if token, err := is.token(t.Context()); !ok || err != nil || token != "two" {
		t.Errorf("got %q, %t (%v)", token, ok, err)
	}
	if _, ok := c.takeCode(second, noon); ok {
		t.Error("a code is accepted twice")
	}
	if _, ok := c.takeCode(first, noon.Add(time.Minute)); ok {
		t.Error("a code is accepted at its end")
	}
	if _, ok := c.takeCode(first, noon); ok {
		t.Error("an expired code can be tried again")
	}
	third := c.NewCode(tokenOf("three"), noon.Add(time.Minute))
	if _, ok := c.takeCode(third, noon.Add(time.Minute-time.Nanosecond)); !ok {
		t.Error("a code is rejected before its end")
	}
}
