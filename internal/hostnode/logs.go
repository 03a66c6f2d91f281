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

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// logOptions are the query parameters of a log request.
type logOptions struct {
	follow, timestamps, previous bool
	since                        time.Time // zero: all
	tail                         int64     // lines; negative: all
	limit                        int64     // bytes; negative: no limit
	stream                       record.Stream
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
			errs = append(errs, fmt.Errorf("%s=%s: must be an integer, at least 0", name, q.Get(name)))
		}
		return n
	}
	o = logOptions{follow: flag("follow"), timestamps: flag("timestamps"), previous: flag("previous"), tail: number("tailLines"), limit: number("limitBytes")}
	if s := number("sinceSeconds"); s >= 0 {
		o.since = now.Add(-time.Duration(s) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" {
		if o.since, err = time.Parse(time.RFC3339, text); err != nil {
			errs = append(errs, fmt.Errorf("sinceTime=%s: must be an RFC 3339 time such as 2006-01-02T15:04:05Z", text))
		}
	}
	switch q.Get("stream") {
	case "Stdout":
		o.stream = record.Stdout
	case "Stderr":
		o.stream = record.Stderr
	}
	return o, errors.Join(errs...)
}

// logPollInterval is the interval at which the log of a running container is polled.
const logPollInterval = 50 * time.Millisecond

// writeLogs writes the log of a run, and follows it if o.follow is set.
func writeLogs(ctx context.Context, dir attemptDir, o logOptions, write func(text []byte, stderr bool) error) error {
	p := &printer{logOptions: o, write: write, partialLines: map[record.Stream]bool{}}
	r := segment.Reader{Dir: dir.logsDir()}
	offset := p.startOffset(r)
	ticks := time.NewTicker(logPollInterval)
	defer ticks.Stop()
	buf := make([]byte, 128<<10)
	for alive := true; ; {
		chunk, err := r.ReadAt(offset, buf)
		if err != nil {
			return err
		}
		if err := p.printData(chunk.Data); err != nil {
			return ignoreLimitReached(err)
		}
		offset = chunk.End()
		if len(chunk.Data) > 0 {
			continue
		}
		if !o.follow || !alive {
			return nil
		}
		// Checked before the last read, so that all output up to the exit is read.
		if alive, err = shim.IsRunning(dir.shimDir()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// errLimitReached ends a log that has reached its limit.
var errLimitReached = errors.New("limitBytes reached")

func ignoreLimitReached(err error) error {
	if errors.Is(err, errLimitReached) {
		return nil
	}
	return err
}

// printer writes records in the format that the user asked for.
type printer struct {
	logOptions
	write        func(text []byte, stderr bool) error
	partialLines map[record.Stream]bool // streams whose current line is incomplete
	written      int64
}

// startOffset returns the offset of the first record of the last o.tail lines.
func (p *printer) startOffset(r segment.Reader) int64 {
	if p.tail < 0 {
		return 0
	}
	var starts []int64 // of lines
	var offset int64
	buf := make([]byte, 128<<10)
	open := map[record.Stream]bool{}
	for {
		chunk, err := r.ReadAt(offset, buf)
		if err != nil || len(chunk.Data) == 0 {
			break
		}
		at := chunk.Offset
		for line := range bytes.Lines(chunk.Data) {
			if rec, err := record.Parse(line); err == nil && p.matchesRecord(rec) {
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

func (p *printer) matchesRecord(r record.Record) bool {
	return (r.Stream == record.Stdout || r.Stream == record.Stderr) && (p.stream == "" || p.stream == r.Stream) && !r.Time.Before(p.since)
}

func (p *printer) printData(data []byte) error {
	for line := range bytes.Lines(data) {
		r, err := record.Parse(line)
		if err != nil || !p.matchesRecord(r) {
			continue
		}
		var text []byte
		if p.timestamps && !p.partialLines[r.Stream] {
			text = append(r.Time.AppendFormat(nil, time.RFC3339Nano), ' ')
		}
		text = append(text, r.Text...)
		if !r.Partial {
			text = append(text, '\n')
		}
		p.partialLines[r.Stream] = r.Partial
		if err := p.writeText(text, r.Stream == record.Stderr); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) writeText(text []byte, stderr bool) error {
	if p.limit >= 0 {
		text = text[:min(int64(len(text)), p.limit-p.written)]
	}
	p.written += int64(len(text))
	if err := p.write(text, stderr); err != nil {
		return err
	}
	if p.limit >= 0 && p.written >= p.limit {
		return errLimitReached
	}
	return nil
}

// logsOf returns the directory of the run whose log is requested.
func (n *Node) logsOf(ctx context.Context, namespace, pod, container string, previous bool) (dir attemptDir, err error) {
	err = n.inspectPod(ctx, namespace, pod, func(w *worker) error {
		if findContainer(w.pod, container) == nil {
			return notFoundError{fmt.Errorf("container %q not found in pod %q", container, pod)}
		}
		r := w.recordOf(container)
		switch {
		case previous && r.before == nil:
			return fmt.Errorf("previous terminated container %q in pod %q not found", container, pod)
		case previous:
			dir = w.paths.attemptPath(container, r.before.attempt)
		case r.last == nil:
			return fmt.Errorf("container %q in pod %q is waiting to start: %s", container, pod, w.waitingState(r).Reason)
		default:
			dir = w.paths.attemptPath(container, r.last.attempt)
		}
		return nil
	})
	return dir, err
}

// serveLogs serves kubectl logs.
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
		n.log.Warn("cannot read a log", "dir", dir, "error", err)
	}
}

// Limits of a termination message: of its file, and of the end of the log that replaces it.
const (
	maxMessage  = 4096
	maxFallback = 2048
	tailLines   = 80
)

// terminationMessage returns the termination message of a container that has exited.
func terminationMessage(c *corev1.Container, dir attemptDir, r *run) string {
	text := readStart(dir.terminationFile())
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

// readStart reads the start of a file. The container may have replaced it with a link to a file
// that only the node may read, or with a pipe that never ends.
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
