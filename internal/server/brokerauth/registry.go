// Package brokerauth authenticates the clients of the embedded broker: robots with an
// accepted key, the server, the console, and clients without a certificate only if flags
// allow them.
package brokerauth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Config allows clients without a certificate.
type Config struct {
	// AllowLegacy allows legacy agents.
	AllowLegacy bool
	// AllowAnonymous allows all other clients, but not as a robot with an accepted key.
	AllowAnonymous bool
}

// Registry authenticates clients by the Robots in the cluster. It is an Authenticator of
// the embedded broker, and a Runnable of a controller manager.
type Registry struct {
	cfg        Config
	informers  Informers
	disconnect func(name string)
	warn       func(robot client.Object, reason, message string)

	mu     sync.Mutex
	ready  bool
	robots map[string][]*robotv1.Robot // by id: two namespaces may have one each
}

// Informers is the part of a cache that the registry needs.
type Informers interface {
	GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// NewRegistry returns a registry that refuses all robots until it is started.
func NewRegistry(cfg Config) *Registry {
	return &Registry{cfg: cfg, disconnect: func(string) {}, warn: func(client.Object, string, string) {}, robots: map[string][]*robotv1.Robot{}}
}

// SetDependencies sets the source of Robots, the function that disconnects one, and the
// one that records a Warning event. It must be called before Start.
func (g *Registry) SetDependencies(informers Informers, disconnect func(name string), warn func(robot client.Object, reason, message string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.informers, g.disconnect, g.warn = informers, disconnect, warn
}

// ReportRefusal records an event for a denied action of a robot.
func (g *Registry) ReportRefusal(r broker.Refusal) {
	g.mu.Lock()
	robot, warn := g.robotLocked(r.Name), g.warn
	g.mu.Unlock()
	if robot != nil {
		warn(robot, "ImpersonationRefused", fmt.Sprintf("The robot tried to %s with a topic or client ID that is not its own, and was refused: %.200q", r.Action, r.Topic))
	}
}

// ReportThrottled records an event for a robot whose messages the broker delays.
func (g *Registry) ReportThrottled(name string) {
	g.mu.Lock()
	robot, warn := g.robotLocked(name), g.warn
	g.mu.Unlock()
	if robot != nil {
		warn(robot, robotv1.ReasonRateLimited, "The robot sends more or larger messages than the broker accepts; it is read from more slowly")
	}
}

// NeedLeaderElection reports that the registry runs without leadership.
func (g *Registry) NeedLeaderElection() bool { return false }

// Start watches Robots until ctx ends.
func (g *Registry) Start(ctx context.Context) error {
	informer, err := g.informers.GetInformer(ctx, &robotv1.Robot{})
	if err != nil {
		return fmt.Errorf("watch robots: %w", err)
	}
	reg, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { g.updateRobot(o.(*robotv1.Robot)) },
		UpdateFunc: func(_, o any) { g.updateRobot(o.(*robotv1.Robot)) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if r, ok := o.(*robotv1.Robot); ok {
				g.removeRobot(r)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch robots: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(reg) }()
	if !toolscache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		return nil // ctx has ended
	}
	g.setReady()
	<-ctx.Done()
	return nil
}

func (g *Registry) setReady() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ready = true
}

// updateRobot stores a Robot, and disconnects it if its credential was replaced or
// revoked.
func (g *Registry) updateRobot(r *robotv1.Robot) {
	g.replaceRobot(r, func(same []*robotv1.Robot) []*robotv1.Robot { return append(same, r) })
}

func (g *Registry) removeRobot(r *robotv1.Robot) {
	g.replaceRobot(r, func(same []*robotv1.Robot) []*robotv1.Robot { return same })
}

func (g *Registry) replaceRobot(r *robotv1.Robot, add func(others []*robotv1.Robot) []*robotv1.Robot) {
	id := r.Spec.RobotID
	g.mu.Lock()
	was := credentialOf(g.robotLocked(id))
	var others []*robotv1.Robot
	for _, o := range g.robots[id] {
		if o.Namespace != r.Namespace {
			others = append(others, o)
		}
	}
	if g.robots[id] = add(others); len(g.robots[id]) == 0 {
		delete(g.robots, id)
	}
	is, cut := credentialOf(g.robotLocked(id)), g.disconnect
	g.mu.Unlock()
	if was.key != is.key || is.revoked && !was.revoked {
		cut(id)
	}
}

// credential is what a robot's connection depends on. The zero value is that of a robot
// without an accepted key, and of one that does not exist.
type credential struct {
	revoked bool
	key     string
}

func credentialOf(r *robotv1.Robot) (s credential) {
	if r == nil {
		return s
	}
	s.revoked = r.IsRevoked()
	if id := r.Status.Identity; id != nil && id.Accepted != nil {
		s.key = id.Accepted.Key
	}
	return s
}

// robotLocked returns the Robot with an ID, the oldest if several namespaces have one,
// or nil.
func (g *Registry) robotLocked(id string) *robotv1.Robot {
	var first *robotv1.Robot
	for _, r := range g.robots[id] {
		if first == nil || r.CompareAge(first) < 0 {
			first = r
		}
	}
	return first
}

var (
	errNotReady            = fmt.Errorf("the server has not seen all robots yet: %w", broker.ErrNotReady)
	errNoCertificate       = errors.New("no certificate; join with a token, see docs/explanation/security.md")
	errLegacy              = errors.New("legacy agents are not allowed; see --allow-legacy-agents")
	errRevoked             = errors.New("the robot is revoked")
	errCertificateRequired = errors.New("the robot has an accepted key, and this connection has no certificate")
	errOtherKey            = errors.New("the robot has another accepted key")
	errUnknownRobot        = errors.New("unknown robot; join again")
	errReservedName        = errors.New("the name is reserved")
)

// Authenticate implements broker.Authenticator. The broker checks the client ID itself,
// so that it can report the robot that used a wrong one.
func (g *Registry) Authenticate(p broker.Peer) (broker.Identity, error) {
	if p.Certificate == nil {
		return g.identifyWithoutCertificate(p)
	}
	return g.identifyCertificate(p.Certificate)
}

// identifyCertificate returns the identity of a client with a certificate of the robots' CA.
func (g *Registry) identifyCertificate(c *x509.Certificate) (broker.Identity, error) {
	name, err := identity.CertificateName(c)
	if err != nil {
		return broker.Identity{}, err
	}
	key := identity.CertificateFingerprint(c)
	if name == identity.ServerName { // never issued to robots
		return broker.Identity{Name: name, Role: acl.Server, Generation: identity.ServerName, Expires: c.NotAfter}, nil
	}
	if name == identity.ConsoleName { // never issued to robots
		return broker.Identity{Name: name, Role: acl.Console, Generation: identity.ConsoleName, Expires: c.NotAfter}, nil
	}
	if err := g.checkKey(name, key); err != nil {
		return broker.Identity{}, fmt.Errorf("robot %s: %w", name, err)
	}
	return broker.Identity{Name: name, Role: acl.Robot, Generation: key, Expires: c.NotAfter}, nil
}

// checkKey returns an error unless the key is the robot's accepted one.
func (g *Registry) checkKey(id, key string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.robotLocked(id)
	switch {
	case !g.ready:
		return errNotReady
	case r == nil:
		return errUnknownRobot
	case r.IsRevoked():
		return errRevoked
	case !r.AcceptsKey(key):
		return errOtherKey
	}
	return nil
}

// identifyWithoutCertificate accepts legacy and anonymous clients if flags allow them.
func (g *Registry) identifyWithoutCertificate(p broker.Peer) (broker.Identity, error) {
	id, legacy := strings.CutPrefix(p.ClientID, broker.LegacyPrefix)
	if wire.IsProgramName(id) {
		return broker.Identity{}, errReservedName
	}
	if err := g.checkUncertified(id); err != nil {
		return broker.Identity{}, err
	}
	switch {
	case legacy && g.cfg.AllowLegacy && wire.ValidateRobotID(id) == nil:
		return broker.Identity{Name: id, Role: acl.LegacyAgent}, nil
	case g.cfg.AllowAnonymous:
		return broker.Identity{Name: id, Role: acl.Anonymous, IsAuthenticated: g.requiresCertificate}, nil
	case legacy:
		return broker.Identity{}, errLegacy
	}
	return broker.Identity{}, errNoCertificate
}

// requiresCertificate reports whether only a certificate can act as the robot.
func (g *Registry) requiresCertificate(id string) bool { return g.checkUncertified(id) != nil }

// checkUncertified refuses clients without a certificate that use the name of a robot
// with an accepted key, or of a revoked one.
func (g *Registry) checkUncertified(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := credentialOf(g.robotLocked(id))
	switch {
	case !g.ready:
		return errNotReady
	case s.revoked:
		return errRevoked
	case s.key != "":
		return errCertificateRequired
	}
	return nil
}
