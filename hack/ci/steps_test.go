package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

func runSteps(t *testing.T, stages ...stage) (status int, text string, last map[string]any) {
	t.Helper()
	var out strings.Builder
	status = runTier(t.Context(), tier{
		name: "x", stages: stages,
		report: func(took time.Duration) map[string]any { return map[string]any{"x_seconds": took.Seconds()} },
	}, &out)
	text = out.String()
	if err := json.Unmarshal([]byte(lastLines(text, 1)), &last); err != nil {
		t.Fatalf("the last line is no JSON: %v\n%s", err, text)
	}
	return status, text, last
}

func TestTier_EndsWithItsFigures(t *testing.T) {
	status, text, last := runSteps(t, stage{lanes: []lane{
		{shell("count", `echo one; echo '{"n":3}'`)},
		{{"flaky", func(context.Context, io.Writer) outcome {
			return outcome{cpu: 90 * time.Second, flakes: []flake{{"p", "TestA", 2}}}
		}}},
	}})
	if status != 0 || last["flaky"] != 1.0 || last["failed"] != 0.0 || last["count"].(map[string]any)["n"] != 3.0 {
		t.Errorf("status %d, figures %v", status, last)
	}
	if cpu := last["step_cpu_seconds"].(map[string]any); cpu["flaky"] != 90.0 {
		t.Errorf("processor seconds: %v", cpu)
	}
	for _, want := range []string{"count | one\n", "\nFLAKY", "  p TestA (passed at try 2)\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestTier_RepeatsFailuresAtTheEnd(t *testing.T) {
	status, text, last := runSteps(t,
		stage{lanes: []lane{{shell("bad", "echo wrong; exit 3"), shell("next", "echo reached")}}},
		stage{required: true, lanes: []lane{{shell("also", "exit 1")}}},
		stage{lanes: []lane{{shell("skipped", "echo never")}}},
	)
	if status != 1 || last["failed"] != 2.0 {
		t.Errorf("status %d, figures %v", status, last)
	}
	_, end, _ := strings.Cut(text, "\nFAILED:\n")
	if !strings.Contains(end, "  bad: exit status 3\n      wrong\n") || !strings.Contains(text, "reached") || strings.Contains(text, "never") {
		t.Errorf("printed\n%s", text)
	}
}

func TestPromptShell_HasTheHigherPriority(t *testing.T) {
	const script = `echo "{\"niceness\": $(nice)}"`
	_, _, last := runSteps(t, stage{lanes: []lane{{shell("usual", script), promptShell("prompt", script)}}})
	niceness := func(name string) float64 { return last[name].(map[string]any)["niceness"].(float64) }
	if usual, prompt := niceness("usual"), niceness("prompt"); usual != min(prompt+10, 19) {
		t.Errorf("niceness %v, prompt %v", usual, prompt)
	}
}

func TestPrefixWriter_KeepsLinesWhole(t *testing.T) {
	var out strings.Builder
	w := &prefixWriter{to: &out, prefix: "a | "}
	for _, part := range []string{"on", "e\ntw", "o\n", "end"} {
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
	}
	if w.flush(); out.String() != "a | one\na | two\na | end\n" {
		t.Errorf("written %q", out.String())
	}
}
