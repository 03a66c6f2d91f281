package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
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

// parseLine reads a line, its line end included.
func parseLine(line []byte) (Record, error) {
	var sum, size uint32
	var r Record
	if len(line) < headWidth+1 || line[len(line)-1] != '\n' {
		return r, errDamaged
	}
	if _, err := fmt.Sscanf(string(line[:headWidth]), "%08x %08x %016x ", &sum, &size, &r.n); err != nil {
		return r, errDamaged
	}
	body, payload := line[sumWidth:len(line)-1], line[headWidth:len(line)-1]
	if crc32.Checksum(body, castagnoli) != sum || len(payload) != int(size) {
		return r, errDamaged
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, errDamaged
	}
	return r, nil
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
func (r *reader) next() (Record, error) {
	for {
		line, err := r.line()
		if err != nil {
			return Record{}, err
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
