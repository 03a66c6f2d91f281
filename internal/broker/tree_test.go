package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFilterTree_MatchesTopics(t *testing.T) {
	for _, c := range []struct {
		filter, topic string
		want          bool
	}{
		{"a/b", "a/b", true},
		{"a/b", "a/b/c", false},
		{"a/b/c", "a/b", false},
		{"a/+/c", "a/b/c", true},
		{"a/+", "a", false},
		{"a/+", "a/", true},
		{"+/+", "/x", true},
		{"+", "/x", false},
		{"#", "a/b/c", true},
		{"a/#", "a", true},
		{"a/#", "a/b/c", true},
		{"a/#", "ab", false},
		{"#", "$SYS/x", false},
		{"+/x", "$SYS/x", false},
		{"$SYS/#", "$SYS/x", true},
	} {
		var tr filterTree
		tr.addFilter(c.filter, newSession("s", Identity{}, 0), subscription{})
		if got := len(tr.matchTopic(c.topic)) == 1; got != c.want {
			t.Errorf("tree: %s matches %s: %v", c.filter, c.topic, got)
		}
		if got := matchesFilter(c.filter, c.topic); got != c.want {
			t.Errorf("%s matches %s: %v", c.filter, c.topic, got)
		}
	}
}

func TestIsValidFilterAndTopic(t *testing.T) {
	deep := strings.Repeat("a/", maxLevels)
	for _, c := range []struct {
		text          string
		filter, topic bool
	}{
		{"a/b", true, true},
		{"/", true, true},
		{"", false, false},
		{"a/\x00", false, false},
		{"#", true, false},
		{"a/#", true, false},
		{"a/#/b", false, false},
		{"a#", false, false},
		{"+/a", true, false},
		{"a/b+", false, false},
		{deep, false, false},
	} {
		if isValidFilter(c.text) != c.filter || isValidTopic(c.text) != c.topic {
			t.Errorf("%.20q: filter %v, topic %v", c.text, isValidFilter(c.text), isValidTopic(c.text))
		}
	}
}

// The tree finds exactly the sessions with a matching filter, and is empty after all are removed.
func TestFilterTree_AgreesWithMatchesFilter(t *testing.T) {
	level := rapid.SampledFrom([]string{"a", "b", "", "$x"})
	topics := rapid.Map(rapid.SliceOfN(level, 1, 4), func(l []string) string { return strings.Join(l, "/") }).Filter(isValidTopic)
	wild := rapid.SampledFrom([]string{"a", "b", "", "+", "$x"})
	filters := rapid.Custom(func(t *rapid.T) string {
		levels := rapid.SliceOfN(wild, 1, 4).Draw(t, "levels")
		if rapid.Bool().Draw(t, "all below") {
			levels = append(levels, "#")
		}
		return strings.Join(levels, "/")
	}).Filter(isValidFilter)
	rapid.Check(t, func(t *rapid.T) {
		var tr filterTree
		has := map[*session]string{}
		for i := range rapid.IntRange(0, 12).Draw(t, "sessions") {
			s := newSession(fmt.Sprint(i), Identity{}, 0)
			has[s] = filters.Draw(t, "filter")
			tr.addFilter(has[s], s, subscription{})
		}
		for range 8 {
			topic := topics.Draw(t, "topic")
			var want []string
			for s, filter := range has {
				if matchesFilter(filter, topic) {
					want = append(want, s.id)
				}
			}
			var got []string
			for s := range tr.matchTopic(topic) {
				got = append(got, s.id)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("%q reaches %v, want %v of %v", topic, got, want, slices.Collect(maps.Values(has)))
			}
		}
		for s, filter := range has {
			tr.removeFilter(filter, s)
		}
		if len(tr.children) != 0 {
			t.Fatalf("left over: %v", tr.children)
		}
	})
}
