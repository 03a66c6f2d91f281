package artifact

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io/fs"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// entry is an entry of an archive. If kind is zero, it is a file.
type entry struct {
	name    string
	kind    byte // a tar type
	content string
	target  string
	mode    int64
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if e.kind == tar.TypeXGlobalHeader {
			check(t, w.WriteHeader(&tar.Header{Typeflag: e.kind, PAXRecords: map[string]string{"comment": e.name}}))
			continue
		}
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.target, Mode: e.mode, Format: tar.FormatPAX}
		if e.kind == 0 {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(e.content))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		check(t, w.WriteHeader(h))
		_, err := w.Write([]byte(e.content))
		check(t, err)
	}
	check(t, w.Close())
	return out.Bytes()
}

func zipOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.name == "encrypted" {
			h.Flags = 1
		}
		content := e.content
		if content == "" {
			h.Method = zip.Store // resetting the compressor for thousands of empty files takes seconds
		}
		switch e.kind {
		case tar.TypeSymlink:
			h.SetMode(fs.ModeSymlink | 0o777)
			content = e.target
		case tar.TypeDir:
			h.SetMode(fs.ModeDir | 0o755)
		case tar.TypeChar:
			h.SetMode(fs.ModeDevice | fs.ModeCharDevice | 0o644)
		default:
			h.SetMode(fs.FileMode(e.mode) | 0o644)
		}
		f, err := w.CreateHeader(h)
		check(t, err)
		_, err = f.Write([]byte(content))
		check(t, err)
	}
	check(t, w.Close())
	return out.Bytes()
}

func gzipOf(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	check(t, err)
	check(t, w.Close())
	return out.Bytes()
}

func zstdOf(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	check(t, err)
	return w.EncodeAll(b, nil)
}

// helloBzip2 returns a tar of a/hello, "hello\n", compressed with bzip2. Go cannot write bzip2.
func helloBzip2(t testing.TB) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(helloBase64)
	check(t, err)
	return b
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const helloBase64 = "QlpoOTFBWSZTWcivezUAAIb7gMmQABBAAPeAACFiRJ4ABAggAHUJSnlNGQ0D0g0AkpA0bSGgAeo/WGTMWpASikhFLs4SCdIEiIhEAJ1MdinA0BER6QEGJTfNljTS54ykqoU+9KnTVPAccccYSD8XckU4UJDIr3s1"
