// Package indexset has sets of the indexes of an array, which objects and messages hold as text such
// as "0-57,60".
package indexset

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// MaxIndex is the largest index of an array.
const MaxIndex = 999_999

// Range has the indexes from First to Last, both included.
type Range struct{ First, Last int32 }

func (r Range) size() int { return int(r.Last-r.First) + 1 }

// Set is a set of indexes: ranges in ascending order that neither overlap nor touch. The zero value is
// empty. Sets are values: no function changes one.
type Set struct{ ranges []Range }

// Of returns the set of these indexes, in any order.
func Of(indexes ...int32) Set {
	ranges := make([]Range, len(indexes))
	for i, n := range indexes {
		ranges[i] = Range{n, n}
	}
	return join(ranges)
}

// UpTo returns the set of the first size indexes, from 0.
func UpTo(size int) Set {
	if size <= 0 {
		return Set{}
	}
	return Set{[]Range{{0, int32(size - 1)}}}
}

// Parse parses the text of a set: numbers and ranges in ascending order, such as "0-57,60". The empty
// text is the empty set.
func Parse(text string) (Set, error) {
	if text == "" {
		return Set{}, nil
	}
	var s Set
	next := int32(0)
	for part := range strings.SplitSeq(text, ",") {
		r, err := parseRange(part)
		if err != nil {
			return Set{}, err
		}
		if r.First < next {
			return Set{}, fmt.Errorf("%q: the indexes must ascend, and none may occur twice", part)
		}
		next = r.Last + 1
		s.ranges = append(s.ranges, r)
	}
	return join(s.ranges), nil
}

var errRange = errors.New("want a number or a range such as 0-99")

func parseRange(text string) (Range, error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := parseIndex(from)
	if err != nil {
		return Range{}, fmt.Errorf("%.50q: %w", text, err)
	}
	last, err := parseIndex(to)
	if err != nil {
		return Range{}, fmt.Errorf("%.50q: %w", text, err)
	}
	if last < first {
		return Range{}, fmt.Errorf("%q: the range ends before it begins", text)
	}
	return Range{first, last}, nil
}

func parseIndex(text string) (int32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n > MaxIndex:
		return 0, fmt.Errorf("the largest index is %d", MaxIndex)
	case err != nil:
		return 0, errRange
	}
	return int32(n), nil
}

// String returns the text that Parse accepts.
func (s Set) String() string {
	var b []byte
	for i, r := range s.ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(r.First), 10)
		if r.Last > r.First {
			b = strconv.AppendInt(append(b, '-'), int64(r.Last), 10)
		}
	}
	return string(b)
}

// Len returns the number of indexes.
func (s Set) Len() int {
	n := 0
	for _, r := range s.ranges {
		n += r.size()
	}
	return n
}

// IsEmpty reports whether the set has no index.
func (s Set) IsEmpty() bool { return len(s.ranges) == 0 }

// Contains reports whether the set has the index.
func (s Set) Contains(index int32) bool {
	_, found := slices.BinarySearchFunc(s.ranges, index, func(r Range, i int32) int {
		switch {
		case r.Last < i:
			return -1
		case r.First > i:
			return 1
		}
		return 0
	})
	return found
}

// All yields the indexes in ascending order.
func (s Set) All() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for _, r := range s.ranges {
			for i := r.First; i <= r.Last; i++ {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// Slice returns the indexes at the positions from, from+1, … up to before to, counted from 0.
// Positions that the set does not have are left out.
func (s Set) Slice(from, to int) Set {
	var out []Range
	at := 0 // position of r.First
	for _, r := range s.ranges {
		first, last := max(from-at, 0), min(to-at, r.size())-1
		if first <= last {
			out = append(out, Range{r.First + int32(first), r.First + int32(last)})
		}
		at += r.size()
	}
	return Set{out}
}

// Position returns how many indexes of the set are less than index.
func (s Set) Position(index int32) int {
	n := 0
	for _, r := range s.ranges {
		if r.First >= index {
			break
		}
		n += int(min(r.Last+1, index) - r.First)
	}
	return n
}

// Union returns the indexes that are in s or in o.
func (s Set) Union(o Set) Set { return join(slices.Concat(s.ranges, o.ranges)) }

// Minus returns the indexes of s that are not in o.
func (s Set) Minus(o Set) Set {
	var out []Range
	rest := o.ranges
	for _, r := range s.ranges {
		for len(rest) > 0 && rest[0].Last < r.First {
			rest = rest[1:]
		}
		from := r.First
		for _, cut := range rest {
			if cut.First > r.Last {
				break
			}
			if cut.First > from {
				out = append(out, Range{from, cut.First - 1})
			}
			from = max(from, cut.Last+1)
		}
		if from <= r.Last {
			out = append(out, Range{from, r.Last})
		}
	}
	return Set{out}
}

// Intersect returns the indexes that are in both s and o.
func (s Set) Intersect(o Set) Set { return s.Minus(s.Minus(o)) }

// join sorts ranges and joins those that overlap or touch.
func join(ranges []Range) Set {
	slices.SortFunc(ranges, func(a, b Range) int { return int(a.First - b.First) })
	var out []Range
	for _, r := range ranges {
		if n := len(out); n > 0 && r.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return Set{out}
}
