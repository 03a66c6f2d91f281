package artifact

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/robot/hostfs"
)

// plan is a parsed and checked Request.
type plan struct {
	url *url.URL
	// name is the last element of the address, "" if there is none.
	name     string
	checksum checksum
	// archive is the format in the options, notAnArchive, or "".
	archive string
	// format is the format of the archive. If empty, the source is stored as it is.
	format string
	// perms are those of a single file.
	perms fs.FileMode
	// dest is a clean path below the task's directory: of the file, or of the directory that an
	// archive is unpacked into.
	dest string
	// stage is the hidden directory of this request.
	stage string
	// keep is Request.Keep.
	keep bool
}

func newPlan(r Request) (*plan, error) {
	p := &plan{stage: stageOf(r), keep: r.Keep}
	steps := []func(Request) error{p.readSource, p.readOptions, p.readMode, p.readDest}
	for _, step := range steps {
		if err := step(r); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// stageOf returns a hidden directory that is the same for the same request, so that a later
// process finds what an earlier one has left, and differs for all others.
func stageOf(r Request) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q", r.Source, r.Dest, r.Mode)
	for _, k := range slices.Sorted(maps.Keys(r.Options)) {
		fmt.Fprintf(h, " %q=%q", k, r.Options[k])
	}
	return ".k8s4r-artifact-" + hex.EncodeToString(h.Sum(nil)[:8])
}

var errNotAnAddress = errors.New("getterSource is not a valid address")

func (p *plan) readSource(r Request) error {
	u, err := url.Parse(r.Source)
	if err != nil {
		return errNotAnAddress // err quotes the address, which may contain a password
	}
	switch u.Scheme {
	case "http", "https":
		err = checkWeb(u)
	case "file":
		err = checkFile(u)
	default:
		return errors.New("getterSource must begin with http://, https:// or file:///")
	}
	p.url, p.name = u, nameOf(u)
	return err
}

// nameOf returns the last element of an address. If the address ends in /, it is empty.
func nameOf(u *url.URL) string {
	name := u.Path[strings.LastIndex(u.Path, "/")+1:]
	if name == "." || name == ".." || strings.ContainsRune(name, 0) {
		return ""
	}
	return name
}

func checkWeb(u *url.URL) error {
	if u.Hostname() == "" {
		return errors.New("getterSource has no host")
	}
	// Jobs written for Nomad put the checksum there. Ignoring it silently would be worse than
	// having none.
	if _, err := parseChecksum(u.Query().Get("checksum")); err == nil && u.Query().Has("checksum") {
		return errors.New("getterSource must not contain a checksum: move it to getterOptions.checksum")
	}
	return nil
}

func checkFile(u *url.URL) error {
	if (u.Host != "" && u.Host != "localhost") || !path.IsAbs(u.Path) {
		return errors.New("getterSource must be an absolute path on the robot, such as file:///opt/maps/hall.tar.gz")
	}
	if strings.ContainsRune(u.Path, 0) {
		return errNotAnAddress
	}
	return nil
}

// redactSource returns the part of an address that may be shown. User, password, query and
// fragment are removed: they can hold secrets such as signatures.
func redactSource(source string) string {
	u, err := url.Parse(source)
	if err != nil {
		return ""
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return fmt.Sprintf("%.200s", shown.String())
}

// readMode decides whether the source is unpacked.
func (p *plan) readMode(r Request) error {
	format := p.archive
	if format == "" {
		format = formatOf(p.name)
	}
	switch r.Mode {
	case ModeFile:
		if p.archive != "" && p.archive != notAnArchive {
			return errors.New("getterOptions.archive must not be set with getterMode file, which does not unpack")
		}
		return nil
	case ModeAny, "", ModeDir:
	default:
		return fmt.Errorf("getterMode %.50q must be any, file or dir", r.Mode)
	}
	if format == "" || format == notAnArchive {
		if r.Mode == ModeDir {
			return fmt.Errorf("getterMode dir requires an archive (%s); "+
				"set getterOptions.archive if the name of the file does not end in one of these", knownFormats)
		}
		return nil
	}
	p.format = format
	return p.checkFormat()
}

// checkFormat rejects an archive that cannot be unpacked. If it were stored as a file instead, the
// task would only fail later.
func (p *plan) checkFormat() error {
	if p.format == "tar.xz" {
		return errors.New("tar.xz is not supported, because its header decides how much memory unpacking takes; " +
			"pack it as tar.zst, or set getterOptions.archive to false")
	}
	if p.perms != 0 {
		return errors.New("getterOptions.perms must not be set for an archive, which has its own permissions")
	}
	return nil
}

func (p *plan) readDest(r Request) error {
	dest, err := hostfs.CleanLocal(r.Dest)
	if err != nil {
		return fmt.Errorf("relativeDest %w", err)
	}
	p.dest = dest
	if p.format != "" {
		return nil
	}
	p.perms = cmp.Or(p.perms, 0o644)
	if r.Mode == ModeFile && dest != "." && !strings.HasSuffix(r.Dest, "/") {
		return nil
	}
	if p.name == "" {
		return errors.New("getterSource has no file name: set getterMode to file and relativeDest to the path of the file")
	}
	p.dest = path.Join(dest, p.name)
	return nil
}
