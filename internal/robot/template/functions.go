package template

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/template"
)

// newFuncMap returns the functions of a template. They access only the data and the task's
// directory. None returns a text longer than MaxOutput or uses much more memory, since a loop
// could double a text without writing it.
func newFuncMap(d Data, root *os.Root) template.FuncMap {
	env := newLookup("env", "the task's environment has no %s", d.Env)
	return template.FuncMap{
		"env":          env,
		"envOrDefault": func(name, fallback string) (string, error) { return env(name, fallback) },
		"meta":         newLookup("meta", "the job's meta has no %s", d.Meta),
		"label":        newLookup("label", "the robot has no label %s", d.Labels),
		"attr":         newLookup("attr", "the robot has no attribute %s", d.Attrs),
		"file":         func(name string) (string, error) { return readFile(root, name) },
		"default":      orDefault,

		"toJSON":       toJSON,
		"parseJSON":    parseJSON,
		"parseInt":     parseInt,
		"parseBool":    parseBool,
		"base64Encode": func(s string) (string, error) { return checkLength(base64.StdEncoding.EncodeToString([]byte(s))) },
		"base64Decode": base64Decode,
		"sha256Hex":    func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) },

		"toLower":    func(s string) (string, error) { return checkLength(strings.ToLower(s)) },
		"toUpper":    func(s string) (string, error) { return checkLength(strings.ToUpper(s)) },
		"trimSpace":  strings.TrimSpace,
		"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
		"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
		"contains":   func(part, s string) bool { return strings.Contains(s, part) },
		"replaceAll": replaceAll,
		"split":      func(sep, s string) []string { return strings.Split(s, sep) },
		"join":       join,
		"indent":     indent,

		// Functions of the template language with the limits applied.
		"print":    boundResult(fmt.Sprint),
		"println":  boundResult(fmt.Sprintln),
		"printf":   printf,
		"html":     boundResult(template.HTMLEscaper),
		"js":       boundResult(template.JSEscaper),
		"urlquery": boundResult(template.URLQueryEscaper),
	}
}

// newLookup returns a function that looks up a name in one of the maps of the data. A missing name
// is an error unless the template has a fallback, since an incomplete configuration is noticed
// later than none.
func newLookup(function, missing string, from map[string]string) func(string, ...string) (string, error) {
	return func(name string, fallback ...string) (string, error) {
		value, found := from[name]
		switch {
		case len(fallback) > 1:
			return "", fmt.Errorf("%s accepts a name and at most one default", function)
		case found:
			return value, nil
		case len(fallback) == 1:
			return fallback[0], nil
		}
		return "", fmt.Errorf(missing+"; use %s %q \"\" for an empty text", strconv.Quote(name), function, name)
	}
}

// orDefault returns the fallback if the value is empty.
func orDefault(fallback, value any) any {
	if truth, ok := template.IsTrue(value); ok && truth {
		return value
	}
	return fallback
}

var errTooLong = fmt.Errorf("a text is longer than %d bytes", MaxOutput)

// checkLength returns an error if the text is too long.
func checkLength(s string) (string, error) {
	if len(s) > MaxOutput {
		return "", errTooLong
	}
	return s, nil
}

// boundResult returns an error instead of calling f if the arguments are too long already.
func boundResult(f func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		size := 0
		for _, a := range args {
			if size += writtenLength(a); size > MaxOutput {
				return "", errTooLong
			}
		}
		return checkLength(f(args...))
	}
}

// writtenLength returns the length of a value as text.
func writtenLength(v any) int {
	if s, ok := v.(string); ok {
		return len(s)
	}
	return len(fmt.Sprint(v))
}

// widePattern matches what makes a verb of printf write more than its argument.
var widePattern = regexp.MustCompile(`[0-9]{4}|\*`)

// printf is fmt.Sprintf without widths above 999, since each verb could otherwise write a
// megabyte.
func printf(format string, args ...any) (string, error) {
	if widePattern.MatchString(format) {
		return "", errors.New("printf does not support * or a width above 999")
	}
	longest := 999
	for _, a := range args {
		longest = max(longest, writtenLength(a))
	}
	// One argument can be used by any number of verbs: %[1]s.
	if strings.Count(format, "%")*longest > 16*MaxOutput {
		return "", errTooLong
	}
	return checkLength(fmt.Sprintf(format, args...))
}

func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", errors.New("the value cannot be written as JSON")
	}
	return checkLength(string(b))
}

func parseJSON(s string) (v any, err error) {
	if json.Unmarshal([]byte(s), &v) != nil {
		return nil, errors.New("the text is not JSON") // without the value, which may be secret
	}
	return v, nil
}

func parseInt(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errors.New("the text is not an integer")
	}
	return n, nil
}

func parseBool(s string) (bool, error) {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, errors.New("the text is neither true nor false")
	}
	return b, nil
}

func base64Decode(s string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return "", errors.New("the text is not base64")
	}
	return string(b), nil
}

func replaceAll(old, with, s string) (string, error) {
	if len(s)+strings.Count(s, old)*len(with) > 2*MaxOutput {
		return "", errTooLong
	}
	return checkLength(strings.ReplaceAll(s, old, with))
}

// join accepts a list of texts, or of any values, such as parseJSON returns.
func join(sep string, list any) (string, error) {
	var parts []string
	switch l := list.(type) {
	case []string:
		parts = l
	case []any:
		for _, v := range l {
			parts = append(parts, fmt.Sprint(v))
		}
	default:
		return "", errors.New("join requires a list")
	}
	size := len(parts) * len(sep)
	for _, p := range parts {
		if size += len(p); size > 2*MaxOutput {
			return "", errTooLong
		}
	}
	return checkLength(strings.Join(parts, sep))
}

// indent inserts spaces at the start of each line.
func indent(spaces int, s string) (string, error) {
	if spaces < 0 || spaces > 100 {
		return "", errors.New("indent accepts 0 to 100 spaces")
	}
	margin := strings.Repeat(" ", spaces)
	return replaceAll("\n", "\n"+margin, margin+s)
}
