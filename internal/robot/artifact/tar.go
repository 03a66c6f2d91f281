package artifact

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
)

// readTar unpacks a tar, compressed or not.
func (t *tree) readTar(format string, body *os.File) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	plain, err := decompress(format, body)
	if err != nil {
		return err
	}
	defer plain.Close()
	stream := reader{t.ctx, t.bounded(plain)}
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := t.tarEntry(h, r); err != nil {
			return err
		}
	}
	// To the end, because the sum over the compressed bytes is there.
	_, err = io.Copy(io.Discard, stream)
	return err
}

func (t *tree) tarEntry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // a comment, such as git archive writes
	}
	name, err := entryName(h.Name)
	if err != nil {
		return err
	}
	switch mode := h.FileInfo().Mode(); h.Typeflag {
	case tar.TypeDir:
		return t.dir(name, mode)
	case tar.TypeReg, tar.TypeGNUSparse:
		return t.file(name, mode, r)
	case tar.TypeSymlink:
		return t.symlink(name, h.Linkname)
	case tar.TypeLink:
		return t.hardLink(name, h.Linkname)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return fmt.Errorf("entry %.100q is a device or a pipe", name)
	}
	return fmt.Errorf("entry %.100q is of the unknown kind %q", name, h.Typeflag)
}

// bounded ends a stream that is longer than any archive within the limits. It
// counts what no file does: headers, and what comes after the archive's end.
func (t *tree) bounded(r io.Reader) io.Reader {
	const padding = 1 << 20
	headers := int64(t.limits.MaxFiles) * 2048
	return &boundedReader{r: r, left: t.limits.MaxUnpacked + headers + padding, limits: t.limits}
}

type boundedReader struct {
	r      io.Reader
	left   int64
	limits Limits
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge(b.limits)
	}
	return n, err
}
