package cli

import (
	"fmt"
	"hash/fnv"
	"io"
	"sync"

	"k8s4r.io/k8s4r/internal/tasklog"
)

// stampLayout is that of --timestamps.
const stampLayout = "2006-01-02T15:04:05.000000Z07:00"

// logPrinter shows the log of one task as the task wrote it: what has no newline
// gets none. What others say about the task goes to err.
type logPrinter struct {
	out, err io.Writer
	stamps   bool
	open     map[tasklog.Stream]bool // a line is not finished
}

func (p *logPrinter) print(r tasklog.Record) {
	if r.Stream == tasklog.Server || r.Stream == tasklog.System {
		p.close()
		fmt.Fprintf(p.err, "-- %s %s\n", r.Time.Local().Format("15:04:05"), printable(string(r.Text)))
		return
	}
	if p.stamps && !p.open[r.Stream] {
		fmt.Fprintf(p.out, "%s ", r.Time.Format(stampLayout))
	}
	p.open[r.Stream] = r.Partial
	text := r.Text
	if !r.Partial {
		text = append(text, '\n')
	}
	_, _ = p.out.Write(text) // who does not read any more is not told
}

// close ends lines that are not finished.
func (p *logPrinter) close() {
	for s, open := range p.open {
		if open {
			fmt.Fprintln(p.out)
			p.open[s] = false
		}
	}
}

// maxHeld bounds what of a line waits for its end.
const maxHeld = 64 << 10

// jobPrinter shows the logs of many tasks, whole lines with the name of the task
// before each.
type jobPrinter struct {
	out, err io.Writer
	stamps   bool
	color    bool
	mu       sync.Mutex
}

// of prints the records of one task. done shows what has no end.
func (p *jobPrinter) of(task string) (print func(tasklog.Record), done func()) {
	held := map[tasklog.Stream][]byte{}
	print = func(r tasklog.Record) {
		held[r.Stream] = append(held[r.Stream], r.Text...)
		if r.Partial && len(held[r.Stream]) < maxHeld {
			return
		}
		p.line(task, r, held[r.Stream])
		held[r.Stream] = held[r.Stream][:0]
	}
	done = func() {
		for s, text := range held {
			if len(text) > 0 {
				p.line(task, tasklog.Record{Stream: s}, text)
			}
		}
	}
	return print, done
}

func (p *jobPrinter) line(task string, r tasklog.Record, text []byte) {
	out, stamp := p.out, ""
	if r.Stream == tasklog.Server || r.Stream == tasklog.System {
		out, stamp, text = p.err, "-- ", []byte(printable(string(text)))
	}
	if p.stamps && !r.Time.IsZero() {
		stamp += r.Time.Format(stampLayout) + " "
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(out, "%s %s%s\n", p.prefix(task), stamp, text)
}

// colors of the tasks' names: those that can be read on dark and on light.
var colors = []int{31, 32, 33, 34, 35, 36, 91, 92, 94, 95}

func (p *jobPrinter) prefix(task string) string {
	if !p.color {
		return "[" + task + "]"
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(task))
	return fmt.Sprintf("\x1b[%dm[%s]\x1b[0m", colors[int(h.Sum32())%len(colors)], task)
}
