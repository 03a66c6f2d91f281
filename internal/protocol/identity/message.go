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

// MaxBody bounds what either side reads of the other.
const MaxBody = 64 << 10

// maxText bounds a field that is for people.
const maxText = 256

// JoinRequest is what a robot says once, with its token.
type JoinRequest struct {
	RobotID string `json:"robotId"`
	// Token is id.secret.
	Token string `json:"token"`
	Request
}

// Request is what a robot says each time that it wants a certificate.
type Request struct {
	// CSR is a certificate request in PEM for the robot's key.
	CSR string `json:"csr"`
	// Machine tells this machine from others, as a fingerprint: an identity that
	// turns up on two machines has been copied. Empty: it has no machine id.
	Machine string `json:"machine,omitempty"`
	// Hostname for people.
	Hostname string `json:"hostname,omitempty"`
}

// Check refuses what makes no sense.
func (r Request) Check() error {
	if r.Machine != "" {
		if err := ValidFingerprint(r.Machine); err != nil {
			return fmt.Errorf("machine: %w", err)
		}
	}
	if len(r.Hostname) > maxText {
		return fmt.Errorf("hostname: has more than %d bytes", maxText)
	}
	return nil
}

// The states of an Answer.
const (
	// StateIssued comes with a certificate.
	StateIssued = "issued"
	// StatePending asks to come again with the same request.
	StatePending = "pending"
	// StateRefused will stay so until somebody does something about it.
	StateRefused = "refused"
)

// Answer is the server's.
type Answer struct {
	State string `json:"state"`
	// Reason in one word, for programs. Empty when issued.
	Reason string `json:"reason,omitempty"`
	// Message for people, with the way out.
	Message string `json:"message,omitempty"`
	// Certificate in PEM, when issued.
	Certificate string `json:"certificate,omitempty"`
	// CA in PEM: who vouches for the server and the broker from now on.
	CA string `json:"ca,omitempty"`
	// MQTTURL of the broker. Empty: the robot must know.
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

// RetryIn is how long to wait when pending.
func (a Answer) RetryIn() time.Duration { return time.Duration(a.RetryAfter) * time.Second }

// Decode reads one JSON object, and nothing after it.
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
