package cli

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"sync"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
)

// stampLayout is the time format of --timestamps.
const stampLayout = "2006-01-02T15:04:05.000000Z07:00"

// logPrinter prints the log of one task unchanged: it adds no newlines. On a terminal it removes
// escape sequences. Messages about the log go to err.
type logPrinter struct {
	out, err io.Writer
	stamps   bool
	open     map[record.Stream]bool          // streams whose last line has no newline yet
	filters  map[record.Stream]*escapeFilter // nil if out is not a terminal
}

func (d *deps) newLogPrinter(stamps bool) *logPrinter {
	p := &logPrinter{out: d.Out, err: d.Err, stamps: stamps, open: map[record.Stream]bool{}}
	if d.terminal.is {
		p.filters = map[record.Stream]*escapeFilter{}
	}
	return p
}

// printerFor implements taskPrinter for a Job that has one task.
func (p *logPrinter) printerFor(string) (print func(record.Record), done func()) {
	return p.printRecord, p.endLines
}

func (p *logPrinter) printRecord(r record.Record) {
	if r.Stream == record.Server || r.Stream == record.System {
		p.endLines()
		fmt.Fprintf(p.err, "-- %s %s\n", r.Time.Local().Format("15:04:05"), stripControl(string(r.Text)))
		return
	}
	if p.stamps && !p.open[r.Stream] {
		fmt.Fprintf(p.out, "%s ", r.Time.Format(stampLayout))
	}
	p.open[r.Stream] = r.Partial
	text := p.filterText(r)
	if !r.Partial {
		text = append(text, '\n')
	}
	_, _ = p.out.Write(text) // a reader that has closed the pipe needs no error
}

func (p *logPrinter) filterText(r record.Record) []byte {
	if p.filters == nil {
		return r.Text
	}
	if p.filters[r.Stream] == nil {
		p.filters[r.Stream] = &escapeFilter{}
	}
	return p.filters[r.Stream].filterText(r.Text, !r.Partial)
}

// endLines ends unfinished lines.
func (p *logPrinter) endLines() {
	for s, open := range p.open {
		if open {
			fmt.Fprintf(p.out, "%s\n", p.filterText(record.Record{Stream: s}))
			p.open[s] = false
		}
	}
}

// maxHeld bounds the part of an unfinished line that is held, in bytes.
const maxHeld = 64 << 10

// jobPrinter prints the logs of many tasks as whole lines, each with the name of its task. On a
// terminal it removes escape sequences.
type jobPrinter struct {
	out, err io.Writer
	stamps   bool
	terminal terminal
	mu       sync.Mutex
}

func (d *deps) newJobPrinter(stamps bool) *jobPrinter {
	return &jobPrinter{out: d.Out, err: d.Err, stamps: stamps, terminal: d.terminal}
}

// printerFor returns a function that prints the records of one task. done prints an unfinished
// line.
func (p *jobPrinter) printerFor(task string) (print func(record.Record), done func()) {
	held := map[record.Stream]record.Record{} // unfinished lines, with all of their text
	print = func(r record.Record) {
		r.Text = append(held[r.Stream].Text, r.Text...)
		if r.Partial && len(r.Text) < maxHeld {
			held[r.Stream] = r
			return
		}
		p.printLine(task, r)
		held[r.Stream] = record.Record{Text: r.Text[:0]}
	}
	done = func() {
		for s, r := range held {
			if len(r.Text) > 0 {
				p.printLine(task, record.Record{Stream: s, Index: r.Index, Text: r.Text})
			}
		}
	}
	return print, done
}

// printLine prints a whole line with the name of its task. A line of an index of an array has the
// index behind the name.
func (p *jobPrinter) printLine(task string, r record.Record) {
	out, stamp, text := p.out, "", r.Text
	if r.Stream == record.Server || r.Stream == record.System {
		out, stamp, text = p.err, "-- ", []byte(stripControl(string(text)))
	} else if p.terminal.is {
		text = filterLine(text)
	}
	if p.stamps && !r.Time.IsZero() {
		stamp += r.Time.Format(stampLayout) + " "
	}
	if r.Index != nil {
		task = fmt.Sprintf("%s#%d", task, *r.Index)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(out, "%s %s%s\n", p.linePrefix(task), stamp, text)
}

// filterLine returns one whole line for a terminal. A carriage return would let the line overwrite
// the name of its task.
func filterLine(text []byte) []byte {
	var f escapeFilter
	text = f.filterText(bytes.TrimRight(text, "\r"), true)
	return bytes.ReplaceAll(text, []byte{'\r'}, []byte{' '})
}

// nameColors are the colors of task names, as SGR parameters that are readable on dark and light
// backgrounds.
var nameColors = []int{31, 32, 33, 34, 35, 36, 91, 92, 94, 95}

func (p *jobPrinter) linePrefix(task string) string {
	if !p.terminal.color {
		return "[" + task + "]"
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(task))
	return fmt.Sprintf("\x1b[%dm[%s]\x1b[0m", nameColors[int(h.Sum32())%len(nameColors)], task)
}
