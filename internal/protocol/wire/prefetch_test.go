package wire

import (
	"strings"
	"testing"
)

func TestPrefetchOrder_IsWithinLimits(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*PrefetchOrder)
		want   bool
	}{
		"an order":       {func(*PrefetchOrder) {}, true},
		"most artifacts": {func(o *PrefetchOrder) { o.Artifacts = make([]PrefetchArtifact, MaxPrefetchItems) }, true},
		"more artifacts": {func(o *PrefetchOrder) { o.Artifacts = make([]PrefetchArtifact, MaxPrefetchItems+1) }, false},
		"most images":    {func(o *PrefetchOrder) { o.Images = make([]string, MaxPrefetchImages) }, true},
		"more images":    {func(o *PrefetchOrder) { o.Images = make([]string, MaxPrefetchImages+1) }, false},
		"more items": {func(o *PrefetchOrder) {
			o.Images, o.Artifacts = make([]string, 1), make([]PrefetchArtifact, MaxPrefetchItems)
		}, false},
		"a text that is large": {func(o *PrefetchOrder) { o.Images = []string{strings.Repeat("x", MaxPrefetchBytes)} }, false},
		"no id":                {func(o *PrefetchOrder) { o.ID = "" }, false},
		"a long id":            {func(o *PrefetchOrder) { o.ID = strings.Repeat("x", 65) }, false},
		"no attempt":           {func(o *PrefetchOrder) { o.Attempt = 0 }, false},
		"a negative rate":      {func(o *PrefetchOrder) { o.BytesPerSecond = -1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := PrefetchOrder{ID: "x", Attempt: 1, Namespace: "default"}
			test.change(&o)
			if got := o.IsWithinLimits(); got != test.want {
				t.Errorf("within limits %t, want %t", got, test.want)
			}
		})
	}
}

func TestPrefetchWithinLimits(t *testing.T) {
	all := []PrefetchReport{{ID: "oldest", State: PrefetchDone}}
	for _, id := range strings.Split("abcdefg", "") {
		all = append(all, PrefetchReport{ID: id, State: PrefetchDone})
	}
	all = append(all, PrefetchReport{ID: "last", State: PrefetchFailed, Message: strings.Repeat("m", 999) + "\n", Bytes: -1, Attempt: -1})
	got := PrefetchWithinLimits(all)
	last := got[len(got)-1]
	if len(got) != MaxPrefetchReports || got[0].ID != "a" || len(last.Message) > MaxPrefetchMessage || last.Bytes != 0 || last.Attempt != 0 {
		t.Errorf("%d reports, the first is %+v, the last %+v", len(got), got[0], last)
	}
	bad := []PrefetchReport{{State: PrefetchDone}, {ID: "x", State: "Unknown"}, {ID: "y", State: PrefetchDone}, {ID: "y", State: PrefetchFailed}}
	if got := PrefetchWithinLimits(bad); len(got) != 1 || got[0].State != PrefetchDone {
		t.Errorf("reports %+v", got)
	}
}

func TestCanPrefetch(t *testing.T) {
	for source, want := range map[string]bool{
		"https://files.example/a": true, "http://files.example/a": true, "https://files.example/a?token=x": false,
		"https://user@files.example/a": false, "file:///opt/a": false, "::": false,
	} {
		if got := CanPrefetch(source, "sha256:00"); got != want {
			t.Errorf("%s: %t, want %t", source, got, want)
		}
	}
	if CanPrefetch("https://files.example/a", "") {
		t.Error("a source without a checksum")
	}
}
