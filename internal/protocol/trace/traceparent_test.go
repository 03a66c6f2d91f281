package trace

import (
	"testing"

	"pgregory.net/rapid"
)

const uid = "6b1f0a52-8c0d-4e5e-9d3a-7a3c1f9e2b44"

func TestAttemptContext_DependsOnUIDAndAttempt(t *testing.T) {
	task := TaskContext(uid)
	if got, want := task.String(), "00-6b1f0a528c0d4e5e9d3a7a3c1f9e2b44-1af0c52e55c1f614-00"; got != want {
		t.Errorf("the task is %s; once spans are stored it must stay %s", got, want)
	}
	first := AttemptContext(uid, 1)
	if got, want := first.String(), "00-6b1f0a528c0d4e5e9d3a7a3c1f9e2b44-00f37069e7945eab-00"; got != want {
		t.Errorf("the first attempt is %s, and was %s", got, want)
	}
	seen := map[[8]byte]bool{}
	for _, c := range []Context{task, first, AttemptContext(uid, 2), AttemptContext(uid, 258), first.ChildSpan("run"), first.ChildSpan("wait"), AttemptContext(uid, 2).ChildSpan("run")} {
		if c.Trace != task.Trace {
			t.Errorf("%s is in another trace", c)
		}
		if seen[c.Span] {
			t.Errorf("%s is twice", c)
		}
		seen[c.Span] = true
	}
	if first.ChildSpan("run") != AttemptContext(uid, 1).ChildSpan("run") {
		t.Error("the same span has another id in a second call")
	}
	if TaskContext("one").Trace == TaskContext("two").Trace || TaskContext("").Trace == [16]byte{} {
		t.Error("a text that is not a UID has no trace of its own")
	}
}

func TestParse_RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := AttemptContext(rapid.String().Draw(t, "uid"), rapid.Int32().Draw(t, "attempt"))
		c.Sampled = rapid.Bool().Draw(t, "sampled")
		if got, ok := Parse(c.String()); !ok || got != c {
			t.Errorf("%s reads as %s, %v", c, got, ok)
		}
	})
}

func TestParse(t *testing.T) {
	const trace, span = "6b1f0a528c0d4e5e9d3a7a3c1f9e2b44", "b0f60bd5a87fa4bb"
	for s, want := range map[string]bool{
		"00-" + trace + "-" + span + "-01":           true,
		"00-" + trace + "-" + span + "-03":           true,
		"cc-" + trace + "-" + span + "-01-from-2040": true,
		"": false, "00": false, "---": false,
		"00-" + trace + "-" + span:                            false,
		"00-" + trace + "-" + span + "-01-more":               false,
		"ff-" + trace + "-" + span + "-01":                    false,
		"00-" + trace + "-0000000000000000-01":                false,
		"00-00000000000000000000000000000000-" + span + "-01": false,
		"00-6B1F0A528C0D4E5E9D3A7A3C1F9E2B44-" + span + "-01": false,
		"00-" + trace + "-" + span + "-1":                     false,
		"00-" + trace + "-b0f60bd5a87fa4b-01":                 false,
		"00-" + trace + "-" + span + "-0g":                    false,
		"00-" + trace + "zz-" + span + "-01":                  false,
	} {
		if c, ok := Parse(s); ok != want || ok && !c.Sampled {
			t.Errorf("%q: %v, %s", s, ok, c)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(TaskContext(uid).String())
	f.Fuzz(func(t *testing.T, s string) {
		if c, ok := Parse(s); ok {
			if again, ok := Parse(c.String()); !ok || again != c {
				t.Errorf("%q reads as %s, and that as %s", s, c, again)
			}
		}
	})
}

func TestSampling_KeepsRatio(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := TaskContext(rapid.String().Draw(t, "uid"))
		if !c.IsSampled(1) || c.IsSampled(0) {
			t.Error("ratio 1 drops a trace, or ratio 0 keeps one")
		}
		if small := rapid.Float64Range(0, 1).Draw(t, "share"); c.IsSampled(small) && !c.IsSampled((1+small)/2) {
			t.Error("a greater ratio drops a trace that a smaller one keeps")
		}
	})
	kept := 0
	for i := range int32(10_000) {
		c := TaskContext(AttemptContext(uid, i).String()) // any text
		if c.IsSampled(0.25) {
			kept++
		}
	}
	if kept < 2300 || kept > 2700 {
		t.Errorf("%d of 10000 traces are kept, want about 2500", kept)
	}
}
