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

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// Config configures a Node.
type Config struct {
	// Name of the Node object. It must be a valid Kubernetes name.
	Name string
	// Client is for the API server, with the permissions of config/up/node.yaml.
	Client *rest.Config
	// Dir holds the state of the node. No other process writes there.
	Dir string
	// Program is the path of the agent's program, which runs as the shim of each container.
	Program string
	// Capacity overrides the resources of the machine.
	Capacity corev1.ResourceList
	// Labels of the Node, besides the usual ones.
	Labels map[string]string
	// PodRange is the range of pod addresses. It is used only with root.
	PodRange netip.Prefix
	// Listener receives the API server's requests for logs and commands, over TLS with the
	// certificate that Certificate returns. Only a client with a certificate of ClientCA and the name
	// ClientName is accepted.
	Listener    net.Listener
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	ClientCA    *x509.CertPool
	ClientName  string
	Log         *slog.Logger
}

// Node is a node of the cluster. Run runs it.
type Node struct {
	cfg      Config
	log      *slog.Logger
	client   kubernetes.Interface
	source   source
	host     isolation.Host
	shims    *supervisor.Supervisor
	program  string // what Spec.Program of a shim needs
	events   record.EventRecorder
	capacity corev1.ResourceList
	api      endpoint
	hostIP   string
	network  *network // nil: pods use the address of the host
	pods     corelisters.PodLister
	services services

	mu             sync.Mutex
	workers        map[types.UID]*worker
	subscribers    map[*supervisor.Shim]func(supervisor.Update)
	pendingUpdates map[*supervisor.Shim][]supervisor.Update // updates without a subscriber yet
	goroutines     sync.WaitGroup                           // workers and retries of clearPod
	ready          bool
}

// endpoint is the address of a server.
type endpoint struct{ host, port string }

// New returns a Node that has not been started.
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
		workers: map[types.UID]*worker{}, subscribers: map[*supervisor.Shim]func(supervisor.Update){}, pendingUpdates: map[*supervisor.Shim][]supervisor.Update{},
	}, nil
}

// usesMounts reports whether containers have their own view of the file systems.
func (n *Node) usesMounts() bool { return n.host.Allows(isolation.FactMountNamespace) }

// Run runs the node until ctx is done. Then it stops its containers, as at a shutdown of the
// machine. If the process is killed, the containers keep running and the next node adopts them.
func (n *Node) Run(ctx context.Context) (err error) {
	if err := os.MkdirAll(n.podsDir(), 0o711); err != nil {
		return err
	}
	if n.shims, err = supervisor.New(); err != nil {
		return err
	}
	defer n.shims.Close()
	release, err := n.holdProgram()
	if err != nil {
		return err
	}
	defer release()
	n.host = isolation.ProbeHost(ownerName(n.cfg.Dir), n.cfg.Dir)
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
	go n.dispatchUpdates(life)
	if err := n.serveAPI(life); err != nil {
		return err
	}
	if err := n.registerNode(ctx); err != nil {
		return err
	}
	go n.keepLease(ctx)
	if err := n.watchPods(life); err != nil {
		return err
	}
	<-ctx.Done()
	return n.shutDown(stop)
}

// holdProgram opens the agent's program, so that shims are of this version even if its file is replaced:
// those of another version may not understand what they receive. The caller calls release at the end.
func (n *Node) holdProgram() (release func(), err error) {
	f, err := os.OpenFile(n.cfg.Program, unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("open the agent's program: %w", err)
	}
	n.program = fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	return func() { _ = f.Close() }, nil
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

// shutDownWait bounds how long containers may take to exit when the node stops.
const shutDownWait = 10 * time.Second

// shutDown stops the containers without writing their statuses. The next node reads how they
// ended.
func (n *Node) shutDown(stop func()) error {
	stop()
	n.goroutines.Wait()
	n.shims.StopAll(stopReason)
	for until := time.Now().Add(shutDownWait); n.shims.ShimCount() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			return fmt.Errorf("%d containers are still running after %v", n.shims.ShimCount(), shutDownWait)
		}
	}
	return nil
}

func (n *Node) podsDir() string { return filepath.Join(n.cfg.Dir, "pods") }

func (n *Node) podPathsFor(uid types.UID) podPaths {
	return podPaths(filepath.Join(n.podsDir(), string(uid)))
}

// watchPods starts a worker for each pod that is bound to the node.
func (n *Node) watchPods(ctx context.Context) error {
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
		AddFunc:    func(o any) { n.handlePod(ctx, o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { n.handlePod(ctx, o.(*corev1.Pod)) },
		DeleteFunc: func(o any) { n.handleDeleted(o) },
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

// handlePod passes a pod to its worker, which is started the first time.
func (n *Node) handlePod(ctx context.Context, pod *corev1.Pod) {
	n.mu.Lock()
	w := n.workers[pod.UID]
	if w == nil {
		w = n.startWorker(pod)
		n.goroutines.Go(func() {
			if w.setUpWithRetries(ctx) {
				w.runLoop(ctx)
			}
		})
	}
	n.mu.Unlock()
	w.enqueue(func(context.Context) { w.setPod(pod) })
	if pod.Spec.Subdomain != "" {
		n.updateHosts()
	}
}

// startWorker creates the worker of a pod.
func (n *Node) startWorker(pod *corev1.Pod) *worker {
	w := &worker{
		podState: podState{pod: pod, records: map[string]*containerRecord{}, hostIP: n.hostIP, startedAt: time.Now()},
		node:     n, source: newTokens(n.source, time.Now), paths: n.podPathsFor(pod.UID), key: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name},
		shims: map[string]*supervisor.Shim{}, probes: map[probeKey]context.CancelFunc{}, wake: make(chan struct{}, 1),
	}
	if pod.Status.StartTime != nil {
		w.startedAt = pod.Status.StartTime.Time
	}
	n.workers[pod.UID] = w
	return w
}

// setUpRetryDelay is the delay before setUp or removeOrphan is retried.
const setUpRetryDelay = 5 * time.Second

// setUpWithRetries calls setUp until it succeeds. It returns false if ctx is done before.
func (w *worker) setUpWithRetries(ctx context.Context) bool {
	for {
		err := w.setUp()
		if err == nil {
			return true
		}
		w.node.log.Error("cannot set up a pod, will try again", "pod", w.key, "error", err)
		w.node.recordEvent(w.pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", err.Error())
		select {
		case <-ctx.Done():
			return false
		case <-time.After(setUpRetryDelay):
		}
	}
}

// setUp restores what the node's directory has about a pod.
func (w *worker) setUp() error {
	w.unsupported = explainUnsupported(w.pod, w.node.usesMounts())
	if isTerminal(w.pod) || w.pod.DeletionTimestamp != nil {
		w.unsupported = "" // that was decided before
	}
	if err := os.MkdirAll(string(w.paths), 0o711); err != nil {
		return err
	}
	if err := w.assignAddress(); err != nil {
		return err
	}
	return w.adoptContainers()
}

// handleDeleted passes the deletion of a pod to its worker.
func (n *Node) handleDeleted(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	pod := o.(*corev1.Pod)
	n.mu.Lock()
	w := n.workers[pod.UID]
	n.mu.Unlock()
	if w != nil {
		w.enqueue(func(context.Context) {
			w.isDeleted = true
			w.shortenGrace(time.Second)
		})
	}
}

// removePod removes everything of a pod from the node.
func (n *Node) removePod(ctx context.Context, w *worker) {
	n.mu.Lock()
	delete(n.workers, w.pod.UID)
	n.mu.Unlock()
	n.network.releaseAddress(w.podIP, w.pod.UID)
	n.clearPod(ctx, w.pod.UID)
	if w.pod.Spec.Subdomain != "" {
		n.updateHosts()
	}
}
