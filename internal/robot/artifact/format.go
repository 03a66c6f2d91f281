package artifact

import (
	"compress/bzip2"
	"compress/gzip"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// notAnArchive is the value of the archive option that disables unpacking.
const notAnArchive = "false"

// formats are the archive formats by the suffixes of their names.
var formats = []struct{ suffix, name string }{
	{".tar", "tar"},
	{".tar.gz", "tar.gz"}, {".tgz", "tar.gz"},
	{".tar.bz2", "tar.bz2"}, {".tbz2", "tar.bz2"},
	{".tar.zst", "tar.zst"}, {".tzst", "tar.zst"},
	{".tar.xz", "tar.xz"}, {".txz", "tar.xz"}, // known, but rejected
	{".zip", "zip"},
}

// knownFormats lists the formats that can be unpacked, for errors.
const knownFormats = "tar, tar.gz, tar.bz2, tar.zst, zip"

// formatOf returns the archive format of a file name, or "" if it has none.
func formatOf(name string) string {
	name = strings.ToLower(name)
	for _, f := range formats {
		if strings.HasSuffix(name, f.suffix) {
			return f.name
		}
	}
	return ""
}

// maxWindow bounds the memory that a zstd archive can require, in bytes. It is the default limit
// of the zstd tool.
const maxWindow = 128 << 20

// newDecompressor returns the tar within a compressed one.
func newDecompressor(format string, r io.Reader) (io.ReadCloser, error) {
	switch format {
	case "tar":
		return io.NopCloser(r), nil
	case "tar.gz":
		return gzip.NewReader(r)
	case "tar.bz2":
		return io.NopCloser(bzip2.NewReader(r)), nil
	case "tar.zst":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("%s is not a tar", format)
}
