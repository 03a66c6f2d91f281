// Command commits checks the messages of commits: "area: imperative summary" in at most 72
// characters, then an empty line.
//
//	go run ./hack/commits          # all commits since the rule exists
//	go run ./hack/commits BASE     # those that HEAD has and BASE has not, such as a merge base
//
// Merges are left out, and so are commits from before the rule. Whether a summary is in the
// imperative is left to reviewers.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"unicode/utf8"
)

// firstRuled is the last commit from before the rule.
const firstRuled = "8ec8fd78d86bee26e7a38e7704f3e5c980552ffe"

const maxSubject = 72 // characters, so that git log does not wrap it

var subjectForm = regexp.MustCompile(`^[a-z0-9./,{}_-]+: .`)

func main() { os.Exit(runCommits(os.Args[1:], os.Stdout, os.Stderr)) }

// runCommits checks the repository of the working directory and returns the exit code: 1 if a
// message breaks the rule, 2 if the commits cannot be listed.
func runCommits(args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 {
		fmt.Fprintln(stderr, "usage: commits [BASE]")
		return 2
	}
	commits, err := listCommits("", firstRuled, args)
	if err != nil {
		fmt.Fprintln(stderr, "commits:", err)
		return 2
	}
	code := 0
	for _, c := range commits {
		for _, problem := range checkMessage(c.message) {
			fmt.Fprintf(stdout, "%s: %s\n", c.id, problem)
			code = 1
		}
	}
	fmt.Fprintf(stdout, "%d commits checked\n", len(commits))
	return code
}

// commit is one commit with its full message.
type commit struct {
	id, message string
}

// listCommits returns the commits of HEAD in the repository dir that neither start nor the
// bases contain. A start that the repository lacks is left out if there is a base: a shallow
// clone or a rewritten history must not fail for it.
func listCommits(dir, start string, bases []string) ([]commit, error) {
	args := []string{"log", "--no-merges", "-z", "--format=%h%n%B", "HEAD"}
	if _, err := runGit(dir, "rev-parse", "--verify", "--quiet", start+"^{commit}"); err == nil {
		args = append(args, "^"+start)
	} else if len(bases) == 0 {
		return nil, fmt.Errorf("commit %s, since which the rule exists, is not in this clone: name a base", start)
	}
	for _, b := range bases {
		args = append(args, "^"+b)
	}
	out, err := runGit(dir, append(args, "--")...)
	if err != nil {
		return nil, err
	}
	var commits []commit
	for record := range strings.SplitSeq(out, "\x00") {
		if id, message, ok := strings.Cut(record, "\n"); ok {
			commits = append(commits, commit{id, message})
		}
	}
	return commits, nil
}

func runGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// checkMessage returns what is wrong with a message.
func checkMessage(message string) []string {
	subject, body, hasBody := strings.Cut(strings.TrimRight(message, "\n"), "\n")
	var problems []string
	if !subjectForm.MatchString(subject) {
		problems = append(problems, fmt.Sprintf("subject %q: must be \"area: imperative summary\", the area in lower case", subject))
	}
	if n := utf8.RuneCountInString(subject); n > maxSubject {
		problems = append(problems, fmt.Sprintf("subject %q: has %d characters, must have at most %d", subject, n, maxSubject))
	}
	if strings.HasSuffix(subject, ".") {
		problems = append(problems, fmt.Sprintf("subject %q: must not end with a full stop", subject))
	}
	if hasBody && !strings.HasPrefix(body, "\n") {
		problems = append(problems, fmt.Sprintf("subject %q: must be followed by an empty line", subject))
	}
	return problems
}
