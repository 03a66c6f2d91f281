// Package joinapi serves the HTTPS API by which robots join with a token and renew their
// certificates. It writes the requested identity to the Robot; the manager decides, and
// the response follows its decision.
package joinapi

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/connlimit"
	"k8s4r.io/k8s4r/internal/platform/jointoken"
	ratelimit "k8s4r.io/k8s4r/internal/platform/limits"
	"k8s4r.io/k8s4r/internal/platform/uptime"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// retryAfter is when a robot that waits for approval should ask again.
const retryAfter = time.Second

// Authority signs and verifies certificates.
type Authority interface {
	SignRobot(id string, public crypto.PublicKey) (*x509.Certificate, error)
	VerifyClient(c *x509.Certificate) (isValid bool, err error)
	TrustPEM() []byte
}

// Tokens checks join tokens.
type Tokens interface {
	Redeem(ctx context.Context, text, robot, key string) (jointoken.Token, error)
}

// Handler serves requests. Create it with New.
type Handler struct {
	Config
	limits   *ratelimit.Limits
	renewals *ratelimit.Limits // by limitName
	// startedAt and startUptime are the wall clock and Uptime at the start.
	startedAt   time.Time
	startUptime time.Duration
}

// Config has the dependencies of a Handler. All are required, except MQTTURL and Uptime.
type Config struct {
	Authority Authority
	Tokens    Tokens
	// Client writes Robots, and reads them from a cache; Live reads without it.
	Client client.Client
	Live   client.Reader
	// MQTTURL returns the broker's URL for robots. If nil or empty, robots need --mqtt-url.
	MQTTURL func() string
	// CountRequest is called with the outcome of each request.
	CountRequest func(path, outcome string)
	Now          func() time.Time
	// Uptime measures durations. If nil, it is uptime.OfMachine.
	Uptime func() time.Duration
	Log    logr.Logger
}

// New returns a handler.
func New(c Config) *Handler {
	if c.Uptime == nil {
		c.Uptime = uptime.OfMachine
	}
	return &Handler{Config: c, limits: newLimits(), renewals: newRenewals(), startedAt: c.Now(), startUptime: c.Uptime()}
}

// Register adds the routes to mux.
func (h *Handler) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+identity.JoinPath, h.handleFunc(h.handleJoin))
	mux.HandleFunc("POST "+identity.RenewPath, h.handleFunc(h.handleRenew))
}

// refusal is an error that is sent to the robot.
type refusal struct {
	status  int
	reason  string
	message string
}

// Error returns the message for users.
func (r *refusal) Error() string { return r.message }

func newRefusal(status int, reason, format string, a ...any) error {
	return &refusal{status, reason, fmt.Sprintf(format, a...)}
}

// readTimeout bounds the time to read a request.
const readTimeout = 10 * time.Second

// handleFunc returns the HTTP handler of one route.
func (h *Handler) handleFunc(do func(*http.Request) (identity.CertificateResponse, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		source := sourceAddress(r)
		status, answer := http.StatusOK, identity.CertificateResponse{}
		var err error
		// Unauthenticated clients must not keep connections open with a slow body.
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
			h.Log.Error(err, "set the read deadline of a request")
		}
		if h.limits.Allow(ratelimit.AddressName(r.RemoteAddr), h.Now()) {
			r.Body = http.MaxBytesReader(w, r.Body, identity.MaxBody+1)
			answer, err = do(r)
		} else {
			err = newRefusal(http.StatusTooManyRequests, identity.ReasonTooMany, "too many requests from %s; try again later", source)
		}
		if err != nil {
			status, answer = h.answerFor(err)
			h.Log.Info("refused a certificate request", "path", r.URL.Path, "source", source, "reason", answer.Reason, "message", answer.Message)
		}
		if answer.State == identity.StatePending {
			status = http.StatusAccepted
		}
		h.CountRequest(r.URL.Path, answer.State)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // the client may be gone
	}
}

// answerFor turns an error into a response. Internal errors are only logged.
func (h *Handler) answerFor(err error) (int, identity.CertificateResponse) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status, identity.CertificateResponse{State: identity.StateRefused, Reason: r.reason, Message: r.message}
	}
	h.Log.Error(err, "answer a robot")
	return http.StatusServiceUnavailable, identity.CertificateResponse{State: identity.StateRefused, Reason: identity.ReasonUnavailable, Message: "the server cannot answer the request now; try again later"}
}

func sourceAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// limitName returns the name by which a client is limited that has proven a key of a robot. A key that
// is no longer accepted, such as that of a stolen robot, must not use up the limits of the robot.
func limitName(robot, key string) string { return "robot " + robot + " with key " + key }

// countConnection counts the connection of a request for a robot and the key that it has proven.
func countConnection(r *http.Request, robot, key string) error {
	if err := connlimit.Authenticate(r.Context(), limitName(robot, key)); err != nil {
		return newRefusal(http.StatusTooManyRequests, identity.ReasonTooMany, "%s", err)
	}
	return nil
}

// joinAttempt is a request to be a robot with a key.
type joinAttempt struct {
	robot   string
	request *x509.CertificateRequest
	key     string
	seen    robotv1.IdentityRequest
}

// newJoinAttempt reads what join and renew requests have in common.
func (h *Handler) newJoinAttempt(robot, source string, r identity.CertificateRequest) (joinAttempt, error) {
	if err := r.Validate(); err != nil {
		return joinAttempt{}, newRefusal(http.StatusBadRequest, identity.ReasonBadRequest, "%s", err)
	}
	csr, err := identity.ParseCSR(r.CSR)
	if err != nil {
		return joinAttempt{}, newRefusal(http.StatusBadRequest, identity.ReasonBadRequest, "csr: %s", err)
	}
	key := identity.KeyFingerprint(csr.RawSubjectPublicKeyInfo)
	return joinAttempt{robot: robot, request: csr, key: key, seen: robotv1.IdentityRequest{
		Key: key, Machine: r.Machine, Hostname: r.Hostname, Address: source, Time: toMetaTime(h.Now()),
	}}, nil
}

// handleJoin serves a join with a token.
func (h *Handler) handleJoin(r *http.Request) (identity.CertificateResponse, error) {
	in, err := identity.Decode[identity.JoinRequest](r.Body)
	if err != nil {
		return identity.CertificateResponse{}, newRefusal(http.StatusBadRequest, identity.ReasonBadRequest, "%s", err)
	}
	if err := wire.ValidateRobotID(in.RobotID); err != nil {
		return identity.CertificateResponse{}, newRefusal(http.StatusBadRequest, identity.ReasonBadRequest, "robotId: %s", err)
	}
	p, err := h.newJoinAttempt(in.RobotID, sourceAddress(r), in.CertificateRequest)
	if err != nil {
		return identity.CertificateResponse{}, err
	}
	token, err := h.Tokens.Redeem(r.Context(), in.Token, in.RobotID, p.key)
	if refused, ok := errors.AsType[*jointoken.RefusedError](err); ok {
		return identity.CertificateResponse{}, newRefusal(http.StatusForbidden, identity.ReasonToken, "%s", refused)
	}
	if errors.Is(err, jointoken.ErrTooSoon) {
		return identity.CertificateResponse{}, newRefusal(http.StatusTooManyRequests, identity.ReasonTooMany, "%s", err)
	}
	if err != nil {
		return identity.CertificateResponse{}, err
	}
	if err := countConnection(r, in.RobotID, p.key); err != nil {
		return identity.CertificateResponse{}, err
	}
	p.seen.Token = token.ID
	robot, err := h.findOrCreateRobot(r.Context(), in.RobotID, token)
	if err != nil {
		return identity.CertificateResponse{}, err
	}
	return h.answerRequest(r.Context(), robot, p)
}

// handleRenew serves a renewal with a certificate.
func (h *Handler) handleRenew(r *http.Request) (identity.CertificateResponse, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return identity.CertificateResponse{}, newRefusal(http.StatusUnauthorized, identity.ReasonUnauthorized, "a renewal needs the robot's certificate; without one, join with a token")
	}
	has := r.TLS.PeerCertificates[0]
	name, isValid, err := h.verifyRobot(has)
	if err != nil {
		return identity.CertificateResponse{}, newRefusal(http.StatusUnauthorized, identity.ReasonUnauthorized, "the certificate is not valid: %s; join with a token", err)
	}
	key := identity.CertificateFingerprint(has)
	if err := countConnection(r, name, key); err != nil {
		return identity.CertificateResponse{}, err
	}
	if !h.renewals.Allow(limitName(name, key), h.Now()) {
		return identity.CertificateResponse{}, newRefusal(http.StatusTooManyRequests, identity.ReasonTooMany, "robot %s renews too often; try again later", name)
	}
	in, err := identity.Decode[identity.CertificateRequest](r.Body)
	if err != nil {
		return identity.CertificateResponse{}, newRefusal(http.StatusBadRequest, identity.ReasonBadRequest, "%s", err)
	}
	p, err := h.newJoinAttempt(name, sourceAddress(r), in)
	if err != nil {
		return identity.CertificateResponse{}, err
	}
	if p.key != key {
		return identity.CertificateResponse{}, newRefusal(http.StatusForbidden, identity.ReasonBadRequest, "csr: must be for the key of the certificate; to use a new key, join with a token")
	}
	robot, err := h.findRobot(r.Context(), name)
	if err != nil {
		return identity.CertificateResponse{}, err
	}
	if robot == nil {
		return identity.CertificateResponse{}, newRefusal(http.StatusForbidden, identity.ReasonUnknown, "robot %s does not exist; join with a token", name)
	}
	if !isValid && robot.AcceptsKey(p.key) && h.silence(robot, p.key) > renewalGrace {
		return identity.CertificateResponse{}, newRefusal(http.StatusUnauthorized, identity.ReasonUnauthorized,
			"the certificate of robot %s is not valid now, and no message of it was received for more than %d days; join with a token", name, renewalGrace/(24*time.Hour))
	}
	return h.answerRequest(r.Context(), robot, p)
}

// answerRequest records the request and responds with the manager's decision.
func (h *Handler) answerRequest(ctx context.Context, robot *robotv1.Robot, p joinAttempt) (identity.CertificateResponse, error) {
	robot, err := h.recordRequest(ctx, robot, p)
	if err != nil {
		return identity.CertificateResponse{}, err
	}
	switch v := evaluate(robot, p); v.State {
	case identity.StateIssued:
		return h.issueCertificate(ctx, robot, p)
	case identity.StatePending:
		v.RetryAfter = int(retryAfter / time.Second)
		return v, nil
	default:
		return identity.CertificateResponse{}, newRefusal(http.StatusForbidden, v.Reason, "%s", v.Message)
	}
}

// evaluate returns the response for a request, by the state of the Robot.
func evaluate(r *robotv1.Robot, p joinAttempt) identity.CertificateResponse {
	has := r.Status.Identity.Accepted
	machine := has == nil || has.Machine == "" || p.seen.Machine == "" || has.Machine == p.seen.Machine
	approved := r.Spec.Identity != nil && r.Spec.Identity.ApprovedKey == p.key
	refused := func(reason, format string, a ...any) identity.CertificateResponse {
		return identity.CertificateResponse{State: identity.StateRefused, Reason: reason, Message: fmt.Sprintf(format, a...)}
	}
	switch {
	case r.IsRevoked():
		return refused(identity.ReasonRevoked, "robot %s is revoked: %s; an operator can approve it again: k8s4r robot approve %s", r.Name, r.Spec.Identity.RevokedReason, r.Name)
	case r.AcceptsKey(p.key) && machine:
		return identity.CertificateResponse{State: identity.StateIssued}
	case has == nil:
		return identity.CertificateResponse{State: identity.StatePending, Reason: identity.ReasonWaiting,
			Message: fmt.Sprintf("robot %s waits for approval; unless it is approved automatically, run: k8s4r robot approve %s", r.Name, r.Name)}
	case approved && (r.Spec.Identity.ApprovedMachine == "" || r.Spec.Identity.ApprovedMachine == p.seen.Machine):
		return identity.CertificateResponse{State: identity.StatePending, Reason: identity.ReasonWaiting, Message: "an operator has approved this key; it will be accepted soon"}
	case machine:
		return refused(identity.ReasonReimaged, "robot %s has another key, as after a new installation; if this machine is that robot, run: k8s4r robot approve %s", r.Name, r.Name)
	}
	return refused(identity.ReasonCloned, "robot %s is another machine; use another --robot-id, or if this machine replaces it, run: k8s4r robot approve %s", r.Name, r.Name)
}

// issueCertificate signs a certificate and records it before the robot gets it, so that it can be
// revoked.
func (h *Handler) issueCertificate(ctx context.Context, robot *robotv1.Robot, p joinAttempt) (identity.CertificateResponse, error) {
	c, err := h.Authority.SignRobot(p.robot, p.request.PublicKey)
	if err != nil {
		return identity.CertificateResponse{}, fmt.Errorf("sign for robot %s: %w", p.robot, err)
	}
	var refused error
	_, err = h.updateIdentity(ctx, robot, func(id *robotv1.RobotIdentity) bool {
		refused = recordCertificate(id, robotv1.IssuedCertificate{SerialNumber: c.SerialNumber.Text(16), NotAfter: toMetaTime(c.NotAfter), Key: p.key}, h.Now())
		return refused == nil
	})
	if err := errors.Join(err, refused); err != nil {
		return identity.CertificateResponse{}, err
	}
	a := identity.CertificateResponse{State: identity.StateIssued, Certificate: string(keyfile.EncodeCertificates(c)), CA: string(h.Authority.TrustPEM())}
	if h.MQTTURL != nil {
		a.MQTTURL = h.MQTTURL()
	}
	return a, nil
}
