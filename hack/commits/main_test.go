package main

import (
	"strings"
	"testing"
)

func TestCheckMessage(t *testing.T) {
	for _, c := range []struct {
		message string
		want    int
	}{
		{"jobflow: start no step after FailFast\n", 0},
		{"controllers/task: reserve robots once\n\nWhy.\n", 0},
		{"{server,agent}: rename reports\n", 0},
		{"docs/adr/0001.md: fix a link", 0},
		{"a: " + strings.Repeat("ü", 69), 0},
		{"a: " + strings.Repeat("ü", 70), 1},
		{"The broker starts", 1},
		{"Broker: start", 1},
		{"broker:start", 1},
		{"broker: ", 1},
		{"broker: start.", 1},
		{"broker: start\nat once\n", 1},
		{"Revert \"broker: start\"", 1},
		{"", 1},
	} {
		if got := checkMessage(c.message); len(got) != c.want {
			t.Errorf("%q: got %q, want %d problems", c.message, got, c.want)
		}
	}
}

// newHistory makes a repository with one commit for each message, oldest first.
func newHistory(t *testing.T, messages ...string) (dir string, ids []string) {
	t.Helper()
	dir = t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		out, err := runGit(dir, append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	git("init", "-q")
	for _, m := range messages {
		git("commit", "-q", "--allow-empty", "-m", m)
		ids = append(ids, git("rev-parse", "HEAD"))
	}
	return dir, ids
}

func TestListCommits(t *testing.T) {
	dir, ids := newHistory(t, "Before the rule", "a: first\n\nWhy.", "b: second")
	const unknown = "0123456789abcdef0123456789abcdef01234567"
	for name, c := range map[string]struct {
		start string
		bases []string
		want  string
	}{
		"since the rule":               {ids[0], nil, "b: second|a: first"},
		"since a base":                 {ids[0], []string{ids[1]}, "b: second"},
		"since a base before the rule": {ids[1], []string{ids[0]}, "b: second"},
		"since HEAD":                   {ids[0], []string{"HEAD"}, ""},
		"start is not in the clone":    {unknown, []string{ids[1]}, "b: second"},
	} {
		commits, err := listCommits(dir, c.start, c.bases)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var subjects []string
		for _, one := range commits {
			subject, _, _ := strings.Cut(one.message, "\n")
			subjects = append(subjects, subject)
		}
		if got := strings.Join(subjects, "|"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if _, err := listCommits(dir, unknown, nil); err == nil {
		t.Error("without start and base there must be an error")
	}
	if _, err := listCommits(dir, ids[0], []string{"no-such-branch"}); err == nil {
		t.Error("an unknown base must be an error")
	}
}
