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

// partial is the part of a source that has been received. The file remains after the process
// exits, so that the next process can resume it.
type partial struct {
	*os.File
	root  *os.Root
	stage string
	size  int64
	// validator identifies the version of the source, as If-Range expects it. If empty, the
	// version is unknown and the part cannot be resumed.
	validator string
}

// openPartial opens the file that an earlier process has left, or creates one.
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
	v, _ := root.ReadFile(path.Join(stage, validatorFile)) // if missing, the download starts over
	p.validator = string(v)
	return p, nil
}

// nextOffset returns where the next try starts.
func (p *partial) nextOffset() int64 {
	if p.validator == "" {
		return 0
	}
	return p.size
}

// discardContent empties the file.
func (p *partial) discardContent() error { return p.restartFor("") }

// restartFor empties the file for a source of that version. The file is emptied first: otherwise a
// crash in between would leave bytes of one version with the validator of another.
func (p *partial) restartFor(validator string) error {
	if err := p.Truncate(0); err != nil {
		return err
	}
	p.size, p.validator = 0, validator
	return p.root.WriteFile(path.Join(p.stage, validatorFile), []byte(validator), 0o600)
}

// Write appends to the file.
func (p *partial) Write(b []byte) (int, error) {
	n, err := p.WriteAt(b, p.size)
	p.size += int64(n)
	return n, err
}

// openWhole returns a reader of the file from its start.
func (p *partial) openWhole() io.Reader { return io.NewSectionReader(p.File, 0, p.size) }

// checkContinuation checks the response to a request for the rest. If the rest does not start
// where this part ends, it would corrupt the file, so the download starts over. It returns the
// size of the whole, or -1 if that is unknown.
func (p *partial) checkContinuation(h http.Header) (total int64, err error) {
	span, size, _ := strings.Cut(strings.TrimPrefix(h.Get("Content-Range"), "bytes "), "/")
	first, _, _ := strings.Cut(span, "-")
	if first != strconv.FormatInt(p.size, 10) {
		return 0, p.restartError("the server sent another range than requested")
	}
	if size == "*" {
		return -1, nil
	}
	if total, err = strconv.ParseInt(size, 10, 64); err != nil || total < p.size {
		return 0, p.restartError("the server sent an invalid Content-Range")
	}
	return total, nil
}

// beyondEnd handles the response that there is no rest: the part is complete already, or the
// source on the server has changed.
func (p *partial) beyondEnd(h http.Header) error {
	if h.Get("Content-Range") == fmt.Sprintf("bytes */%d", p.size) {
		return nil
	}
	return p.restartError("the source has changed on the server")
}

// restartError discards the part, and returns the error after which the next try starts over.
func (p *partial) restartError(reason string) error {
	if err := p.discardContent(); err != nil {
		return err
	}
	return temporaryError{error: errors.New(reason)}
}
