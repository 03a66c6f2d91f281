package hostnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"k8s4r.io/k8s4r/internal/seglog"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/tasklog"
)

// logOptions are what can be asked of a log.
type logOptions struct {
	follow, timestamps, previous bool
	since                        time.Time // zero: all of it
	tail                         int64     // lines; negative: all
	limit                        int64     // bytes; negative: none
	stream                       tasklog.Stream
}

func parseLogOptions(q url.Values, now time.Time) (o logOptions, err error) {
	var errs []error
	flag := func(name string) bool {
		on, err := strconv.ParseBool(q.Get(name))
		return err == nil && on
	}
	number := func(name string) int64 {
		if q.Get(name) == "" {
			return -1
		}
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("%s=%s: must be a number, 0 or more", name, q.Get(name)))
		}
		return n
	}
	o = logOptions{follow: flag("follow"), timestamps: flag("timestamps"), previous: flag("previous"), tail: number("tailLines"), limit: number("limitBytes")}
	if s := number("sinceSeconds"); s >= 0 {
		o.since = now.Add(-time.Duration(s) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" {
		if o.since, err = time.Parse(time.RFC3339, text); err != nil {
			errs = append(errs, fmt.Errorf("sinceTime=%s: must be a time as 2006-01-02T15:04:05Z", text))
		}
	}
	switch q.Get("stream") {
	case "Stdout":
		o.stream = tasklog.Stdout
	case "Stderr":
		o.stream = tasklog.Stderr
	}
	return o, errors.Join(errs...)
}

// lookEvery is how often the log of a container that runs is looked at.
const lookEvery = 50 * time.Millisecond

// writeLogs writes what a run has written, and what it goes on to write.
func writeLogs(ctx context.Context, dir attemptDir, o logOptions, write func(text []byte, stderr bool) error) error {
	p := &printer{logOptions: o, write: write, begun: map[tasklog.Stream]bool{}}
	r := seglog.Reader{Dir: dir.logs()}
	offset := p.start(r)
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	buf := make([]byte, 128<<10)
	for alive := true; ; {
		chunk, err := r.ReadAt(offset, buf)
		if err != nil {
			return err
		}
		if err := p.print(chunk.Data); err != nil {
			return unlessDone(err)
		}
		offset = chunk.End()
		if len(chunk.Data) > 0 {
			continue
		}
		if !o.follow || !alive {
			return nil
		}
		// Before the last look: what it wrote up to its end must be seen.
		if alive, err = shim.Lives(dir.shim()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// errEnough ends a log that has reached its limit.
var errEnough = errors.New("enough")

func unlessDone(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// printer writes records as the user wants to read them.
type printer struct {
	logOptions
	write func(text []byte, stderr bool) error
	begun map[tasklog.Stream]bool // of a line of which a part was written
	spent int64
}

// start is the offset of the first record of the last lines that are asked for.
func (p *printer) start(r seglog.Reader) int64 {
	if p.tail < 0 {
		return 0
	}
	var starts []int64 // of lines
	var offset int64
	buf := make([]byte, 128<<10)
	open := map[tasklog.Stream]bool{}
	for {
		chunk, err := r.ReadAt(offset, buf)
		if err != nil || len(chunk.Data) == 0 {
			break
		}
		at := chunk.Offset
		for line := range bytes.Lines(chunk.Data) {
			if rec, err := tasklog.Parse(line); err == nil && p.wants(rec) {
				if !open[rec.Stream] {
					starts = append(starts, at)
				}
				open[rec.Stream] = rec.Partial
			}
			at += int64(len(line))
		}
		offset = chunk.End()
	}
	if n := int64(len(starts)); p.tail < n {
		if p.tail == 0 {
			return offset
		}
		return starts[n-p.tail]
	}
	return 0
}

func (p *printer) wants(r tasklog.Record) bool {
	return (r.Stream == tasklog.Stdout || r.Stream == tasklog.Stderr) && (p.stream == "" || p.stream == r.Stream) && !r.Time.Before(p.since)
}

func (p *printer) print(data []byte) error {
	for line := range bytes.Lines(data) {
		r, err := tasklog.Parse(line)
		if err != nil || !p.wants(r) {
			continue
		}
		var text []byte
		if p.timestamps && !p.begun[r.Stream] {
			text = append(r.Time.AppendFormat(nil, time.RFC3339Nano), ' ')
		}
		text = append(text, r.Text...)
		if !r.Partial {
			text = append(text, '\n')
		}
		p.begun[r.Stream] = r.Partial
		if err := p.put(text, r.Stream == tasklog.Stderr); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) put(text []byte, stderr bool) error {
	if p.limit >= 0 {
		text = text[:min(int64(len(text)), p.limit-p.spent)]
	}
	p.spent += int64(len(text))
	if err := p.write(text, stderr); err != nil {
		return err
	}
	if p.limit >= 0 && p.spent >= p.limit {
		return errEnough
	}
	return nil
}

// logsOf finds the directory of the run whose log is asked for.
func (n *Node) logsOf(ctx context.Context, namespace, pod, container string, previous bool) (dir attemptDir, err error) {
	err = n.inspect(ctx, namespace, pod, func(w *worker) error {
		if containerNamed(w.pod, container) == nil {
			return notFoundError{fmt.Errorf("container %q not found in pod %q", container, pod)}
		}
		r := w.record(container)
		switch {
		case previous && r.before == nil:
			return fmt.Errorf("previous terminated container %q in pod %q not found", container, pod)
		case previous:
			dir = w.places.attempt(container, r.before.attempt)
		case r.last == nil:
			return fmt.Errorf("container %q in pod %q is waiting to start: %s", container, pod, w.waiting(r).Reason)
		default:
			dir = w.places.attempt(container, r.last.attempt)
		}
		return nil
	})
	return dir, err
}

// serveLogs answers kubectl logs.
func (n *Node) serveLogs(out http.ResponseWriter, r *http.Request) {
	o, err := parseLogOptions(r.URL.Query(), time.Now())
	if err != nil {
		http.Error(out, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	dir, err := n.logsOf(r.Context(), r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"), o.previous)
	if err != nil {
		http.Error(out, err.Error(), statusCode(err))
		return
	}
	out.Header().Set("Content-Type", "text/plain")
	flush := http.NewResponseController(out)
	_ = flush.Flush()
	err = writeLogs(r.Context(), dir, o, func(text []byte, _ bool) error {
		if _, err := out.Write(text); err != nil || !o.follow {
			return err
		}
		return flush.Flush()
	})
	if err != nil && r.Context().Err() == nil {
		n.log.Warn("a log cannot be read", "dir", dir, "error", err)
	}
}

// The bounds of a termination message: of its file, and of what is taken of the log
// in its place.
const (
	maxMessage  = 4096
	maxFallback = 2048
	tailLines   = 80
)

// terminationMessage is what a container that has ended left to be told.
func terminationMessage(c *corev1.Container, dir attemptDir, r *run) string {
	text := readStart(dir.termination())
	failed := r.state.Exit == nil || r.state.Exit.Code != 0
	if text != "" || c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError || !failed {
		return text
	}
	var all bytes.Buffer
	_ = writeLogs(context.Background(), dir, logOptions{tail: tailLines, limit: -1}, func(b []byte, _ bool) error {
		_, err := all.Write(b)
		return err
	})
	return string(all.Bytes()[max(0, all.Len()-maxFallback):])
}

// readStart reads the beginning of a file that the container was free to replace, by
// a link to what only we may read or by a pipe that never ends.
func readStart(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	b, _ := io.ReadAll(io.LimitReader(f, maxMessage))
	return string(bytes.ToValidUTF8(b, nil))
}
