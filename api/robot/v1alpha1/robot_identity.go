package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RobotIdentitySpec has the decisions of an operator about the robot's identity.
type RobotIdentitySpec struct {
	// ApprovedKey is the fingerprint of the key that may act as the robot, as shown in
	// status.identity.requested.key. Set by `k8s4r robot approve`. If empty, the manager's
	// --approve-robots decides.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^sha256:[0-9a-f]{64}$')",message="must be sha256: and 64 hexadecimal digits, as in status.identity.requested.key"
	ApprovedKey string `json:"approvedKey,omitempty"`
	// ApprovedMachine is the fingerprint of the machine that may hold the key, as shown in
	// status.identity.requested.machine. If empty, the machine that first presented the key.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ApprovedMachine string `json:"approvedMachine,omitempty"`
	// Revoked refuses the robot whatever it presents, and closes its connection. Set by `k8s4r
	// robot revoke`, cleared by `k8s4r robot approve`.
	// +optional
	Revoked bool `json:"revoked,omitempty"`
	// RevokedReason for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	RevokedReason string `json:"revokedReason,omitempty"`
}

// RobotIdentity is the identity that a robot asks for and the one that was accepted.
type RobotIdentity struct {
	// Requested is the last request for this identity that had a valid token or certificate.
	// Written by the server.
	// +optional
	Requested *IdentityRequest `json:"requested,omitempty"`
	// Accepted is the key that may act as the robot. Written by the manager.
	// +optional
	Accepted *AcceptedIdentity `json:"accepted,omitempty"`
	// Certificate is the last certificate issued to the robot. Written by the server.
	// +optional
	Certificate *IssuedCertificate `json:"certificate,omitempty"`
	// EarlierCertificates are the certificates that were issued before and have not expired, oldest
	// first. Written by the server.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	EarlierCertificates []IssuedCertificate `json:"earlierCertificates,omitempty"`
}

// MaxEarlierCertificates is the maximum of RobotIdentity.EarlierCertificates. A robot that has as
// many has to wait until one expires.
const MaxEarlierCertificates = 16

// IdentityRequest is a request of a machine for the identity of a robot.
type IdentityRequest struct {
	// Key is the fingerprint of the public key.
	Key string `json:"key"`
	// Machine is the fingerprint of the machine id. Empty if the machine has none.
	// +optional
	Machine string `json:"machine,omitempty"`
	// Hostname of the machine, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Hostname string `json:"hostname,omitempty"`
	// Address from which the request came.
	// +optional
	Address string `json:"address,omitempty"`
	// Token is the id of the join token. Empty if the request was made with a certificate.
	// +optional
	Token string `json:"token,omitempty"`
	// Time of the request.
	Time metav1.Time `json:"time"`
}

// AcceptedIdentity is the key that may act as a robot.
type AcceptedIdentity struct {
	// Key is the fingerprint of the public key.
	Key string `json:"key"`
	// Machine is the fingerprint of the machine that holds it. Empty if the machine has no id.
	// +optional
	Machine string `json:"machine,omitempty"`
	// By is Token if the policy accepted the key because of a join token, or Operator.
	By string `json:"by"`
	// Time at which the key was accepted.
	Time metav1.Time `json:"time"`
}

// IssuedCertificate is a certificate of a robot.
type IssuedCertificate struct {
	// SerialNumber in hexadecimal digits.
	SerialNumber string `json:"serialNumber"`
	// NotAfter is the time at which it expires.
	NotAfter metav1.Time `json:"notAfter"`
	// Key is the fingerprint of the public key that it is for. Empty if an earlier version issued it.
	// +optional
	Key string `json:"key,omitempty"`
}

// RevokedCertificates returns the certificates that the robot may not use any more: all if it is
// revoked, else those for other keys than the accepted one. They may have expired.
func (r *Robot) RevokedCertificates() []IssuedCertificate {
	id := r.Status.Identity
	if id == nil {
		return nil
	}
	var revoked []IssuedCertificate
	for _, c := range id.IssuedCertificates() {
		if r.IsRevoked() || c.Key != "" && !r.AcceptsKey(c.Key) {
			revoked = append(revoked, c)
		}
	}
	return revoked
}

// IssuedCertificates returns the last and the earlier certificates.
func (i *RobotIdentity) IssuedCertificates() []IssuedCertificate {
	if i.Certificate == nil {
		return i.EarlierCertificates
	}
	return append(slices.Clone(i.EarlierCertificates), *i.Certificate)
}

// ConditionIdentity reports whether a key is accepted for the robot. Written by the manager.
const ConditionIdentity = "Identity"

// ConditionIdentityConflict reports whether another key or machine asks to be this robot. Written
// by the manager.
const ConditionIdentityConflict = "IdentityConflict"

// ConditionAuthenticated reports whether the robot connects with a certificate. Written by the
// server.
const ConditionAuthenticated = "Authenticated"

// The reasons of ConditionIdentity and ConditionIdentityConflict.
const (
	// ReasonAccepted: a key is accepted for the robot.
	ReasonAccepted = "Accepted"
	// ReasonWaitingForApproval: an operator must approve the key.
	ReasonWaitingForApproval = "WaitingForApproval"
	// ReasonRevoked: an operator has revoked the robot.
	ReasonRevoked = "Revoked"
	// ReasonReimaged: the same machine presents another key.
	ReasonReimaged = "Reimaged"
	// ReasonCloned: another machine asks to be this robot.
	ReasonCloned = "Cloned"
	// ReasonNoConflict: the last request came from the robot itself.
	ReasonNoConflict = "NoConflict"
)

// The reasons of ConditionAuthenticated.
const (
	// ReasonCertificate: the robot presents a certificate.
	ReasonCertificate = "Certificate"
	// ReasonAnonymous: the robot presents none, and the server accepts such agents.
	ReasonAnonymous = "Anonymous"
	// ReasonLegacyAgent: it is a legacy agent, which has no certificate.
	ReasonLegacyAgent = "LegacyAgent"
	// ReasonPlaintextBroker: the connection between server and broker is not encrypted, so the
	// sender of a message is not authenticated.
	ReasonPlaintextBroker = "PlaintextBroker"
)

// AcceptsKey reports whether the key may act as the robot now.
func (r *Robot) AcceptsKey(key string) bool {
	id := r.Status.Identity
	return key != "" && !r.IsRevoked() && id != nil && id.Accepted != nil && id.Accepted.Key == key
}

// IsRevoked reports whether an operator has revoked the robot.
func (r *Robot) IsRevoked() bool { return r.Spec.Identity != nil && r.Spec.Identity.Revoked }
