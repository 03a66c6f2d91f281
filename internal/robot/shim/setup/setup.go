// Package setup puts artifacts and rendered templates into the directory of a task before it starts,
// and prepares its driver. It runs in a process of the agent's program that exits afterwards, so that
// the shim, which runs as long as the task, needs none of the code for it.
package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/artifact"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/driver/builtin"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/template"
)

// Work is what to put into the task's directory.
type Work struct {
	Artifacts []artifact.Request `json:"artifacts,omitempty"`
	Templates []Template         `json:"templates,omitempty"`
	Data      template.Data      `json:"data"`
	// Cached are the paths of files that may have the content of the artifacts, see shim.SetUp.
	Cached []string `json:"-"`

	cached map[int]*os.File // those files, by the index of the artifact
}

// Template is a file that is rendered, and what to do if a later rendering changes it.
type Template struct {
	template.Template
	OnChange shim.TemplateChange `json:"-"`
}

// Encode returns the set-up for the shim of the task.
func (w Work) Encode() (*shim.SetUp, error) {
	b, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("encode the set-up of the task: %w", err)
	}
	s := &shim.SetUp{Work: b, Cached: w.Cached}
	for _, t := range w.Templates {
		s.Templates = append(s.Templates, t.OnChange)
	}
	return s, nil
}

// statusTerminated is the exit status after SIGTERM.
const statusTerminated = 128 + int(syscall.SIGTERM)

// Main runs what the agent's program runs for one task, if args begin with that subcommand: a set-up,
// or a shim with all drivers. ok reports whether they do. The status is that of this process.
func Main(args []string) (status int, ok bool) {
	if len(args) > 0 && args[0] == shim.SetUpSubcommand {
		return setUp(), true
	}
	return shim.Main(args, builtin.NewSet)
}

// setUp runs the request of this process. It writes the indexes of the changed templates, or the
// error, to standard output. Its status is statusTerminated if SIGTERM ended it.
func setUp() (status int) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	changed, err := runRequest(ctx)
	switch {
	case err == nil:
		_ = json.NewEncoder(os.Stdout).Encode(changed)
		return 0
	case ctx.Err() != nil:
		status = statusTerminated
	default:
		status = 1
	}
	message := err.Error()
	fmt.Println(message[:min(len(message), shim.MaxSetUpOutput-1)])
	return status
}

// runRequest runs the request of this process. It returns the indexes of the templates whose result
// changed.
func runRequest(ctx context.Context) (changed []int, err error) {
	r, err := shim.ReceiveSetUpRequest()
	if err != nil {
		return nil, err
	}
	if d, ok := builtin.NewSet(r.Engine)[r.Driver].(driver.Preparer); ok {
		if err := d.Prepare(ctx, r.Config); err != nil {
			return nil, err
		}
	}
	if r.Work == nil {
		return nil, nil
	}
	var w Work
	if err := json.Unmarshal(r.Work, &w); err != nil {
		return nil, err
	}
	w.cached = r.CachedFiles()
	if r.Attributes != nil {
		w.Artifacts, w.Data.Labels, w.Data.Attrs = nil, r.Attributes.Labels, r.Attributes.Attrs
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	return w.run(ctx, dir)
}

// syncFiles writes all files of the file system of dir to the disk. After a power cut the task starts with
// the artifacts that are there, also without a network. It is a variable for tests.
var syncFiles = func(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(fd), unix.Close(fd))
}

// run fetches the artifacts into dir and then renders the templates there.
func (w Work) run(ctx context.Context, dir string) (changed []int, err error) {
	for i, a := range w.Artifacts {
		if err := artifact.FetchCached(ctx, a, w.cached[i], artifact.Limits{}, dir); err != nil {
			return nil, err
		}
	}
	if len(w.Artifacts) > 0 {
		if err := syncFiles(dir); err != nil {
			return nil, fmt.Errorf("write the artifacts to the disk: %w", err)
		}
	}
	for i, t := range w.Templates {
		isChanged, err := template.Render(ctx, t.Template, w.Data, dir)
		if err != nil {
			return nil, err
		}
		if isChanged {
			changed = append(changed, i)
		}
	}
	return changed, nil
}
