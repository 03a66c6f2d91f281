package archive

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultLimit of items in a page.
	DefaultLimit = 100
	// MaxLimit of items in a page.
	MaxLimit = 1000
)

// ErrCursor means that the cursor is not from a page of the same query.
var ErrCursor = errors.New("invalid cursor: not from a page of this query; start again without one")

// where collects the conditions of a statement and their arguments. Text comes from this package
// only; values are passed as arguments.
type where struct {
	terms []string
	args  []any
	// opaque compares columns of text so that SQLite uses no index on them: it would scan a whole
	// kind for what another condition finds at once.
	opaque bool
}

// addTerm adds a condition in which each ? stands for one of the values.
func (w *where) addTerm(term string, values ...any) {
	w.terms = append(w.terms, w.fillValues(term, values...))
}

// fillValues replaces each ? in a text by the placeholder of a value.
func (w *where) fillValues(text string, values ...any) string {
	for _, v := range values {
		text = strings.Replace(text, "?", w.addArg(v), 1)
	}
	return text
}

// addArg adds a value and returns its placeholder.
func (w *where) addArg(v any) string {
	w.args = append(w.args, v)
	return "$" + strconv.Itoa(len(w.args))
}

// requireEqual requires a column to have a value. Empty: any.
func (w *where) requireEqual(column, value string) {
	if value != "" {
		w.addTerm(w.textColumn(column)+" = ?", value)
	}
}

func (w *where) textColumn(column string) string {
	if w.opaque {
		return column + " || ''"
	}
	return column
}

// requireOneOf requires a column to have one of the values. Nil: any; empty: none matches.
func (w *where) requireOneOf(column string, values []string) {
	if values == nil {
		return
	}
	if len(values) == 0 {
		w.addTerm("1 = 0")
		return
	}
	marks := make([]string, len(values))
	for i, v := range values {
		marks[i] = w.addArg(v)
	}
	w.addTerm(w.textColumn(column) + " IN (" + strings.Join(marks, ", ") + ")")
}

// maxSeparate is the number of namespaces up to which each has a statement of its own.
const maxSeparate = 16

// groupNamespaces returns the namespaces of each statement. An index has the objects of one
// namespace in order; for several at once the database would sort all of them.
func groupNamespaces(namespaces []Namespace) [][]Namespace {
	if len(namespaces) < 2 || len(namespaces) > maxSeparate {
		return [][]Namespace{namespaces}
	}
	return slices.Collect(slices.Chunk(namespaces, 1))
}

// requireTime requires a time in [since, until). Zero: no bound.
func (w *where) requireTime(column string, since, until time.Time) {
	if !since.IsZero() {
		w.addTerm(column+" >= ?", since.UnixMicro())
	}
	if !until.IsZero() {
		w.addTerm(column+" < ?", until.UnixMicro())
	}
}

// requireAfterCursor requires rows after the last one of a page, in descending order.
func (w *where) requireAfterCursor(cursor string, columns ...string) error {
	if cursor == "" {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return ErrCursor
	}
	var last position
	if err := json.Unmarshal(raw, &last); err != nil || last.hasInvalidKeys() || len(last.Keys)+1 != len(columns) {
		return ErrCursor
	}
	marks := []string{w.addArg(last.At)}
	for _, k := range last.Keys {
		marks = append(marks, w.addArg(k))
	}
	w.addTerm(fmt.Sprintf("(%s) < (%s)", strings.Join(columns, ", "), strings.Join(marks, ", ")))
	return nil
}

// String returns the conditions as a WHERE clause.
func (w *where) String() string {
	if len(w.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.terms, " AND ")
}

// position is the end of a page.
type position struct {
	At   int64 `json:"t"`
	Keys []any `json:"k"`
}

// hasInvalidKeys reports whether a position has keys that no statement takes.
func (p *position) hasInvalidKeys() bool {
	for i, k := range p.Keys {
		switch k := k.(type) {
		case string:
		case float64:
			p.Keys[i] = int64(k)
		default:
			return true
		}
	}
	return false
}

func encodeCursor(at int64, keys ...any) string {
	raw, err := json.Marshal(position{at, keys})
	if err != nil {
		panic(err) // keys are text and numbers
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// pageLimit returns the number of items in a page.
func pageLimit(n int) int {
	switch {
	case n <= 0:
		return DefaultLimit
	case n > MaxLimit:
		return MaxLimit
	}
	return n
}
