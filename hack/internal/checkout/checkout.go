// Package checkout reads the files of the checkout for the programs that check them.
package checkout

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// FindRoot returns the top folder of the checkout that contains the working directory.
func FindRoot() (string, error) {
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ReadFiles returns the contents of the files that git tracks or would track, by their slash
// separated path. They are read from the working tree, so staging has no effect.
func ReadFiles(root string) (map[string]string, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list files of %s: %w", root, err)
	}
	contents := map[string]string{}
	for p := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		name := filepath.Join(root, p)
		if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() {
			continue // deleted in the working tree, or a symbolic link
		}
		data, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted since
		}
		if err != nil {
			return nil, err
		}
		contents[p] = string(data)
	}
	return contents, nil
}

// IsText reports whether a file is text, by the rule that git has: no zero byte at its start.
func IsText(content string) bool {
	return !bytes.Contains([]byte(content[:min(len(content), 8000)]), []byte{0})
}

var generatedHeader = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// IsGeneratedGo reports whether a Go file was written by a program.
func IsGeneratedGo(name, content string) bool {
	return strings.HasPrefix(path.Base(name), "zz_generated") || generatedHeader.MatchString(content)
}

// CleanPrefixes returns the paths of a command line in the form that IsBelow needs: without
// "./", "/" or "/..." around them. The checkout as a whole is left out.
func CleanPrefixes(args []string) []string {
	var prefixes []string
	for _, a := range args {
		if p := path.Clean(strings.TrimSuffix(a, "...")); p != "." {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}

// IsBelow reports whether name is one of the prefixes or below one of them. Without prefixes
// every name is.
func IsBelow(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if name == p || strings.HasPrefix(name, p+"/") {
			return true
		}
	}
	return len(prefixes) == 0
}

// containerMark is what stands before the content of a list item or a quotation.
var containerMark = regexp.MustCompile(`^[ \t>]*(?:(?:[-*+]|\d+\.)[ \t]+)?`)

// BlankFences splits Markdown into lines and empties those of fenced code, so that the others
// keep their number.
func BlankFences(text string) []string {
	lines := strings.Split(text, "\n")
	fence := ""
	for i, line := range lines {
		trimmed := containerMark.ReplaceAllString(line, "")
		switch marker := getFence(trimmed); {
		case fence == "" && marker != "":
			fence, lines[i] = marker, ""
		case fence != "":
			if strings.HasPrefix(marker, fence) && strings.Trim(trimmed, fence[:1]+" \t") == "" {
				fence = ""
			}
			lines[i] = ""
		}
	}
	return lines
}

// getFence returns the backticks or tildes that a line of a code fence starts with.
func getFence(line string) string {
	for _, c := range []string{"`", "~"} {
		if n := len(line) - len(strings.TrimLeft(line, c)); n >= 3 {
			return line[:n]
		}
	}
	return ""
}

var codeSpan = regexp.MustCompile("``(?:[^\n]|\n[^\n])+?``|`(?:[^`\n]|\n[^`\n])+?`")

// BlankCodeSpans replaces inline code by spaces, byte for byte. Line breaks stay.
func BlankCodeSpans(text string) string {
	return codeSpan.ReplaceAllStringFunc(text, BlankText)
}

// BlankText replaces each byte but line breaks by a space.
func BlankText(text string) string {
	blank := bytes.Repeat([]byte{' '}, len(text))
	for i := range text {
		if text[i] == '\n' {
			blank[i] = '\n'
		}
	}
	return string(blank)
}
