package main

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s4r.io/k8s4r/hack/internal/checkout"
)

var (
	inlineLink  = regexp.MustCompile(`\]\(\s*<?((?:[^()\s<>]|\([^()\s]*\))+)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)`)
	linkDef     = regexp.MustCompile(`(?m)^ {0,3}\[([^\]\n]+)\]:[ \t]+<?([^\s>]+)`)
	linkUse     = regexp.MustCompile(`\]\[([^\]]+)\]`)
	htmlLink    = regexp.MustCompile(`\b(?:href|src)="([^"]+)"`)
	htmlAnchor  = regexp.MustCompile(`\b(?:id|name)="([^"]+)"`)
	atxHeading  = regexp.MustCompile(`^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$`)
	underlined  = regexp.MustCompile(`^ {0,3}(?:=+|-+)\s*$`)
	headingLink = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	htmlTag     = regexp.MustCompile(`</?[a-zA-Z][^>]*>`)
	lineAnchor  = regexp.MustCompile(`^L\d+`)
	onlyLink    = regexp.MustCompile(`^(?:[-*+>] |\d+\. )?\s*(?:\[[^\]]+\]:\s+\S+|!?\[[^\]]*\]\([^)]*\)|\[!\[[^\]]*\]\([^)]*\)\]\([^)]*\)|<?https?://\S+>?)[.,;]?$`)
)

// listPages returns the Markdown files. Those below testdata are not documentation.
func listPages(t *tree) []file {
	var pages []file
	for _, f := range t.files {
		if strings.HasSuffix(f.path, ".md") && !strings.Contains("/"+f.path, "/testdata/") {
			pages = append(pages, f)
		}
	}
	return pages
}

// countDeadLinks returns the relative links of all pages that lead nowhere.
func countDeadLinks(t *tree) (any, []offender) {
	anchors := map[string]map[string]bool{}
	for _, page := range listPages(t) {
		anchors[page.path] = collectAnchors(page.text)
	}
	var found []offender
	for _, page := range listPages(t) {
		if !t.isSelected(page.path) {
			continue
		}
		for _, l := range findLinks(page.text) {
			if why := checkLink(t, anchors, page.path, l.text); why != "" {
				found = append(found, offender{page.path, l.line, l.text + ": " + why})
			}
		}
	}
	return len(found), found
}

// undefined marks the target of a reference link whose definition is missing.
const undefined = "undefined reference "

// findLinks returns the targets of all links and images on a page.
func findLinks(text string) []offender {
	prose := checkout.BlankCodeSpans(strings.Join(checkout.BlankFences(text), "\n"))
	var links []offender
	add := func(offset int, target string) {
		links = append(links, offender{"", 1 + strings.Count(prose[:offset], "\n"), target})
	}
	defined := map[string]bool{}
	for _, at := range linkDef.FindAllStringSubmatchIndex(prose, -1) {
		defined[strings.ToLower(prose[at[2]:at[3]])] = true
		add(at[0], prose[at[4]:at[5]])
	}
	for _, expression := range []*regexp.Regexp{inlineLink, htmlLink} {
		for _, at := range expression.FindAllStringSubmatchIndex(prose, -1) {
			add(at[0], prose[at[2]:at[3]])
		}
	}
	for _, at := range linkUse.FindAllStringSubmatchIndex(prose, -1) {
		if name := prose[at[2]:at[3]]; !defined[strings.ToLower(name)] {
			add(at[0], undefined+name)
		}
	}
	return links
}

// checkLink returns why a link of the page leads nowhere, or an empty string.
func checkLink(t *tree, anchors map[string]map[string]bool, page, target string) string {
	if strings.HasPrefix(target, undefined) {
		return "no definition on this page"
	}
	u, err := url.Parse(target)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" || u.Host != "" {
		return ""
	}
	name := page
	if strings.HasPrefix(u.Path, "/") {
		name = path.Clean(strings.TrimPrefix(u.Path, "/"))
	} else if u.Path != "" {
		name = path.Join(path.Dir(page), u.Path)
	}
	if !t.paths[name] {
		return "no file " + name
	}
	known, isPage := anchors[name]
	if u.Fragment == "" || !isPage || known[u.Fragment] || lineAnchor.MatchString(u.Fragment) {
		return ""
	}
	return fmt.Sprintf("no heading #%s in %s", u.Fragment, name)
}

// collectAnchors returns the anchors of a page: of its headings, and those set in HTML.
func collectAnchors(text string) map[string]bool {
	anchors := map[string]bool{}
	seen := map[string]int{}
	lines := checkout.BlankFences(text)
	for i, line := range lines {
		heading := ""
		if m := atxHeading.FindStringSubmatch(line); m != nil {
			heading = m[1]
		} else if i+1 < len(lines) && strings.TrimSpace(line) != "" && underlined.MatchString(lines[i+1]) {
			heading = strings.TrimSpace(line)
		}
		if heading != "" {
			slug := makeSlug(heading)
			if n := seen[slug]; n > 0 {
				anchors[fmt.Sprintf("%s-%d", slug, n)] = true
			} else {
				anchors[slug] = true
			}
			seen[slug]++
		}
		for _, m := range htmlAnchor.FindAllStringSubmatch(line, -1) {
			anchors[m[1]] = true
		}
	}
	return anchors
}

// makeSlug returns the anchor that GitHub gives a heading: lower case, without punctuation,
// each space as a hyphen.
func makeSlug(heading string) string {
	heading = headingLink.ReplaceAllString(heading, "$1")
	heading = htmlTag.ReplaceAllString(heading, "")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// measureDocLines returns the length of the longest line of prose. Offenders are the lines
// longer than limit.
func measureDocLines(limit int) func(*tree) (any, []offender) {
	return func(t *tree) (any, []offender) {
		longest := 0
		var found []offender
		for _, page := range listPages(t) {
			if !t.isSelected(page.path) {
				continue
			}
			for i, line := range checkout.BlankFences(page.text) {
				n := utf8.RuneCountInString(line)
				trimmed := strings.TrimSpace(line)
				if strings.HasPrefix(trimmed, "|") || onlyLink.MatchString(trimmed) {
					continue
				}
				longest = max(longest, n)
				if n > limit {
					found = append(found, offender{page.path, i + 1, fmt.Sprintf("%d characters", n)})
				}
			}
		}
		return longest, found
	}
}
