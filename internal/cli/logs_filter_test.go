package cli

import (
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

func TestEscapeFilter_KeepsOnlyTextAndColors(t *testing.T) {
	const reset = "\x1b[0m"
	for _, row := range []struct{ name, text, want string }{
		{"plain text", "a\tb é 世界", "a\tb é 世界"},
		{"a color ends with its line", "\x1b[1;31mred", "\x1b[1;31mred" + reset},
		{"cursor and clearing", "a\x1b[2Jb\x1b[10;3Hc\x1b[?1049hd", "abcd"},
		{"a title, ended by BEL or ESC \\", "a\x1b]0;evil\ab\x1b]2;evil\x1b\\c", "abc"},
		{"a device control string", "a\x1bP$q\"p\x1b\\b", "ab"},
		{"a string without an end", "a\x1b]52;c;ZXZpbA==", "a"},
		{"a reset of the terminal", "a\x1bcb", "ab"},
		{"a change of the character set", "a\x1b(0b", "ab"},
		{"C1 characters", "a\u009b2Jb\u009d0;x\u009cc\u0090q\u009cd", "abcd"},
		{"other control characters", "a\x00\x07\x08\x0e\x7fb", "ab"},
		{"bytes that are not UTF-8", "a\xff\x9b2Jb", "a\ufffd\ufffd2Jb"},
		{"a private sequence that ends like a color", "a\x1b[>4;2mb", "ab"},
		{"a color with too many parameters", "a\x1b[" + strings.Repeat("1;", 40) + "mb", "ab"},
		{"an escape in a sequence", "a\x1b[3\x1b[2Jb", "ab"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var f escapeFilter
			if got := string(f.filterText([]byte(row.text), true)); got != row.want {
				t.Errorf("%q, not %q", got, row.want)
			}
			for cut := range row.text {
				got := string(f.filterText([]byte(row.text[:cut]), false)) + string(f.filterText([]byte(row.text[cut:]), true))
				if got != row.want {
					t.Errorf("cut at %d: %q, not %q", cut, got, row.want)
				}
			}
		})
	}
}

func FuzzEscapeFilter(f *testing.F) {
	f.Add("a\x1b[31mb\x1b]0;x\ac", 3)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		text = strings.ReplaceAll(text, "\n", "")
		cut = min(max(cut, 0), len(text))
		var filter escapeFilter
		got := string(filter.filterText([]byte(text[:cut]), false)) + string(filter.filterText([]byte(text[cut:]), true))
		for _, r := range colorCode.ReplaceAllString(strings.ReplaceAll(got, ":", ""), "") {
			if r == '\x1b' || r >= 0x80 && r < 0xa0 {
				t.Fatalf("%q becomes %q", text, got)
			}
		}
	})
}

func TestLogs_FilterEscapesOnTerminal(t *testing.T) {
	text := logRecord(record.Stdout, "a\x1b[2") + logRecord(record.Stdout, "Jb\x1b[31m") + logRecord(record.Stdout, "c\n") + logRecord(record.Stdout, "50 %\r") + logRecord(record.Stdout, "99 %")
	for _, row := range []struct {
		name, want string
		args       []string
		terminal   bool
	}{
		{"a task, not on a terminal", "a\x1b[2Jb\x1b[31mc\n50 %\r99 %\n", []string{"t1"}, false},
		{"a task on a terminal", "ab\x1b[31mc\x1b[0m\n50 %\r99 %\n", []string{"t1"}, true},
		{"a Job, not on a terminal", "[t1] a\x1b[2Jb\x1b[31mc\n[t1] 50 %\r99 %\n", []string{"--job", "demo"}, false},
		{"a Job on a terminal", "[t1] ab\x1b[31mc\x1b[0m\n[t1] 50 % 99 %\n", []string{"--job", "demo"}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, _ := logBench(t, map[string][]logAnswer{"t1": {{text: text}}}, job("demo"), aTask("t1", lifecycle.TaskCompleted, 1))
			b.deps.terminal.is = row.terminal
			if code := b.run(append([]string{"logs"}, row.args...)...); code != ExitOK {
				t.Errorf("exit status %d: %s", code, b.err.String())
			}
			if got := b.out.String(); got != row.want {
				t.Errorf("%q, not %q", got, row.want)
			}
		})
	}
}
