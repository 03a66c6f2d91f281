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

// ErrCursor is the error for a cursor that no page of the same query has given.
var ErrCursor = errors.New("the cursor is none that a page of this query has given; begin without one")

// where collects the conditions of a statement and their arguments. Text comes from this
// package alone, values go beside it.
type where struct {
	terms []string
	args  []any
	// opaque has columns of text compared so that no index of them is taken: SQLite, which does
	// not count, would look through a whole kind for what another condition finds at once.
	opaque bool
}

// and adds a condition, in which each ? stands for one of the values.
func (w *where) and(term string, values ...any) { w.terms = append(w.terms, w.fill(term, values...)) }

// fill puts what stands for the values into a text with a ? for each.
func (w *where) fill(text string, values ...any) string {
	for _, v := range values {
		text = strings.Replace(text, "?", w.arg(v), 1)
	}
	return text
}

// arg adds a value and returns what stands for it.
func (w *where) arg(v any) string {
	w.args = append(w.args, v)
	return "$" + strconv.Itoa(len(w.args))
}

// is wants a column to have a value. Empty: any.
func (w *where) is(column, value string) {
	if value != "" {
		w.and(w.text(column)+" = ?", value)
	}
}

func (w *where) text(column string) string {
	if w.opaque {
		return column + " || ''"
	}
	return column
}

// among wants a column to have one of some values. Nil: any; empty: there is none.
func (w *where) among(column string, values []string) {
	if values == nil {
		return
	}
	if len(values) == 0 {
		w.and("1 = 0")
		return
	}
	marks := make([]string, len(values))
	for i, v := range values {
		marks[i] = w.arg(v)
	}
	w.and(w.text(column) + " IN (" + strings.Join(marks, ", ") + ")")
}

// separate is how many namespaces are asked for one by one.
const separate = 16

// apart are the namespaces that one statement asks for. An index has what is in one namespace in
// order, and in several it has not: the database would sort all that is in them.
func apart(namespaces []string) [][]string {
	if len(namespaces) < 2 || len(namespaces) > separate {
		return [][]string{namespaces}
	}
	return slices.Collect(slices.Chunk(namespaces, 1))
}

// within wants a time to lie in [since, until). Zero: no bound.
func (w *where) within(column string, since, until time.Time) {
	if !since.IsZero() {
		w.and(column+" >= ?", since.UnixMicro())
	}
	if !until.IsZero() {
		w.and(column+" < ?", until.UnixMicro())
	}
}

// before wants what follows the last row of a page, in an order from high to low.
func (w *where) before(cursor string, columns ...string) error {
	if cursor == "" {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return ErrCursor
	}
	var last position
	if err := json.Unmarshal(raw, &last); err != nil || last.wrong() || len(last.Keys)+1 != len(columns) {
		return ErrCursor
	}
	marks := []string{w.arg(last.At)}
	for _, k := range last.Keys {
		marks = append(marks, w.arg(k))
	}
	w.and(fmt.Sprintf("(%s) < (%s)", strings.Join(columns, ", "), strings.Join(marks, ", ")))
	return nil
}

// String is the condition as a statement has it.
func (w *where) String() string {
	if len(w.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.terms, " AND ")
}

// position is where a page ended.
type position struct {
	At   int64 `json:"t"`
	Keys []any `json:"k"`
}

// wrong tells whether a position has keys that no statement takes.
func (p *position) wrong() bool {
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

func cursor(at int64, keys ...any) string {
	raw, err := json.Marshal(position{at, keys})
	if err != nil {
		panic(err) // keys are text and numbers
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// limit is how many items a page has.
func limit(n int) int {
	switch {
	case n <= 0:
		return DefaultLimit
	case n > MaxLimit:
		return MaxLimit
	}
	return n
}
