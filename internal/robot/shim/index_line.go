package shim

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"time"
)

// Indexes is what the state file has about the indexes of a range.
type Indexes struct {
	// Running is the index that was or may have been started last. Nil if there is none, or it has an end.
	Running *int32
	// Ends of indexes, in order. An index that was stopped with its range has none.
	Ends []IndexEnd
}

// IndexEnd is how an index of a range ended.
type IndexEnd struct {
	Index int32
	// Code is the exit code, or 128 plus the number of the signal that ended the process.
	Code int
	// Signal is the number of the signal that ended the process, or 0.
	Signal int
	// Reason is why it failed, such as Timeout. If empty, the process ended by itself.
	Reason string
	// At has no more than microseconds.
	At       time.Time
	Duration time.Duration
}

// HasSucceeded reports whether the process ended by itself with exit code 0.
func (e IndexEnd) HasSucceeded() bool { return e.Code == 0 && e.Reason == "" }

// The first byte of the lines of indexes in the state file. Other lines are JSON.
//
//	+INDEX
//	=INDEX CODE SIGNAL REASON AT DURATION
const (
	startOfIndex = '+'
	endOfIndex   = '='
	// noReason is in the place of an empty reason.
	noReason = "-"
)

// maxIndexBytes bounds the two lines of an index.
const maxIndexBytes = 80

func appendIndexStart(b []byte, index int32) []byte {
	return append(strconv.AppendInt(append(b, startOfIndex), int64(index), 10), '\n')
}

// appendIndexEnd writes times in microseconds. The reason must have no spaces.
func appendIndexEnd(b []byte, e IndexEnd) []byte {
	b = strconv.AppendInt(append(b, endOfIndex), int64(e.Index), 10)
	b = strconv.AppendInt(append(b, ' '), int64(e.Code), 10)
	b = strconv.AppendInt(append(b, ' '), int64(e.Signal), 10)
	reason := e.Reason
	if reason == "" {
		reason = noReason
	}
	b = append(append(b, ' '), reason...)
	b = strconv.AppendInt(append(b, ' '), e.At.UnixMicro(), 10)
	b = strconv.AppendInt(append(b, ' '), e.Duration.Microseconds(), 10)
	return append(b, '\n')
}

// parseLine adds a line of the state file. It returns false if that is not the line of an index.
func (x *Indexes) parseLine(line []byte) bool {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) == 0 || line[0] != startOfIndex && line[0] != endOfIndex {
		return false
	}
	fields := bytes.Split(line[1:], []byte(" "))
	if line[0] == endOfIndex {
		e, ok := parseIndexEnd(fields)
		if ok {
			x.Ends, x.Running = append(x.Ends, e), nil
		}
		return ok
	}
	index, ok := parseIndex(fields[0])
	if ok = ok && len(fields) == 1; ok {
		x.Running = &index
	}
	return ok
}

// endFields is the number of fields of the line of an end.
const endFields = 6

func parseIndexEnd(fields [][]byte) (e IndexEnd, ok bool) {
	if len(fields) != endFields {
		return e, false
	}
	if e.Index, ok = parseIndex(fields[0]); !ok {
		return e, false
	}
	if e.Reason = string(fields[3]); e.Reason == noReason {
		e.Reason = ""
	} else if e.Reason == "" || slices.ContainsFunc(fields[3], isNoLetter) {
		return e, false
	}
	var numbers [endFields]int64
	for _, i := range []int{1, 2, 4, 5} {
		if numbers[i], ok = parseNumber(fields[i]); !ok {
			return e, false
		}
	}
	e.Code, e.Signal = int(numbers[1]), int(numbers[2])
	e.At, e.Duration = time.UnixMicro(numbers[4]).UTC(), time.Duration(numbers[5])*time.Microsecond
	return e, true
}

func parseIndex(text []byte) (index int32, ok bool) {
	n, ok := parseNumber(text)
	return int32(n), ok && n <= math.MaxInt32
}

// parseNumber rejects numbers that would not fit as a time in microseconds.
func parseNumber(text []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil && n >= 0 && n <= int64(math.MaxInt64/time.Microsecond)
}

func isNoLetter(b byte) bool { return (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') }
