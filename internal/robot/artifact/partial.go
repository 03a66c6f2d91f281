package artifact

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
)

// partial is the part of a source that has come so far. It outlives its
// process, so that the next one need not begin anew.
type partial struct {
	*os.File
	root  *os.Root
	stage string
	size  int64
	// validator names the version of the source that this is a part of, as
	// If-Range wants it. Empty: there is no telling, so it is not continued.
	validator string
}

// openPartial opens what an earlier process has left, or a new file.
func openPartial(root *os.Root, stage string) (*partial, error) {
	f, err := root.OpenFile(path.Join(stage, bodyFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	p := &partial{File: f, root: root, stage: stage}
	if p.size, err = f.Seek(0, io.SeekEnd); err != nil {
		f.Close()
		return nil, err
	}
	v, _ := root.ReadFile(path.Join(stage, validatorFile)) // without one it begins anew
	p.validator = string(v)
	return p, nil
}

// offset is where the next try begins.
func (p *partial) offset() int64 {
	if p.validator == "" {
		return 0
	}
	return p.size
}

// discard empties it.
func (p *partial) discard() error { return p.restart("") }

// restart empties it for a source of that version. The file is emptied first:
// else a process that ends in between would leave bytes of one version under
// the name of another.
func (p *partial) restart(validator string) error {
	if err := p.Truncate(0); err != nil {
		return err
	}
	p.size, p.validator = 0, validator
	return p.root.WriteFile(path.Join(p.stage, validatorFile), []byte(validator), 0o600)
}

// Write appends.
func (p *partial) Write(b []byte) (int, error) {
	n, err := p.WriteAt(b, p.size)
	p.size += int64(n)
	return n, err
}

// whole reads it from the beginning.
func (p *partial) whole() io.Reader { return io.NewSectionReader(p.File, 0, p.size) }

// continues takes the answer to a request for the rest. A rest that does not
// begin where this part ends would silently make another file: then it begins
// anew. It returns the size of the whole, -1 when that is not said.
func (p *partial) continues(h http.Header) (total int64, err error) {
	span, size, _ := strings.Cut(strings.TrimPrefix(h.Get("Content-Range"), "bytes "), "/")
	first, _, _ := strings.Cut(span, "-")
	if first != strconv.FormatInt(p.size, 10) {
		return 0, p.anew("the server sent another part than it was asked for")
	}
	if size == "*" {
		return -1, nil
	}
	if total, err = strconv.ParseInt(size, 10, 64); err != nil || total < p.size {
		return 0, p.anew("the server sent a part of nothing")
	}
	return total, nil
}

// beyondEnd takes the answer that there is no rest: the part is whole already,
// or is no part of what the server has now.
func (p *partial) beyondEnd(h http.Header) error {
	if h.Get("Content-Range") == fmt.Sprintf("bytes */%d", p.size) {
		return nil
	}
	return p.anew("the server has no more of what it sent before")
}

// anew is the error of a try after which the next one begins at the start.
func (p *partial) anew(why string) error {
	if err := p.discard(); err != nil {
		return err
	}
	return temporary{error: errors.New(why)}
}
