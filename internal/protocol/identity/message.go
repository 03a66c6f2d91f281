package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// The paths of the server's API for robots.
const (
	JoinPath  = "/v1/join"
	RenewPath = "/v1/renew"
)

// MaxBody bounds what each side reads from the other, in bytes.
const MaxBody = 64 << 10

// maxText bounds a field for people, in bytes.
const maxText = 256

// JoinRequest is the request for the first certificate, with a join token.
type JoinRequest struct {
	RobotID string `json:"robotId"`
	// Token has the form id.secret.
	Token string `json:"token"`
	CertificateRequest
}

// CertificateRequest is a request for a certificate.
type CertificateRequest struct {
	// CSR is a certificate request in PEM for the robot's key.
	CSR string `json:"csr"`
	// Machine is the fingerprint of the machine id. A key that two machines present has been
	// copied. Empty if the machine has none.
	Machine string `json:"machine,omitempty"`
	// Hostname for people.
	Hostname string `json:"hostname,omitempty"`
}

// Validate returns an error that names the field if the request is malformed.
func (r CertificateRequest) Validate() error {
	if r.Machine != "" {
		if err := ValidateFingerprint(r.Machine); err != nil {
			return fmt.Errorf("machine: %w", err)
		}
	}
	if len(r.Hostname) > maxText {
		return fmt.Errorf("hostname: has more than %d bytes", maxText)
	}
	return nil
}

// The states of a CertificateResponse.
const (
	// StateIssued comes with a certificate.
	StateIssued = "issued"
	// StatePending asks the robot to repeat the same request later.
	StatePending = "pending"
	// StateRefused is final until an operator acts.
	StateRefused = "refused"
)

// CertificateResponse is the server's response to a CertificateRequest.
type CertificateResponse struct {
	State string `json:"state"`
	// Reason is a CamelCase word for programs. Empty when issued.
	Reason string `json:"reason,omitempty"`
	// Message explains the reason to people and says what to do.
	Message string `json:"message,omitempty"`
	// Certificate in PEM, when issued.
	Certificate string `json:"certificate,omitempty"`
	// CA has the certificates, in PEM, with which to verify the server and the broker from now
	// on.
	CA string `json:"ca,omitempty"`
	// MQTTURL is the URL of the broker. If empty, the robot must have it in its configuration.
	MQTTURL string `json:"mqttURL,omitempty"`
	// RetryAfter in seconds, when pending.
	RetryAfter int `json:"retryAfter,omitempty"`
}

// The reasons of refusals that a robot acts on, or that people see.
const (
	ReasonBadRequest   = "BadRequest"
	ReasonToken        = "TokenRefused"
	ReasonTooMany      = "TooManyRequests"
	ReasonUnknown      = "RobotUnknown"
	ReasonRevoked      = "Revoked"
	ReasonReimaged     = "Reimaged"
	ReasonCloned       = "Cloned"
	ReasonWaiting      = "WaitingForApproval"
	ReasonTaken        = "IDTaken"
	ReasonUnavailable  = "Unavailable"
	ReasonUnauthorized = "CertificateRefused"
)

// RetryDelay returns the time to wait before the next request when pending.
func (a CertificateResponse) RetryDelay() time.Duration {
	return time.Duration(a.RetryAfter) * time.Second
}

// Decode reads exactly one JSON object.
func Decode[T any](r io.Reader) (T, error) {
	var v T
	limited := &io.LimitedReader{R: r, N: MaxBody + 1}
	d := json.NewDecoder(limited)
	err := d.Decode(&v)
	if limited.N <= 0 {
		return v, fmt.Errorf("more than %d bytes", MaxBody)
	}
	if err != nil {
		return v, fmt.Errorf("not a JSON object: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("there is something after the JSON object")
	}
	return v, nil
}
