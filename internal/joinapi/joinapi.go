// Package joinapi is what the server offers robots over HTTPS: to join with a
// token, and to renew their certificate with the one that they have. It writes
// down who wants to be which robot; the manager decides, and what was decided
// is what this answers.
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
	"k8s4r.io/k8s4r/internal/identity"
	"k8s4r.io/k8s4r/internal/jointoken"
	"k8s4r.io/k8s4r/internal/keyfile"
	"k8s4r.io/k8s4r/internal/ratelimit"
)

// lateRenewal is how long after its end a certificate still proves a robot to
// us, if its key is still accepted: a robot may have been in a box for weeks.
const lateRenewal = 90 * 24 * time.Hour

// askAgain is how long a robot that waits for the manager does.
const askAgain = time.Second

// Authority signs and verifies.
type Authority interface {
	SignRobot(id string, public crypto.PublicKey) (*x509.Certificate, error)
	VerifyClient(c *x509.Certificate, late time.Duration) error
	Trust() []byte
}

// Tokens says what a token lets in.
type Tokens interface {
	Redeem(ctx context.Context, text, robot, key string) (jointoken.Token, error)
}

// Handler answers requests. Make it with New.
type Handler struct {
	Config
	limits   *ratelimit.Limits
	renewals *ratelimit.Limits // by robot
}

// Config is what a handler needs: all of it.
type Config struct {
	Authority Authority
	Tokens    Tokens
	// Client writes Robots, and finds them in a cache; Live reads past that.
	Client client.Client
	Live   client.Reader
	// MQTTURL is where robots find the broker. Nil or empty: they must know.
	MQTTURL func() string
	// Count is told how each request ended.
	Count func(path, outcome string)
	Now   func() time.Time
	Log   logr.Logger
}

// New prepares a handler.
func New(c Config) *Handler { return &Handler{Config: c, limits: newLimits(), renewals: newRenewals()} }

// Register adds the addresses that are served.
func (h *Handler) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+identity.JoinPath, h.serve(h.join))
	mux.HandleFunc("POST "+identity.RenewPath, h.serve(h.renew))
}

// refusal is an answer that is no certificate.
type refusal struct {
	status  int
	reason  string
	message string
}

// Error is the sentence for people.
func (r *refusal) Error() string { return r.message }

func refuse(status int, reason, format string, a ...any) error {
	return &refusal{status, reason, fmt.Sprintf(format, a...)}
}

// patience is how long a request may take to come in.
const patience = 10 * time.Second

// serve answers one request.
func (h *Handler) serve(do func(*http.Request) (identity.Answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		source := sourceOf(r)
		status, answer := http.StatusOK, identity.Answer{}
		var err error
		// A body that never ends would keep its connection, and there is no end to strangers.
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience)); err != nil {
			h.Log.Error(err, "bound the wait for a request")
		}
		if h.limits.Allow(source, h.Now()) {
			r.Body = http.MaxBytesReader(w, r.Body, identity.MaxBody+1)
			answer, err = do(r)
		} else {
			err = refuse(http.StatusTooManyRequests, identity.ReasonTooMany, "too many requests come from %s; try again in a moment", source)
		}
		if err != nil {
			status, answer = h.explain(err)
			h.Log.Info("a robot was not given a certificate", "path", r.URL.Path, "source", source, "reason", answer.Reason, "message", answer.Message)
		}
		if answer.State == identity.StatePending {
			status = http.StatusAccepted
		}
		h.Count(r.URL.Path, answer.State)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // who is gone needs no answer
	}
}

// explain turns an error into an answer. What went wrong in here is for the log.
func (h *Handler) explain(err error) (int, identity.Answer) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status, identity.Answer{State: identity.StateRefused, Reason: r.reason, Message: r.message}
	}
	h.Log.Error(err, "answer a robot")
	return http.StatusServiceUnavailable, identity.Answer{State: identity.StateRefused, Reason: identity.ReasonUnavailable, Message: "the server cannot decide this now; try again later"}
}

func sourceOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// proposal is who wants to be a robot, with what key.
type proposal struct {
	robot   string
	request *x509.CertificateRequest
	key     string
	seen    robotv1.IdentityRequest
}

// propose takes apart what both kinds of requests have in common.
func (h *Handler) propose(robot, source string, r identity.Request) (proposal, error) {
	if err := r.Check(); err != nil {
		return proposal{}, refuse(http.StatusBadRequest, identity.ReasonBadRequest, "%s", err)
	}
	csr, err := identity.ReadRequest(r.CSR)
	if err != nil {
		return proposal{}, refuse(http.StatusBadRequest, identity.ReasonBadRequest, "csr: %s", err)
	}
	key := identity.Fingerprint(csr.RawSubjectPublicKeyInfo)
	return proposal{robot: robot, request: csr, key: key, seen: robotv1.IdentityRequest{
		Key: key, Machine: r.Machine, Hostname: r.Hostname, Address: source, Time: metaNow(h.Now()),
	}}, nil
}

// join lets in who has a token.
func (h *Handler) join(r *http.Request) (identity.Answer, error) {
	in, err := identity.Decode[identity.JoinRequest](r.Body)
	if err != nil {
		return identity.Answer{}, refuse(http.StatusBadRequest, identity.ReasonBadRequest, "%s", err)
	}
	if err := identity.ValidRobot(in.RobotID); err != nil {
		return identity.Answer{}, refuse(http.StatusBadRequest, identity.ReasonBadRequest, "robotId: %s", err)
	}
	p, err := h.propose(in.RobotID, sourceOf(r), in.Request)
	if err != nil {
		return identity.Answer{}, err
	}
	token, err := h.Tokens.Redeem(r.Context(), in.Token, in.RobotID, p.key)
	if refused, ok := errors.AsType[*jointoken.RefusedError](err); ok {
		return identity.Answer{}, refuse(http.StatusForbidden, identity.ReasonToken, "%s", refused)
	}
	if err != nil {
		return identity.Answer{}, err
	}
	p.seen.Token = token.ID
	robot, err := h.findOrCreate(r.Context(), in.RobotID, token)
	if err != nil {
		return identity.Answer{}, err
	}
	return h.decide(r.Context(), robot, p)
}

// renew lets on who has a certificate.
func (h *Handler) renew(r *http.Request) (identity.Answer, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return identity.Answer{}, refuse(http.StatusUnauthorized, identity.ReasonUnauthorized, "a robot renews by the certificate that it has; without one it joins with a token")
	}
	has := r.TLS.PeerCertificates[0]
	name, err := identity.NameIn(has)
	if err == nil {
		err = h.Authority.VerifyClient(has, lateRenewal)
	}
	if err == nil {
		err = identity.ValidRobot(name)
	}
	if err != nil {
		return identity.Answer{}, refuse(http.StatusUnauthorized, identity.ReasonUnauthorized, "the certificate proves nothing here: %s; join with a token", err)
	}
	if !h.renewals.Allow(name, h.Now()) {
		return identity.Answer{}, refuse(http.StatusTooManyRequests, identity.ReasonTooMany, "robot %s renews too often; try again in a moment", name)
	}
	in, err := identity.Decode[identity.Request](r.Body)
	if err != nil {
		return identity.Answer{}, refuse(http.StatusBadRequest, identity.ReasonBadRequest, "%s", err)
	}
	p, err := h.propose(name, sourceOf(r), in)
	if err != nil {
		return identity.Answer{}, err
	}
	if p.key != identity.FingerprintOf(has) {
		return identity.Answer{}, refuse(http.StatusForbidden, identity.ReasonBadRequest, "csr: is for another key than the certificate; a new key joins with a token")
	}
	robot, err := h.find(r.Context(), name)
	if err != nil {
		return identity.Answer{}, err
	}
	if robot == nil {
		return identity.Answer{}, refuse(http.StatusForbidden, identity.ReasonUnknown, "robot %s is not known here any more; join with a token", name)
	}
	return h.decide(r.Context(), robot, p)
}

// decide answers by what the manager has made of what was asked.
func (h *Handler) decide(ctx context.Context, robot *robotv1.Robot, p proposal) (identity.Answer, error) {
	robot, err := h.record(ctx, robot, p)
	if err != nil {
		return identity.Answer{}, err
	}
	switch v := judge(robot, p); v.State {
	case identity.StateIssued:
		return h.issue(ctx, robot, p)
	case identity.StatePending:
		v.RetryAfter = int(askAgain / time.Second)
		return v, nil
	default:
		return identity.Answer{}, refuse(http.StatusForbidden, v.Reason, "%s", v.Message)
	}
}

// judge says what a Robot means for who wants to be it.
func judge(r *robotv1.Robot, p proposal) identity.Answer {
	has := r.Status.Identity.Accepted
	machine := has == nil || has.Machine == "" || p.seen.Machine == "" || has.Machine == p.seen.Machine
	approved := r.Spec.Identity != nil && r.Spec.Identity.ApprovedKey == p.key
	refused := func(reason, format string, a ...any) identity.Answer {
		return identity.Answer{State: identity.StateRefused, Reason: reason, Message: fmt.Sprintf(format, a...)}
	}
	switch {
	case r.Revoked():
		return refused(identity.ReasonRevoked, "robot %s is revoked: %s; an operator can let it in again: k8s4r robot approve %s", r.Name, r.Spec.Identity.RevokedReason, r.Name)
	case r.Accepts(p.key) && machine:
		return identity.Answer{State: identity.StateIssued}
	case has == nil:
		return identity.Answer{State: identity.StatePending, Reason: identity.ReasonWaiting,
			Message: fmt.Sprintf("robot %s waits to be let in; if that does not come by itself: k8s4r robot approve %s", r.Name, r.Name)}
	case approved && (r.Spec.Identity.ApprovedMachine == "" || r.Spec.Identity.ApprovedMachine == p.seen.Machine):
		return identity.Answer{State: identity.StatePending, Reason: identity.ReasonWaiting, Message: "an operator has approved this key; it counts in a moment"}
	case machine:
		return refused(identity.ReasonReimaged, "robot %s is known here by another key, as before a new installation; if this machine is that robot: k8s4r robot approve %s", r.Name, r.Name)
	}
	return refused(identity.ReasonCloned, "robot %s is another machine; give this one a --robot-id of its own, or if it replaces that one: k8s4r robot approve %s", r.Name, r.Name)
}

// issue signs, and writes down what was signed.
func (h *Handler) issue(ctx context.Context, robot *robotv1.Robot, p proposal) (identity.Answer, error) {
	c, err := h.Authority.SignRobot(p.robot, p.request.PublicKey)
	if err != nil {
		return identity.Answer{}, fmt.Errorf("sign for robot %s: %w", p.robot, err)
	}
	_, err = h.write(ctx, robot, func(id *robotv1.RobotIdentity) bool {
		id.Certificate = &robotv1.IssuedCertificate{SerialNumber: c.SerialNumber.Text(16), NotAfter: metaNow(c.NotAfter)}
		return true
	})
	if err != nil {
		return identity.Answer{}, err
	}
	a := identity.Answer{State: identity.StateIssued, Certificate: string(keyfile.PEM(c)), CA: string(h.Authority.Trust())}
	if h.MQTTURL != nil {
		a.MQTTURL = h.MQTTURL()
	}
	return a, nil
}
