// Package revocation writes the list of revoked robot certificates to a file, for brokers that do
// not ask the server.
package revocation

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/server/ca"
)

const (
	// validity is how long brokers use a list. They refuse all robots afterwards, so it is longer
	// than an outage of the server over a weekend.
	validity = 7 * 24 * time.Hour
	// refreshInterval is the time between two lists without a change.
	refreshInterval = 24 * time.Hour
	// minInterval is the time between two lists: OpenSSL uses the latest, by seconds.
	minInterval = time.Second
	// checkInterval is the time between two checks whether the CA has changed or the file is gone,
	// and the pause after an error.
	checkInterval = time.Minute
)

// Writer writes the file while it runs.
type Writer struct {
	File      string
	Authority *ca.Authority
	// Robots lists the Robots from a cache whose changes Informers reports.
	Robots    client.Reader
	Informers cache.Informers
	Log       logr.Logger

	changed chan struct{} // has a value if a robot may have been revoked
}

// NeedLeaderElection reports that only the leader writes the file.
func (w *Writer) NeedLeaderElection() bool { return true }

// Start writes the file until ctx ends.
func (w *Writer) Start(ctx context.Context) error {
	w.changed = make(chan struct{}, 1)
	if err := w.watchRobots(ctx); err != nil {
		return fmt.Errorf("revocation list: %w", err)
	}
	for last := (list{}); ; {
		next, err := w.update(ctx, last)
		if err != nil && ctx.Err() == nil {
			w.Log.Error(err, "cannot write the revocation list, will try again", "file", w.File)
		}
		last = next
		if !w.awaitChange(ctx) {
			return nil
		}
	}
}

// watchRobots reports changes of identities on w.changed.
func (w *Writer) watchRobots(ctx context.Context) error {
	informer, err := w.Informers.GetInformer(ctx, &robotv1.Robot{})
	if err != nil {
		return err
	}
	report := func() {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { report() },
		UpdateFunc: func(before, after any) {
			if !hasSameIdentity(before, after) { // heartbeats change the same object
				report()
			}
		},
	})
	return err
}

func hasSameIdentity(before, after any) bool {
	a, isA := before.(*robotv1.Robot)
	b, isB := after.(*robotv1.Robot)
	return isA && isB && equality.Semantic.DeepEqual(a.Spec.Identity, b.Spec.Identity) && equality.Semantic.DeepEqual(a.Status.Identity, b.Status.Identity)
}

// awaitChange blocks until a list may be due. It returns false if ctx has ended.
func (w *Writer) awaitChange(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-w.changed:
	case <-time.After(checkInterval):
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(minInterval): // also collects changes that belong together
		return true
	}
}

// list is the content of the file.
type list struct {
	revoked []string // serial numbers in hexadecimal digits, sorted
	signer  *x509.Certificate
	at      time.Time
}

// update writes the file if it differs from what it should contain. It returns what it contains.
func (w *Writer) update(ctx context.Context, last list) (list, error) {
	var robots robotv1.RobotList
	if err := w.Robots.List(ctx, &robots); err != nil {
		return last, err
	}
	signer, _ := w.Authority.CAs()
	want := list{revoked: listRevoked(robots.Items, time.Now()), signer: signer, at: time.Now().Truncate(time.Second)}
	earlier, err := os.ReadFile(w.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return last, err
	}
	isCurrent := err == nil && last.signer != nil && last.signer.Equal(signer) && slices.Equal(last.revoked, want.revoked)
	if isCurrent && want.at.Sub(last.at) < refreshInterval {
		return last, nil
	}
	text, err := w.sign(want, earlier)
	if err != nil {
		return last, err
	}
	if err := keyfile.WritePublicFile(w.File, text); err != nil {
		return last, err
	}
	w.Log.Info("wrote the revocation list", "file", w.File, "certificates", len(want.revoked))
	return want, nil
}

// listRevoked returns the serial numbers of revoked certificates that have not expired, sorted.
func listRevoked(robots []robotv1.Robot, now time.Time) []string {
	serials := []string{}
	for i := range robots {
		for _, c := range robots[i].RevokedCertificates() {
			if now.Before(c.NotAfter.Time) {
				serials = append(serials, c.SerialNumber)
			}
		}
	}
	slices.Sort(serials)
	return slices.Compact(serials)
}

// sign returns the list in PEM.
func (w *Writer) sign(l list, earlier []byte) ([]byte, error) {
	entries := make([]x509.RevocationListEntry, 0, len(l.revoked))
	for _, text := range l.revoked {
		serial, ok := new(big.Int).SetString(text, 16)
		if !ok || serial.Sign() <= 0 {
			w.Log.Info("ignored a serial number that is not hexadecimal", "serial", text)
			continue
		}
		entries = append(entries, x509.RevocationListEntry{SerialNumber: serial, RevocationTime: l.at})
	}
	return w.Authority.SignRevocationList(entries, l.at, l.at.Add(validity), earlier)
}
