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
	plain, err := newDecompressor(format, body)
	if err != nil {
		return err
	}
	defer plain.Close()
	stream := reader{t.ctx, t.boundReader(plain)}
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
	// Read to the end, where the checksum of the compressed data is verified.
	_, err = io.Copy(io.Discard, stream)
	return err
}

func (t *tree) tarEntry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // a comment, as git archive writes it
	}
	name, err := entryName(h.Name)
	if err != nil {
		return err
	}
	switch mode := h.FileInfo().Mode(); h.Typeflag {
	case tar.TypeDir:
		return t.addDir(name, mode)
	case tar.TypeReg, tar.TypeGNUSparse:
		return t.addFile(name, mode, r)
	case tar.TypeSymlink:
		return t.addSymlink(name, h.Linkname)
	case tar.TypeLink:
		return t.hardLink(name, h.Linkname)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return fmt.Errorf("entry %.100q is a device or a pipe", name)
	}
	return fmt.Errorf("entry %.100q has the unknown type %q", name, h.Typeflag)
}

// boundReader ends a stream that is longer than any archive within the limits. Unlike the count of
// unpacked bytes, it includes headers and data after the end of the archive.
func (t *tree) boundReader(r io.Reader) io.Reader {
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
