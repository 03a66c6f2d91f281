package indexset

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":              "",
		"0":             "0",
		"0-99,200-299":  "0-99,200-299",
		"1,2,3":         "1-3",
		"0-4,5-9":       "0-9",
		"7-7":           "7",
		"0,999999":      "0,999999",
		"007":           "7",
		"1-3,5,100-101": "1-3,5,100-101",
	} {
		s, err := Parse(text)
		if err != nil || s.String() != want {
			t.Errorf("Parse(%q) = %q, %v, want %q", text, s, err, want)
		}
	}
}

func TestParse_RejectsOtherText(t *testing.T) {
	for text, want := range map[string]string{
		"a":                     "want a number",
		"-1":                    "want a number",
		"1-":                    "want a number",
		"1,":                    "want a number",
		"1, 2":                  "want a number",
		"+1":                    "want a number",
		"1-2-3":                 "want a number",
		"5-3":                   "ends before it begins",
		"3,1":                   "must ascend",
		"1,1":                   "must ascend",
		"0-5,5-9":               "must ascend",
		"1000000":               "largest index is 999999",
		"0-1000000":             "largest index is 999999",
		"99999999999999999999":  "largest index is 999999",
		strings.Repeat("x", 99): "want a number",
	} {
		if s, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %q, %v, want an error with %q", text, s, err, want)
		}
	}
}

// TestSet_EqualsAMap compares each operation with the same on maps.
func TestSet_EqualsAMap(t *testing.T) {
	indexes := rapid.SliceOf(rapid.Int32Range(0, 40))
	rapid.Check(t, func(t *rapid.T) {
		a, b := indexes.Draw(t, "a"), indexes.Draw(t, "b")
		s, o := Of(a...), Of(b...)
		slices.Sort(a)
		a = slices.Compact(a)
		has := func(list []int32) func(int32) bool {
			return func(i int32) bool { return slices.Contains(list, i) }
		}
		hasNot := func(i int32) bool { return !slices.Contains(b, i) }
		from, to := rapid.IntRange(0, 45).Draw(t, "from"), rapid.IntRange(0, 45).Draw(t, "to")
		checkSet(t, "All", s, a)
		checkSet(t, "Minus", s.Minus(o), keep(a, hasNot))
		checkSet(t, "Intersect", s.Intersect(o), keep(a, has(b)))
		checkSet(t, "Union", s.Union(o), append(keep(a, hasNot), b...))
		checkSet(t, "Slice", s.Slice(from, to), a[min(from, len(a)):max(min(to, len(a)), min(from, len(a)))])
		for i := range int32(45) {
			if s.Contains(i) != has(a)(i) || s.Position(i) != len(keep(a, func(n int32) bool { return n < i })) {
				t.Fatalf("%v: Contains(%d) = %v, Position = %d", a, i, s.Contains(i), s.Position(i))
			}
		}
	})
}

func keep(list []int32, wanted func(int32) bool) (out []int32) {
	for _, i := range list {
		if wanted(i) {
			out = append(out, i)
		}
	}
	return out
}

func checkSet(t *rapid.T, operation string, got Set, want []int32) {
	t.Helper()
	want = slices.Clone(want)
	slices.Sort(want)
	want = slices.Compact(want)
	if all := slices.Collect(got.All()); !slices.Equal(all, want) || got.Len() != len(want) || got.IsEmpty() != (len(want) == 0) {
		t.Fatalf("%s: %v with %d, want %v", operation, all, got.Len(), want)
	}
	if again, err := Parse(got.String()); err != nil || again.String() != got.String() {
		t.Fatalf("%s: %q parses as %q, %v", operation, got, again, err)
	}
}

func TestUpTo(t *testing.T) {
	for size, want := range map[int]string{-1: "", 0: "", 1: "0", 100: "0-99"} {
		if got := UpTo(size).String(); got != want {
			t.Errorf("UpTo(%d) = %q, want %q", size, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0-57,60")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(s.String()); err != nil || again.Len() != s.Len() {
			t.Errorf("%q parses as %q, which parses as %q, %v", text, s, again, err)
		}
	})
}
