package artifact

import (
	"compress/bzip2"
	"compress/gzip"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// storedAsIs is the value of the archive option that unpacks nothing.
const storedAsIs = "false"

// formats are the archives by the ends of their names.
var formats = []struct{ suffix, name string }{
	{".tar", "tar"},
	{".tar.gz", "tar.gz"}, {".tgz", "tar.gz"},
	{".tar.bz2", "tar.bz2"}, {".tbz2", "tar.bz2"},
	{".tar.zst", "tar.zst"}, {".tzst", "tar.zst"},
	{".tar.xz", "tar.xz"}, {".txz", "tar.xz"}, // known, to be refused by its name
	{".zip", "zip"},
}

// knownFormats are those that can be unpacked, for errors.
const knownFormats = "tar, tar.gz, tar.bz2, tar.zst, zip"

// formatOf is "" when a name is not that of an archive.
func formatOf(name string) string {
	name = strings.ToLower(name)
	for _, f := range formats {
		if strings.HasSuffix(name, f.suffix) {
			return f.name
		}
	}
	return ""
}

// maxWindow bounds the memory that a zstd archive can ask for. It is what the
// zstd tool itself takes without being told to take more.
const maxWindow = 128 << 20

// decompress returns the tar within a compressed one.
func decompress(format string, r io.Reader) (io.ReadCloser, error) {
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
