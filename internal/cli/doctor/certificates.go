package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"

	"k8s4r.io/k8s4r/internal/platform/certexpiry"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// checkCertificates reports when the certificates of `k8s4r up` and the CA of the server's
// certificate expire. All are renewed without a restart, so one that expires soon was not.
func checkCertificates(ctx context.Context, c Cluster) []Finding {
	const check = "certificates"
	all, err := certexpiry.Find(ctx, c)
	if err != nil && !apierrors.IsNotFound(err) {
		return newUnknown(check, err)
	}
	server, err := serveraddr.FindAddress(ctx, c)
	if err != nil && !apierrors.IsNotFound(err) {
		return newUnknown(check, err)
	}
	if cas, err := keyfile.ParseCertificates(server.CA); err == nil && len(all) == 0 {
		all = map[string]certexpiry.Validity{"server-ca": {NotBefore: cas[0].NotBefore, NotAfter: cas[0].NotAfter}}
	}
	if len(all) == 0 {
		return nil // the certificates are those of other programs
	}
	now := c.Now()
	var left, soon []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := all[name]
		left = append(left, name+" "+describeLeft(v.NotAfter.Sub(now)))
		if v.ExpiresSoon(now) {
			soon = append(soon, fmt.Sprintf("%s at %s", name, v.NotAfter.UTC().Format(time.RFC3339)))
		}
	}
	if len(soon) > 0 {
		return newProblem(Warn, check, fmt.Sprintf("%s: not renewed in time; time left: %s", strings.Join(soon, ", "), strings.Join(left, ", ")),
			"see the log of k8s4r up or of the server for the reason; a CA of a Secret is replaced by its owner")
	}
	return newOK(check, "renewed in time; time left: %s", strings.Join(left, ", "))
}

// describeLeft returns a time in days, and below two days in smaller units.
func describeLeft(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "none"
	case d >= 2*day:
		return fmt.Sprintf("%d days", d/day)
	}
	return duration.HumanDuration(d)
}
