package hostnode

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/protocol/version"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

const (
	leaseNamespace     = corev1.NamespaceNodeLease
	leaseSeconds       = int32(40)
	leaseRenewInterval = 10 * time.Second
	// statusInterval is the interval at which the Node's status is written even if it has not
	// changed.
	statusInterval = 5 * time.Minute
	// registerRetry is the time between two attempts to register the node.
	registerRetry = time.Second
)

// apiEndpoint returns the address of the API server for processes of this machine.
func apiEndpoint(c *rest.Config) (endpoint, error) {
	u, err := url.Parse(c.Host)
	if err != nil {
		return endpoint{}, fmt.Errorf("API server %q: %w", c.Host, err)
	}
	return endpoint{u.Hostname(), cmp.Or(u.Port(), "443")}, nil
}

// ownerName distinguishes the cgroups of this node from those of other nodes on the same machine.
func ownerName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "hostnode-" + hex.EncodeToString(sum[:6])
}

// maxPods is the default number of pods of a node.
const maxPods = 110

// capacityOf returns the capacity of the machine with the configured values.
func (n *Node) capacityOf() (corev1.ResourceList, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, os.NewSyscallError("sysinfo", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(n.cfg.Dir, &disk); err != nil {
		return nil, os.NewSyscallError("statfs", err)
	}
	c := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(info.Totalram)*int64(info.Unit), resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(disk.Blocks)*disk.Bsize, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	maps.Copy(c, n.cfg.Capacity)
	return c, nil
}

// registerNode registers the node, and repeats that after an error until ctx ends: the client closes
// its connections when it gets another certificate, and the API server may be about to restart.
func (n *Node) registerNode(ctx context.Context) error {
	logged := ""
	return wait.PollUntilContextCancel(ctx, registerRetry, true, func(ctx context.Context) (bool, error) {
		err := n.writeRegistration(ctx)
		if err != nil && ctx.Err() == nil && logged != err.Error() { // not for each retry
			logged = err.Error()
			n.log.Warn("cannot register the node, will try again", "error", err)
		}
		return err == nil, nil
	})
}

// writeRegistration creates the Node object, or takes over that of an earlier node.
func (n *Node) writeRegistration(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, n.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.cfg.Name, Labels: n.nodeLabels()}}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("register the node: %w", err)
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	maps.Copy(node.Labels, n.nodeLabels())
	// An admission plugin adds the not-ready taint to new nodes. The controller that would remove
	// it does not run here.
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	if _, err := nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("register the node: %w", err)
	}
	if err := n.renewLease(ctx); err != nil {
		return fmt.Errorf("create the lease of the node: %w", err)
	}
	if err := n.writeNode(ctx); err != nil {
		return fmt.Errorf("write the status of the node: %w", err)
	}
	return nil
}

func (n *Node) nodeLabels() map[string]string {
	l := map[string]string{
		corev1.LabelHostname: n.cfg.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		"node.k8s4r.io/kind": "hostnode",
	}
	maps.Copy(l, n.cfg.Labels)
	return l
}

// keepLease renews the lease and the status of the Node until ctx is done.
func (n *Node) keepLease(ctx context.Context) {
	ticks := time.NewTicker(leaseRenewInterval)
	defer ticks.Stop()
	writtenAt := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		err := n.renewLease(ctx)
		if err == nil && time.Since(writtenAt) >= statusInterval {
			writtenAt = time.Now()
			err = n.writeNode(ctx)
		}
		if err != nil && ctx.Err() == nil {
			n.log.Warn("cannot renew the lease of the node, will try again", "error", err)
		}
	}
}

func (n *Node) renewLease(ctx context.Context) error {
	leases := n.client.CoordinationV1().Leases(leaseNamespace)
	now, seconds := metav1.NewMicroTime(time.Now()), leaseSeconds
	spec := coordv1.LeaseSpec{HolderIdentity: &n.cfg.Name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	lease, err := leases.Get(ctx, n.cfg.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.cfg.Name, Namespace: leaseNamespace}, Spec: spec}, metav1.CreateOptions{})
	case err == nil:
		lease.Spec = spec
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	return err
}

// writeNode writes the status of the Node.
func (n *Node) writeNode(ctx context.Context) error {
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.cfg.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s := &node.Status
	s.Capacity, s.Allocatable = n.capacity, n.capacity
	s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.hostIP}, {Type: corev1.NodeHostName, Address: n.cfg.Name}}
	if n.cfg.Listener != nil {
		s.DaemonEndpoints.KubeletEndpoint.Port = int32(n.cfg.Listener.Addr().(*net.TCPAddr).Port)
	}
	s.NodeInfo = nodeInfo()
	for _, c := range []struct {
		kind            corev1.NodeConditionType
		is              corev1.ConditionStatus
		reason, message string
	}{
		{corev1.NodeReady, corev1.ConditionTrue, "HostNodeReady", "hostnode runs pods as processes of this machine"},
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, "HostNodeHasSufficientMemory", "hostnode does not evict pods"},
		{corev1.NodeDiskPressure, corev1.ConditionFalse, "HostNodeHasNoDiskPressure", "hostnode does not evict pods"},
		{corev1.NodePIDPressure, corev1.ConditionFalse, "HostNodeHasSufficientPID", "hostnode does not evict pods"},
	} {
		setNodeCondition(s, corev1.NodeCondition{Type: c.kind, Status: c.is, Reason: c.reason, Message: c.message, LastHeartbeatTime: metav1.Now()})
	}
	_, err = n.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func setNodeCondition(s *corev1.NodeStatus, want corev1.NodeCondition) {
	want.LastTransitionTime = want.LastHeartbeatTime
	i := slices.IndexFunc(s.Conditions, func(o corev1.NodeCondition) bool { return o.Type == want.Type })
	if i < 0 {
		s.Conditions = append(s.Conditions, want)
		return
	}
	if s.Conditions[i].Status == want.Status {
		want.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = want
}

func nodeInfo() corev1.NodeSystemInfo {
	id, _ := os.ReadFile("/etc/machine-id")
	var name unix.Utsname
	_ = unix.Uname(&name)
	return corev1.NodeSystemInfo{
		MachineID: strings.TrimSpace(string(id)), BootID: proc.BootID(), KernelVersion: unix.ByteSliceToString(name.Release[:]),
		OSImage: osImage(), ContainerRuntimeVersion: "hostnode://" + version.Version, KubeletVersion: version.Version,
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
}

func osImage() string {
	b, _ := os.ReadFile("/etc/os-release")
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"`)
		}
	}
	return runtime.GOOS
}
