package actions

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRecords_RoundTrip(t *testing.T) {
	at := time.Date(2026, 11, 24, 12, 0, 0, 1000, time.UTC)
	want := []Record{
		{At: at, ID: "1", Verb: "create", User: "anna"},
		{At: at.Add(time.Second), ID: "2", Verb: "update", Changes: []string{"desiredState=paused", "meta"}, User: "CN with spaces"},
	}
	text := ""
	for _, r := range want {
		text = AppendRecord(text, r)
	}
	if got := ParseRecords(text + "\nnonsense\nx 3 create - a"); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := ParseRecords(""); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestRecords_AreBoundedLines(t *testing.T) {
	text := ""
	for i := range 15 {
		text = AppendRecord(text, Record{ID: fmt.Sprint(i), Verb: "update", Changes: []string{"a b\nc", strings.Repeat("x", 1000)}, User: "an\nna"})
	}
	got := ParseRecords(text)
	if len(got) != maxRecords || strings.Count(text, "\n") != maxRecords-1 || got[0].ID != "5" || got[9].User != "an na" || got[9].Changes[0] != "a_b_c" || len(text) > 4000 {
		t.Errorf("%d records: %+v", len(got), got[0])
	}
}
