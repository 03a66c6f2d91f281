package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"k8s4r.io/k8s4r/internal/wire"
)

// A line is
//
//	CHECKSUM LENGTH NUMBER JSON\n
//
// in hexadecimal digits of fixed width. LENGTH is that of the JSON in bytes,
// NUMBER counts the records from 1 without a gap, and CHECKSUM is the CRC-32C
// of everything between the first space and the end of the line. JSON never
// contains a line end, so a damaged line does not hide the next one.
const (
	sumWidth   = 8 + 1
	headWidth  = sumWidth + 8 + 1 + 16 + 1
	maxPayload = 4 << 20 // the largest message, with every byte escaped, fits
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendLine(b []byte, n uint64, payload []byte) []byte {
	body := fmt.Appendf(nil, "%08x %016x %s", len(payload), n, payload)
	return fmt.Appendf(b, "%08x %s\n", crc32.Checksum(body, castagnoli), body)
}

var errDamaged = errors.New("damaged line")

// stored is a record as it was read. Its Task is nil: an agent that starts reads
// thousands of them, and needs those of the few attempts that have not ended.
type stored struct {
	Record
	Task json.RawMessage `json:"task"`
}

// unread are the Tasks of attempts that have not ended, by UID and attempt.
type unread map[attemptID]json.RawMessage

type attemptID struct {
	uid     string
	attempt int32
}

// apply takes in a record.
func (u unread) apply(r stored) {
	id := attemptID{r.UID, r.Attempt}
	switch r.Kind {
	case Accepted:
		u[id] = r.Task
	case Dropped, Ended:
		delete(u, id)
	case Started, Adopted, Acked: // say nothing of it
	}
}

// into reads them. One that cannot be read is left out: who takes the attempt over
// does without.
func (u unread) into(x index) {
	for id, raw := range u {
		var task wire.Task
		if len(raw) > 0 && json.Unmarshal(raw, &task) == nil {
			x.at(id.uid, id.attempt).Task = &task
		}
	}
}

// parseLine reads a line, its line end included.
func parseLine(line []byte) (r stored, err error) {
	if len(line) < headWidth+1 || line[len(line)-1] != '\n' {
		return r, errDamaged
	}
	body, payload := line[sumWidth:len(line)-1], line[headWidth:len(line)-1]
	sum, sumOK := hexadecimal(line[:sumWidth])
	size, sizeOK := hexadecimal(line[sumWidth : sumWidth+8+1])
	n, nOK := hexadecimal(line[sumWidth+8+1 : headWidth])
	if !sumOK || !sizeOK || !nOK || crc32.Checksum(body, castagnoli) != uint32(sum) || uint64(len(payload)) != size {
		return r, errDamaged
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, errDamaged
	}
	r.n = n
	return r, nil
}

// hexadecimal reads a number of up to 16 digits with a space behind it.
func hexadecimal(field []byte) (n uint64, ok bool) {
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

// reader reads the records of a journal and passes over what is damaged.
type reader struct {
	r       *bufio.Reader
	at      int64 // read so far
	whole   int64 // end of the last good line
	damaged int   // lines passed over before that
	bad     int   // since the last good line
}

func newReader(r io.Reader) *reader { return &reader{r: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next good record, and io.EOF after the last one. Damage
// behind the last good line is the torn end of the file and not counted.
func (r *reader) next() (stored, error) {
	for {
		line, err := r.line()
		if err != nil {
			return stored{}, err
		}
		rec, err := parseLine(line)
		if err != nil {
			r.bad++
			continue
		}
		r.damaged, r.bad, r.whole = r.damaged+r.bad, 0, r.at
		return rec, nil
	}
}

// line reads up to the next line end. What is longer than a line can be comes
// back cut, and so reads as damaged.
func (r *reader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.r.ReadSlice('\n')
		r.at += int64(len(part))
		if len(line) <= headWidth+maxPayload {
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
