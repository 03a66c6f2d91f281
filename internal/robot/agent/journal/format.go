package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// A line is
//
//	2 CHECKSUM LENGTH NUMBER JSON\n
//
// where 2 is the version of the format and the numbers are hexadecimal with a fixed width.
// LENGTH is the size of the JSON in bytes, NUMBER counts the records from 1 without a gap,
// and CHECKSUM is the CRC-32C of the text between the space after it and the end of the line.
// JSON never contains a line end, so a damaged line does not hide the next one.
const (
	version    = "2 " // of Format
	sumWidth   = 8 + 1
	headWidth  = sumWidth + 8 + 1 + 16 + 1 // without the version
	maxPayload = 4 << 20                   // the largest message, with every byte escaped, fits
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func formatLine(b []byte, n uint64, payload []byte) []byte {
	body := fmt.Appendf(nil, "%08x %016x %s", len(payload), n, payload)
	return fmt.Appendf(b, "%s%08x %s\n", version, crc32.Checksum(body, castagnoli), body)
}

var errDamaged = errors.New("damaged line")

// ErrOldFormat rejects a journal that an agent with another format has written.
var ErrOldFormat = errors.New("written by an agent of an earlier version, whose journal this agent cannot read; " +
	"drain the robot while that agent runs (k8s4r robot drain), stop the agent, then delete the file")

// ErrNewFormat rejects a journal that an agent with a newer format has written. Its lines must not be skipped
// as damaged ones: they would be truncated.
var ErrNewFormat = errors.New("written by an agent of a later version, whose journal this agent cannot read; " +
	"start that version again")

// Format is the version of the lines that this agent writes, and the newest that it reads.
const Format = 2

// storedRecord is a record as it was read. Its Task is not decoded: a starting agent reads
// thousands of records, and needs the Tasks of the few attempts that have not ended.
type storedRecord struct {
	Record
	Task json.RawMessage `json:"task"`
}

// pendingTasks holds the encoded Tasks of attempts that have not ended.
type pendingTasks map[attemptID]json.RawMessage

type attemptID struct {
	uid     string
	attempt int32
}

// addRecord keeps the Task of an attempt until it has ended.
func (u pendingTasks) addRecord(r storedRecord) {
	id := attemptID{r.UID, r.Attempt}
	switch r.Kind {
	case Accepted:
		u[id] = r.Task
	case Dropped, Ended:
		delete(u, id)
	case Run, Started, RunEnded, NoRun, Adopted, Acked: // they do not change it
	}
}

// fillEntries decodes the Tasks into the entries. An invalid one is left out: the runner can
// take over an attempt without it.
func (u pendingTasks) fillEntries(x index) {
	for id, raw := range u {
		var task wire.Task
		if len(raw) > 0 && json.Unmarshal(raw, &task) == nil {
			x.entryOf(id.uid, id.attempt).Task = &task
		}
	}
}

// parseLine parses a line with its line end. It returns ErrOldFormat for an intact line of
// format 1, which had no version, and ErrNewFormat for one of a later format.
func parseLine(line []byte) (r storedRecord, err error) {
	rest, current := bytes.CutPrefix(line, []byte(version))
	switch {
	case current:
		return parseRecord(rest)
	case isNewFormat(line):
		return r, ErrNewFormat
	}
	if _, err := parseRecord(line); err == nil {
		return r, ErrOldFormat
	}
	return r, errDamaged
}

// isNewFormat reports whether a line begins with a later version, and the checksum after it fits. All formats
// keep these two.
func isNewFormat(line []byte) bool {
	number, rest, _ := bytes.Cut(line, []byte(" "))
	n, err := strconv.Atoi(string(number))
	if err != nil || len(number) > 3 || n <= Format || len(rest) < sumWidth+1 || rest[len(rest)-1] != '\n' {
		return false
	}
	sum, ok := parseHex(rest[:sumWidth])
	return ok && crc32.Checksum(rest[sumWidth:len(rest)-1], castagnoli) == uint32(sum)
}

// parseRecord parses a line without its version.
func parseRecord(line []byte) (r storedRecord, err error) {
	if len(line) < headWidth+1 || line[len(line)-1] != '\n' {
		return r, errDamaged
	}
	body, payload := line[sumWidth:len(line)-1], line[headWidth:len(line)-1]
	sum, sumOK := parseHex(line[:sumWidth])
	size, sizeOK := parseHex(line[sumWidth : sumWidth+8+1])
	n, nOK := parseHex(line[sumWidth+8+1 : headWidth])
	if !sumOK || !sizeOK || !nOK || crc32.Checksum(body, castagnoli) != uint32(sum) || uint64(len(payload)) != size {
		return r, errDamaged
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, errDamaged
	}
	r.n = n
	return r, nil
}

// parseHex parses a number of up to 16 digits that a space follows.
func parseHex(field []byte) (n uint64, ok bool) {
	last := len(field) - 1
	if field[last] != ' ' {
		return 0, false
	}
	for _, c := range field[:last] {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | uint64(c-'0')
		case 'a' <= c && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// lineReader reads the records of a journal and skips damaged lines.
type lineReader struct {
	r         *bufio.Reader
	at        int64 // read so far
	intactEnd int64 // end of the last good line
	damaged   int   // lines skipped before that
	bad       int   // since the last good line
	isNew     bool  // a line since the last good one has a later format
}

func newLineReader(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(r, 64<<10)} }

// nextRecord returns the next intact record, and io.EOF after the last one. It returns
// ErrOldFormat only before the first record: later, a line without its version is a damaged one. It
// returns ErrNewFormat at the end if no record follows a line of a later format: the version of a single
// line may be damaged.
// Damage after the last intact line is an interrupted write and is not counted.
func (r *lineReader) nextRecord() (storedRecord, error) {
	for {
		line, err := r.readLine()
		if errors.Is(err, io.EOF) && r.isNew {
			return storedRecord{}, ErrNewFormat
		}
		if err != nil {
			return storedRecord{}, err
		}
		rec, err := parseLine(line)
		if errors.Is(err, ErrOldFormat) && r.intactEnd == 0 {
			return storedRecord{}, err
		}
		if err != nil {
			r.isNew = r.isNew || errors.Is(err, ErrNewFormat)
			r.bad++
			continue
		}
		r.damaged, r.bad, r.isNew, r.intactEnd = r.damaged+r.bad, 0, false, r.at
		return rec, nil
	}
}

// readLine reads up to the next line end. A line that is too long is truncated, and so is
// found to be damaged.
func (r *lineReader) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := r.r.ReadSlice('\n')
		r.at += int64(len(part))
		if len(line) <= len(version)+headWidth+maxPayload {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) && len(line) > 0 {
				err = nil
			}
			return line, err
		}
	}
}
