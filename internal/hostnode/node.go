package hostnode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/isolation"
)

// Config of a Node.
type Config struct {
	// Name of the Node object, as Kubernetes allows names.
	Name string
	// Client speaks to the API server, with all rights.
	Client *rest.Config
	// Dir keeps what the node must not forget. Nobody else writes there.
	Dir string
	// Program is the file of the agent, which is the shim of each container.
	Program string
	// Capacity says otherwise than the machine what the node has.
	Capacity corev1.ResourceList
	// Labels of the Node, beside those that every node has.
	Labels map[string]string
	// PodRange is where pods get their addresses, with root.
	PodRange netip.Prefix
	// Listener takes the API server's questions for logs and commands, with
	// Certificate. Only a client that ClientCA vouches for and that is called
	// ClientName gets an answer.
	Listener    net.Listener
	Certificate tls.Certificate
	ClientCA    *x509.CertPool
	ClientName  string
	Log         *slog.Logger
}

// Node is a node of the cluster. Run is its life.
type Node struct {
	cfg      Config
	log      *slog.Logger
	client   kubernetes.Interface
	source   source
	host     isolation.Host
	keeper   *shims.Keeper
	events   record.EventRecorder
	capacity corev1.ResourceList
	api      endpoint
	hostIP   string
	network  *network // nil: pods have the address of the host
	pods     corelisters.PodLister
	services services

	mu        sync.Mutex
	workers   map[types.UID]*worker
	listeners map[*shims.Shim]func(shims.News)
	unheard   map[*shims.Shim][]shims.News // said before anybody listened
	going     sync.WaitGroup               // the workers
	ready     bool
}

// endpoint is where a server listens.
type endpoint struct{ host, port string }

// New prepares a node.
func New(c Config) (*Node, error) {
	client, err := kubernetes.NewForConfig(c.Client)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	api, err := apiEndpoint(c.Client)
	if err != nil {
		return nil, err
	}
	return &Node{
		cfg: c, log: c.Log, client: client, source: &apiSource{client}, api: api, hostIP: "127.0.0.1",
		workers: map[types.UID]*worker{}, listeners: map[*shims.Shim]func(shims.News){}, unheard: map[*shims.Shim][]shims.News{},
	}, nil
}

// mounts tells whether containers see file systems of their own.
func (n *Node) mounts() bool { return n.host.Allows(isolation.FactMountNamespace) }

// Run is the node's life, until ctx ends. Then it ends its containers, as a machine
// that goes down does; one that is killed leaves them to the next.
func (n *Node) Run(ctx context.Context) (err error) {
	if err := os.MkdirAll(n.podsDir(), 0o711); err != nil {
		return err
	}
	if n.keeper, err = shims.New(); err != nil {
		return err
	}
	defer n.keeper.Close()
	n.host = isolation.Probe(ownerName(n.cfg.Dir), n.cfg.Dir)
	if err := n.openNetwork(); err != nil {
		return err
	}
	if n.capacity, err = n.capacityOf(); err != nil {
		return err
	}
	events := n.startEvents()
	defer events.Shutdown()
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go n.dispatch(life)
	if err := n.serve(life); err != nil {
		return err
	}
	if err := n.register(ctx); err != nil {
		return err
	}
	go n.beat(ctx)
	if err := n.watch(life); err != nil {
		return err
	}
	<-ctx.Done()
	return n.shutDown(stop)
}

// Ready returns nil once pods can be bound to the node.
func (n *Node) Ready(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ready {
		return errors.New("the node has not registered yet")
	}
	return nil
}

// shutDownWait bounds how long containers may take to end with the node.
const shutDownWait = 10 * time.Second

// shutDown ends the containers. Nobody is told: the next node finds out how they
// ended, and goes on from there.
func (n *Node) shutDown(stop func()) error {
	stop()
	n.going.Wait()
	n.keeper.StopAll(stopCause)
	for until := time.Now().Add(shutDownWait); n.keeper.Held() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			return errors.New("containers do not end")
		}
	}
	return nil
}

func (n *Node) podsDir() string { return filepath.Join(n.cfg.Dir, "pods") }

func (n *Node) placesOf(uid types.UID) places { return places(filepath.Join(n.podsDir(), string(uid))) }

// watch takes up the pods that are bound to the node.
func (n *Node) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(n.client, 0, informers.WithTweakListOptions(boundTo(n.cfg.Name)))
	pods := factory.Core().V1().Pods()
	n.pods = pods.Lister()
	informer := pods.Informer()
	if err := n.watchServices(ctx); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	n.sweepOrphans(ctx)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { n.seen(ctx, o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { n.seen(ctx, o.(*corev1.Pod)) },
		DeleteFunc: func(o any) { n.lost(o) },
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = true
	return nil
}

func boundTo(node string) func(*listOptions) {
	return func(o *listOptions) { o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String() }
}

// seen hands a pod to its worker, who is there from the first time on.
func (n *Node) seen(ctx context.Context, pod *corev1.Pod) {
	n.mu.Lock()
	w := n.workers[pod.UID]
	if w == nil {
		w = n.employ(pod)
		n.going.Go(func() {
			if w.takenUp(ctx) {
				w.loop(ctx)
			}
		})
	}
	n.mu.Unlock()
	w.tell(func(context.Context) { w.see(pod) })
	if pod.Spec.Subdomain != "" {
		n.renewHosts()
	}
}

// employ makes the worker of a pod.
func (n *Node) employ(pod *corev1.Pod) *worker {
	w := &worker{
		world: world{pod: pod, records: map[string]*containerRecord{}, hostIP: n.hostIP, startedAt: time.Now()},
		node:  n, source: newTokens(n.source, time.Now), places: n.placesOf(pod.UID), key: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name},
		held: map[string]*shims.Shim{}, probes: map[probeKey]context.CancelFunc{}, ring: make(chan struct{}, 1),
	}
	if pod.Status.StartTime != nil {
		w.startedAt = pod.Status.StartTime.Time
	}
	n.workers[pod.UID] = w
	return w
}

// setOutAgain is the pause before a pod is taken up again that could not be.
const setOutAgain = 5 * time.Second

// takenUp tries to take a pod up until it can be. It tells whether it was before ctx
// has ended.
func (w *worker) takenUp(ctx context.Context) bool {
	for {
		err := w.setOut()
		if err == nil {
			return true
		}
		w.node.log.Error("a pod cannot be taken up, will try again", "pod", w.key, "error", err)
		w.node.event(w.pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", err.Error())
		select {
		case <-ctx.Done():
			return false
		case <-time.After(setOutAgain):
		}
	}
}

// setOut finds what is there of a pod already.
func (w *worker) setOut() error {
	w.refused = refusal(w.pod, w.node.mounts())
	if terminal(w.pod) || w.pod.DeletionTimestamp != nil {
		w.refused = "" // that was judged before
	}
	if err := os.MkdirAll(string(w.places), 0o711); err != nil {
		return err
	}
	if err := w.takeAddress(); err != nil {
		return err
	}
	return w.adopt()
}

// lost hands on that a pod is no more.
func (n *Node) lost(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	pod := o.(*corev1.Pod)
	n.mu.Lock()
	w := n.workers[pod.UID]
	n.mu.Unlock()
	if w != nil {
		w.tell(func(context.Context) {
			w.gone = true
			w.hurry(time.Second)
		})
	}
}

// forget removes all that is there of a pod.
func (n *Node) forget(ctx context.Context, w *worker) {
	n.mu.Lock()
	delete(n.workers, w.pod.UID)
	n.mu.Unlock()
	n.network.release(w.podIP, w.pod.UID)
	n.clear(ctx, w.pod.UID)
	if w.pod.Spec.Subdomain != "" {
		n.renewHosts()
	}
}
