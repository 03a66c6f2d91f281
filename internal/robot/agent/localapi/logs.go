package localapi

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

const (
	logPiece = 64 << 10 // bytes of a log that are read at once; longer than a record
	// logPoll is the pause before a followed log is read again.
	logPoll = 200 * time.Millisecond
)

// serveLogs writes the records of a task's log on this robot. With the parameter follow it goes on until
// the attempt has ended.
func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request) {
	t, found := s.findRequestedTask(w, r)
	if !found {
		return
	}
	dir := s.LogDir(t.UID, t.Attempt)
	if _, err := os.Stat(dir); err != nil {
		http.Error(w, fmt.Sprintf("task %s has no log on this robot; the server has what was sent: k8s4r logs %s", t.Name, t.Name), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	f := logFollower{w: w, log: segment.Reader{Dir: dir}, buffer: make([]byte, logPiece)}
	for isLive := r.FormValue("follow") == "true"; ; {
		if !f.copyRecords() || !isLive || !sleepFor(r.Context(), logPoll) {
			return
		}
		isLive = s.isLive(r.Context(), t) // before the next read, so that the end of the log is not missed
	}
}

// isLive reports whether the attempt has not ended.
func (s *Server) isLive(ctx context.Context, t runner.LiveTask) bool {
	tasks, err := s.listTasks(ctx)
	if err != nil {
		return true // the disk is full, and the task may go on
	}
	for _, other := range tasks {
		if other.UID == t.UID && other.Attempt == t.Attempt && other.State != runner.TaskStopped {
			return true
		}
	}
	return false
}

// logFollower copies a log to a client.
type logFollower struct {
	w      http.ResponseWriter
	log    segment.Reader
	offset int64
	buffer []byte
}

// copyRecords copies what the log has. It returns false if that is not possible any more.
func (f *logFollower) copyRecords() bool {
	for {
		c, err := f.log.ReadAt(f.offset, f.buffer)
		if err != nil {
			return false
		}
		f.offset = c.End()
		extendDeadline(f.w)
		if _, err := f.w.Write(c.Data); err != nil {
			return false
		}
		if !c.More {
			return http.NewResponseController(f.w).Flush() == nil
		}
	}
}

func sleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
