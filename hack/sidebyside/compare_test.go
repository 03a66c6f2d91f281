package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseLastLine(t *testing.T) {
	for _, tc := range []struct{ name, output, want string }{
		{"after a table", "tasks  seconds\n  10      1.5\n{\"tasks_per_s\":6.5}\n", `{"tasks_per_s":6.5}`},
		{"without a line break", `{"a":1}`, `{"a":1}`},
		{"JSON only before the last line", "{\"a\":1}\nFAILED\n", ""},
		{"a list", "[1]\n", ""},
		{"null", "null\n", ""},
		{"nothing", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseLastLine(tc.output)
			if (err != nil) != (tc.want == "") {
				t.Fatalf("error %v, want one: %v", err, tc.want == "")
			}
			if err == nil && encode(t, got) != tc.want {
				t.Errorf("got %s, want %s", encode(t, got), tc.want)
			}
		})
	}
}

func TestSummarize(t *testing.T) {
	for _, tc := range []struct {
		name             string
		old, latest      string // one run a line
		wantOld, wantNew string
		wantRatio        string
	}{
		{"means of two rounds", "{\"s\":10}\n{\"s\":30}", "{\"s\":9}\n{\"s\":11}", `{"s":20}`, `{"s":10}`, `{"s":0.5}`},
		{"a new figure has no ratio", `{"a":2}`, `{"a":3,"b":1}`, `{"a":2}`, `{"a":3,"b":1}`, `{"a":1.5}`},
		{"a removed figure has no ratio", `{"a":2,"b":1}`, `{"a":3}`, `{"a":2,"b":1}`, `{"a":3}`, `{"a":1.5}`},
		{"nothing is divided by zero", `{"lost":0}`, `{"lost":1}`, `{"lost":0}`, `{"lost":1}`, `{}`},
		{"text stays as it is", "{\"load\":\"1.2\"}\n{\"load\":\"3\"}", `{"load":"2"}`, `{"load":["1.2","3"]}`, `{"load":["2"]}`, `{}`},
		{"a figure that one run lacks", "{\"a\":2,\"b\":4}\n{\"a\":4}", `{"b":8}`, `{"a":3,"b":4}`, `{"b":8}`, `{"b":2}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := summarize(decodeRuns(t, tc.old), decodeRuns(t, tc.latest))
			for _, part := range []struct {
				name string
				got  any
				want string
			}{{"old", c.Old, tc.wantOld}, {"new", c.New, tc.wantNew}, {"ratio", c.Ratio, tc.wantRatio}} {
				if got := encode(t, part.got); got != part.want {
					t.Errorf("%s: got %s, want %s", part.name, got, part.want)
				}
			}
		})
	}
}

func TestPrintTable_SkipsTextAndOneSidedFigures(t *testing.T) {
	var out strings.Builder
	printTable(&out, summarize(decodeRuns(t, `{"s":2,"gone":1,"load":"1"}`), decodeRuns(t, `{"s":1,"added":1,"load":"1"}`)))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || strings.Join(strings.Fields(lines[1]), " ") != "s 2 1 0.500" {
		t.Errorf("got %q", lines)
	}
}

func decodeRuns(t *testing.T, lines string) (runs []map[string]any) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var run map[string]any
		if err := json.Unmarshal([]byte(line), &run); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	return runs
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
