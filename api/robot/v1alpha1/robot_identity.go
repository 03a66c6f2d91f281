package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RobotIdentitySpec is what an operator decides about the robot's identity.
type RobotIdentitySpec struct {
	// ApprovedKey is the fingerprint of the key that may speak for the robot, as
	// status.identity.requested shows it. `k8s4r robot approve` writes it. Empty:
	// the policy of the manager decides.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^sha256:[0-9a-f]{64}$')",message="must be sha256: and 64 hexadecimal digits, as in status.identity.requested.key"
	ApprovedKey string `json:"approvedKey,omitempty"`
	// ApprovedMachine is the machine that may hold that key, as
	// status.identity.requested shows it. Empty: the one that came with it first.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ApprovedMachine string `json:"approvedMachine,omitempty"`
	// Revoked refuses the robot, whatever it proves, and ends its connection.
	// `k8s4r robot revoke` and `k8s4r robot approve` write it.
	// +optional
	Revoked bool `json:"revoked,omitempty"`
	// RevokedReason for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	RevokedReason string `json:"revokedReason,omitempty"`
}

// RobotIdentity is who a robot has proven to be.
type RobotIdentity struct {
	// Requested is what was shown last by somebody who wants to be this robot,
	// with a valid token or certificate. Written only by the server.
	// +optional
	Requested *IdentityRequest `json:"requested,omitempty"`
	// Accepted is what speaks for the robot. Written only by the manager.
	// +optional
	Accepted *AcceptedIdentity `json:"accepted,omitempty"`
	// Certificate is the last that was made for the robot. Written only by the
	// server.
	// +optional
	Certificate *IssuedCertificate `json:"certificate,omitempty"`
}

// IdentityRequest is what somebody shows who wants to be a robot.
type IdentityRequest struct {
	// Key is the fingerprint of its public key.
	Key string `json:"key"`
	// Machine tells the machine from others, as a fingerprint. Empty: it does not
	// say.
	// +optional
	Machine string `json:"machine,omitempty"`
	// Hostname for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Hostname string `json:"hostname,omitempty"`
	// Address that it came from.
	// +optional
	Address string `json:"address,omitempty"`
	// Token is the id of the join token. Empty: it came with a certificate.
	// +optional
	Token string `json:"token,omitempty"`
	// Time of the request.
	Time metav1.Time `json:"time"`
}

// AcceptedIdentity is what speaks for a robot.
type AcceptedIdentity struct {
	// Key is the fingerprint of its public key.
	Key string `json:"key"`
	// Machine that holds it. Empty: it does not say.
	// +optional
	Machine string `json:"machine,omitempty"`
	// By whom: Token, by the policy, or Operator.
	By string `json:"by"`
	// Time since when.
	Time metav1.Time `json:"time"`
}

// IssuedCertificate is a certificate of a robot.
type IssuedCertificate struct {
	// SerialNumber in hexadecimal digits.
	SerialNumber string `json:"serialNumber"`
	// NotAfter is when it ends to count.
	NotAfter metav1.Time `json:"notAfter"`
}

// ConditionIdentity is written by the manager: whether a key speaks for the
// robot, and if not, why.
const ConditionIdentity = "Identity"

// ConditionIdentityDisputed is written by the manager: whether somebody else
// wants to be this robot.
const ConditionIdentityDisputed = "IdentityDisputed"

// ConditionAuthenticated is written by the server: whether the robot proves who
// it is when it connects.
const ConditionAuthenticated = "Authenticated"

// The reasons of ConditionIdentity and ConditionIdentityDisputed.
const (
	// ReasonAccepted: a key speaks for the robot.
	ReasonAccepted = "Accepted"
	// ReasonWaitingForApproval: an operator has to decide.
	ReasonWaitingForApproval = "WaitingForApproval"
	// ReasonRevoked: an operator has refused the robot.
	ReasonRevoked = "Revoked"
	// ReasonReimaged: the same machine has another key.
	ReasonReimaged = "Reimaged"
	// ReasonCloned: another machine wants to be this robot.
	ReasonCloned = "Cloned"
	// ReasonUndisputed: the last who asked was the robot itself.
	ReasonUndisputed = "Undisputed"
)

// The reasons of ConditionAuthenticated.
const (
	// ReasonCertificate: it proves itself by a certificate.
	ReasonCertificate = "Certificate"
	// ReasonAnonymous: it does not, and the server lets such agents in.
	ReasonAnonymous = "Anonymous"
	// ReasonLegacy: it is an agent of the document, which cannot.
	ReasonLegacy = "Legacy"
	// ReasonPlaintextBroker: nothing is proven on the way between server and broker.
	ReasonPlaintextBroker = "PlaintextBroker"
)

// Accepts tells whether a key speaks for the robot now.
func (r *Robot) Accepts(key string) bool {
	id := r.Status.Identity
	return key != "" && !r.Revoked() && id != nil && id.Accepted != nil && id.Accepted.Key == key
}

// Revoked tells whether an operator has refused the robot.
func (r *Robot) Revoked() bool { return r.Spec.Identity != nil && r.Spec.Identity.Revoked }
