package artifact

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// readOptions reads getterOptions. An unknown option is an error, because a misspelled checksum
// would check nothing.
func (p *plan) readOptions(r Request) (err error) {
	for _, name := range slices.Sorted(maps.Keys(r.Options)) {
		value := r.Options[name]
		switch name {
		case "checksum":
			p.checksum, err = parseChecksum(value)
		case "archive":
			p.archive, err = parseArchive(value)
		case "perms":
			p.perms, err = parsePerms(value)
		default:
			err = fmt.Errorf("getterOptions.%.50s is not supported: must be archive, checksum or perms", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checksum is the expected hash of the source. The zero value accepts anything.
type checksum struct {
	kind string
	want []byte
}

var hashes = map[string]func() hash.Hash{"sha256": sha256.New, "sha512": sha512.New}

func parseChecksum(s string) (checksum, error) {
	kind, digits, _ := strings.Cut(s, ":")
	kind = strings.ToLower(kind)
	newHash, known := hashes[kind]
	if !known {
		return checksum{}, errors.New("getterOptions.checksum must be sha256: or sha512: followed by hexadecimal digits")
	}
	want, err := hex.DecodeString(digits)
	if size := newHash().Size(); err != nil || len(want) != size {
		return checksum{}, fmt.Errorf("getterOptions.checksum must be %s: followed by %d hexadecimal digits", kind, 2*size)
	}
	return checksum{kind: kind, want: want}, nil
}

// mismatchError reports that the source does not have the expected checksum.
type mismatchError struct {
	kind      string
	got, want []byte
}

func (e *mismatchError) Error() string {
	return fmt.Sprintf("%s is %x, want %x", e.kind, e.got, e.want)
}

func (c checksum) verifyReader(r io.Reader) error {
	if c.kind == "" {
		return nil
	}
	h := hashes[c.kind]()
	if _, err := io.Copy(h, r); err != nil {
		return err
	}
	if got := h.Sum(nil); !bytes.Equal(got, c.want) {
		return &mismatchError{kind: c.kind, got: got, want: c.want}
	}
	return nil
}

func parseArchive(s string) (string, error) {
	if s == notAnArchive {
		return s, nil
	}
	if f := formatOf("." + s); f != "" {
		return f, nil
	}
	return "", fmt.Errorf("getterOptions.archive %.50q must be one of false, %s", s, knownFormats)
}

var permsPattern = regexp.MustCompile(`^0?[0-7]{3}$`)

// parsePerms parses the perms of an artifact or a template. Bits such as setuid are rejected,
// since they would give a file the rights of another user.
func parsePerms(s string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if !permsPattern.MatchString(s) || n == 0 || err != nil {
		return 0, fmt.Errorf("getterOptions.perms %.50q must be octal permissions up to 0777, such as 0755", s)
	}
	return fs.FileMode(n), nil
}
