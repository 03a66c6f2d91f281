package ca

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// rotateBefore is how long before a CA expires the next CA replaces it, at most. The next CA is
// trusted for as long before that; robots get the trusted CAs with each renewal.
const rotateBefore = 90 * 24 * time.Hour

// overlapOf returns how long before its end a CA is replaced. A CA with a short lifetime leaves its
// robots a quarter of it.
func overlapOf(c *x509.Certificate) time.Duration {
	return min(rotateBefore, c.NotAfter.Sub(c.NotBefore)/4)
}

// creationTime returns when signCA created a CA.
func creationTime(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(min(clockSkew, c.NotAfter.Sub(c.NotBefore)/11)) // a tenth of its lifetime after that time
}

// The limits of the period of a rotation.
const (
	MinRotationPeriod = time.Minute
	MaxRotationPeriod = rotateBefore
)

// rotation is a request to replace a CA before it expires, such as after its key has leaked. The
// next CA signs once it has been trusted for a period; the old one is removed after another period.
type rotation struct {
	// From is the fingerprint of the CA's key that is replaced.
	From string `json:"from"`
	// Period is at least the lifetime of a robot's certificate, so that all robots renew in it.
	Period time.Duration `json:"periodNanoseconds"`
	// Replaced is when the next CA began to sign. If zero, it does not sign yet.
	Replaced time.Time `json:"replaced,omitzero"`
}

// ErrRotating is the error of RequestRotation while a rotation is in progress.
var ErrRotating = errors.New("the CA is being replaced already")

// RequestRotation writes a request to replace the CA in dir. The program that manages the CA follows
// it.
func RequestRotation(dir string, period time.Duration) error {
	if period < MinRotationPeriod || period > MaxRotationPeriod {
		return fmt.Errorf("period %s: must be from %s to %s", period, MinRotationPeriod, MaxRotationPeriod)
	}
	current, err := tls.LoadX509KeyPair(filepath.Join(dir, fileCertificate), filepath.Join(dir, fileKey))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, fileRotation)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(ErrRotating, err)
	}
	return rotation{From: identity.CertificateFingerprint(current.Leaf), Period: period}.writeTo(path, keyfile.WriteFile)
}

func (r rotation) writeTo(path string, write func(path string, data []byte) error) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return write(path, append(text, '\n'))
}

// readRotation returns the rotation in progress. If there is none, it returns nil.
func (a *Authority) readRotation() (*rotation, error) {
	text, err := os.ReadFile(a.path(fileRotation))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &rotation{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w; remove the file to end the rotation", fileRotation, err)
	}
	r.Period = max(r.Period, a.robotLifetime)
	return r, nil
}

// replaces reports whether the rotation still has to replace a CA.
func (r *rotation) replaces(c *x509.Certificate) bool {
	return r != nil && r.From == identity.CertificateFingerprint(c)
}

// renewalWindow is how long this process has to run before a step that robots have to prepare for
// with a renewal: those whose certificate is due renew within minutes after it has started.
const renewalWindow = time.Hour

// hasServed reports whether robots could renew for long enough since a time.
func (a *Authority) hasServed(since time.Time, period time.Duration) bool {
	served := a.startedAt
	if since.After(served) {
		served = since
	}
	return !a.now().Before(served.Add(min(renewalWindow, period)))
}

// rotate takes the step in the replacement of the current CA that is due.
func (a *Authority) rotate(current *x509.Certificate) error {
	r, err := a.readRotation()
	if err != nil {
		return err
	}
	next, err := a.readNextCA()
	if err != nil {
		return err
	}
	switch {
	case next == nil && (a.now().After(current.NotAfter.Add(-2*overlapOf(current))) || r.replaces(current)):
		return a.createCA(fileNextCertificate, fileNextKey)
	case next != nil && a.isPromotionDue(r, current, next):
		return a.promoteNextCA()
	}
	return a.removeOldCAs(r, current, next)
}

// isPromotionDue reports whether the next CA replaces the current one now.
func (a *Authority) isPromotionDue(r *rotation, current, next *x509.Certificate) bool {
	created, overlap := creationTime(next), overlapOf(current)
	if a.now().After(current.NotAfter.Add(-overlap)) {
		return a.hasServed(created, overlap)
	}
	return r.replaces(current) && !a.now().Before(created.Add(r.Period)) && a.hasServed(created, r.Period)
}

// isObsolete reports whether a CA expired so long ago that robots with its certificates, which renew
// late, are not expected any more.
func (a *Authority) isObsolete(c *x509.Certificate) bool {
	return !a.now().Before(c.NotAfter.Add(overlapOf(c)))
}

// removeOldCAs removes obsolete CAs, and those that a rotation has replaced, from the trusted ones.
func (a *Authority) removeOldCAs(r *rotation, current, next *x509.Certificate) error {
	if r != nil && !r.replaces(current) && r.Replaced.IsZero() {
		r.Replaced = a.now()
		return r.writeTo(a.path(fileRotation), a.disk.write)
	}
	isComplete := r != nil && !r.Replaced.IsZero() && !a.now().Before(r.Replaced.Add(r.Period)) && a.hasServed(r.Replaced, r.Period)
	trust, err := a.readTrustFile()
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(trust), func(c *x509.Certificate) bool {
		isOurs := c.Equal(current) || next != nil && c.Equal(next)
		return !isOurs && (isComplete || a.isObsolete(c))
	})
	if len(kept) > 0 && len(kept) < len(trust) {
		if err := a.disk.write(a.path(fileTrust), keyfile.EncodeCertificates(kept...)); err != nil {
			return err
		}
	}
	if isComplete {
		return os.Remove(a.path(fileRotation))
	}
	return nil
}
