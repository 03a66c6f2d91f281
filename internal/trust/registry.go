// Package trust is who may connect to the embedded broker: robots whose key an
// operator or a token has let in, the server, and others only if they were
// asked for.
package trust

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/identity"
	"k8s4r.io/k8s4r/internal/wire"
)

// Config says who is let in without a certificate.
type Config struct {
	// AllowLegacy lets in agents of the document.
	AllowLegacy bool
	// AllowAnonymous lets in everybody, but not as a robot that has an identity.
	AllowAnonymous bool
}

// Registry knows all Robots. It is an Authority of the embedded broker, and a
// Runnable of a controller manager.
type Registry struct {
	cfg       Config
	informers Informers
	cut       func(name string)
	warn      func(robot client.Object, reason, message string)

	mu     sync.Mutex
	ready  bool
	robots map[string][]*robotv1.Robot // by id: two namespaces may have one each
}

// Informers is the part of a cache that the registry needs.
type Informers interface {
	GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// NewRegistry knows nobody, and so lets nobody in, until it has watched.
func NewRegistry(cfg Config) *Registry {
	return &Registry{cfg: cfg, cut: func(string) {}, warn: func(client.Object, string, string) {}, robots: map[string][]*robotv1.Robot{}}
}

// Follow says where Robots are seen, how the connection of one is ended, and how
// people are told about one. It comes before Start.
func (g *Registry) Follow(informers Informers, cut func(name string), warn func(robot client.Object, reason, message string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.informers, g.cut, g.warn = informers, cut, warn
}

// Refused tells people what a robot has tried and may not.
func (g *Registry) Refused(r broker.Refusal) {
	g.mu.Lock()
	robot, warn := g.elder(r.Name), g.warn
	g.mu.Unlock()
	if robot != nil {
		warn(robot, "Pretence", fmt.Sprintf("The robot has tried to %s what is not its own, and was refused: %.200q", r.What, r.Topic))
	}
}

// NeedLeaderElection tells the controller manager that a broker is asked
// whoever leads.
func (g *Registry) NeedLeaderElection() bool { return false }

// Start watches until ctx ends.
func (g *Registry) Start(ctx context.Context) error {
	informer, err := g.informers.GetInformer(ctx, &robotv1.Robot{})
	if err != nil {
		return fmt.Errorf("watch robots: %w", err)
	}
	reg, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { g.see(o.(*robotv1.Robot)) },
		UpdateFunc: func(_, o any) { g.see(o.(*robotv1.Robot)) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if r, ok := o.(*robotv1.Robot); ok {
				g.forget(r)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch robots: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(reg) }()
	if !toolscache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		return nil // asked to end
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

// see takes in a Robot as it is now. A connection that could not be made again
// is ended.
func (g *Registry) see(r *robotv1.Robot) {
	g.change(r, func(same []*robotv1.Robot) []*robotv1.Robot { return append(same, r) })
}

func (g *Registry) forget(r *robotv1.Robot) {
	g.change(r, func(same []*robotv1.Robot) []*robotv1.Robot { return same })
}

func (g *Registry) change(r *robotv1.Robot, add func(others []*robotv1.Robot) []*robotv1.Robot) {
	id := r.Spec.RobotID
	g.mu.Lock()
	was := standing(g.elder(id))
	var others []*robotv1.Robot
	for _, o := range g.robots[id] {
		if o.Namespace != r.Namespace {
			others = append(others, o)
		}
	}
	if g.robots[id] = add(others); len(g.robots[id]) == 0 {
		delete(g.robots, id)
	}
	is, cut := standing(g.elder(id)), g.cut
	g.mu.Unlock()
	if was.key != is.key || is.revoked && !was.revoked {
		cut(id)
	}
}

// right is what a connection of a robot rests on. The zero value is that of one who
// proves nothing, whether there is a Robot or not.
type right struct {
	revoked bool
	key     string
}

func standing(r *robotv1.Robot) (s right) {
	if r == nil {
		return s
	}
	s.revoked = r.Revoked()
	if id := r.Status.Identity; id != nil && id.Accepted != nil {
		s.key = id.Accepted.Key
	}
	return s
}

// elder is the Robot that an id belongs to: the older one, where two namespaces
// have it. Nil: nobody has it.
func (g *Registry) elder(id string) *robotv1.Robot {
	var first *robotv1.Robot
	for _, r := range g.robots[id] {
		if first == nil || r.CompareAge(first) < 0 {
			first = r
		}
	}
	return first
}

var (
	errNotReady   = errors.New("the server has not seen all robots yet")
	errNoProof    = errors.New("no certificate; join with a token, see docs/security.md")
	errLegacy     = errors.New("agents that prove nothing are not let in; see --allow-legacy-agents")
	errRevoked    = errors.New("the robot is revoked")
	errHasProof   = errors.New("the robot has an identity, and this connection does not prove it")
	errOtherKey   = errors.New("another key speaks for the robot")
	errUnknown    = errors.New("there is no such robot; join anew")
	errIsReserved = errors.New("the name is the server's own")
)

// Identify implements broker.Authority. By which client id a certificate comes is
// for the broker to judge: refused here, nobody would know whom to blame for it.
func (g *Registry) Identify(p broker.Peer) (broker.Identity, error) {
	if p.Certificate == nil {
		return g.withoutProof(p)
	}
	name, err := identity.NameIn(p.Certificate)
	if err != nil {
		return broker.Identity{}, err
	}
	key := identity.FingerprintOf(p.Certificate)
	if name == identity.Server { // nobody else is ever given that name
		return broker.Identity{Name: name, Role: broker.RoleServer, Generation: identity.Server, Expires: p.Certificate.NotAfter}, nil
	}
	if name == identity.Console { // nor this one
		return broker.Identity{Name: name, Role: broker.RoleConsole, Generation: identity.Console, Expires: p.Certificate.NotAfter}, nil
	}
	if err := g.judge(name, key); err != nil {
		return broker.Identity{}, fmt.Errorf("robot %s: %w", name, err)
	}
	return broker.Identity{Name: name, Role: broker.RoleRobot, Generation: key, Expires: p.Certificate.NotAfter}, nil
}

// judge tells whether a key may speak for a robot.
func (g *Registry) judge(id, key string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.elder(id)
	switch {
	case !g.ready:
		return errNotReady
	case r == nil:
		return errUnknown
	case r.Revoked():
		return errRevoked
	case !r.Accepts(key):
		return errOtherKey
	}
	return nil
}

// withoutProof lets in whom an operator has said to let in without any.
func (g *Registry) withoutProof(p broker.Peer) (broker.Identity, error) {
	id, legacy := strings.CutPrefix(p.ClientID, broker.LegacyPrefix)
	if p.ClientID == identity.Server || p.ClientID == identity.Console {
		return broker.Identity{}, errIsReserved
	}
	if err := g.judgeUnproven(id); err != nil {
		return broker.Identity{}, err
	}
	switch {
	case legacy && g.cfg.AllowLegacy && wire.ValidRobotID(id) == nil:
		return broker.Identity{Name: id, Role: broker.RoleLegacy}, nil
	case g.cfg.AllowAnonymous:
		return broker.Identity{Name: id, Role: broker.RoleAnonymous, Proven: g.proven}, nil
	case legacy:
		return broker.Identity{}, errLegacy
	}
	return broker.Identity{}, errNoProof
}

// proven tells whether a robot is spoken for by its certificate alone: it has one,
// or is refused.
func (g *Registry) proven(id string) bool { return g.judgeUnproven(id) != nil }

// judgeUnproven refuses those who take the name of a robot that has proven
// itself, or was refused.
func (g *Registry) judgeUnproven(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := standing(g.elder(id))
	switch {
	case !g.ready:
		return errNotReady
	case s.revoked:
		return errRevoked
	case s.key != "":
		return errHasProof
	}
	return nil
}
