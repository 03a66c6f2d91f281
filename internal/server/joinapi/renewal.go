package joinapi

import (
	"crypto/x509"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// renewalGrace is how long after its last message a robot can renew a certificate that is not
// valid now, if its key is accepted: it may have been switched off for weeks.
const renewalGrace = 90 * 24 * time.Hour

// verifyRobot returns the robot of a certificate that this server has issued. IsValid reports
// whether the certificate's dates include the present.
func (h *Handler) verifyRobot(c *x509.Certificate) (name string, isValid bool, err error) {
	if name, err = identity.CertificateName(c); err != nil {
		return "", false, err
	}
	if isValid, err = h.Authority.VerifyClient(c); err != nil {
		return "", false, err
	}
	return name, isValid, wire.ValidateRobotID(name)
}

// silence returns how long ago the last message of the robot with a key was received. It is negative
// if the clock was set back since then.
//
// The time since the start of the server is measured without its wall clock, so that a step forward
// does not make all robots silent.
func (h *Handler) silence(r *robotv1.Robot, key string) time.Duration {
	last := r.CreationTimestamp.Time
	if at := r.Status.LastHeartbeatTime; at != nil && at.After(last) {
		last = at.Time
	}
	if id := r.Status.Identity; id != nil && id.Requested != nil && id.Requested.Key == key && id.Requested.Time.After(last) {
		last = id.Requested.Time.Time
	}
	return h.startedAt.Sub(last) + h.Uptime() - h.startUptime
}
