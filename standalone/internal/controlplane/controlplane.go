// Package controlplane runs a real Kubernetes control plane inside this
// process: etcd, kube-apiserver, kube-scheduler and those controllers of
// kube-controller-manager that K8s4r's objects need.
//
// kube-apiserver keeps its settings in package variables, so a process can run
// one control plane, once.
package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"k8s4r.io/k8s4r/standalone/internal/component"
	_ "k8s4r.io/k8s4r/standalone/internal/quiet"
)

// Config says where a control plane lives.
type Config struct {
	// Dir is the data directory; nobody else may use it at the same time.
	Dir string
	// Listener is the TCP port of the API server, already open, so that a port
	// that is taken is known before anything has started.
	Listener net.Listener
	// Now is the clock for certificates; nil: time.Now.
	Now func() time.Time
}

// ControlPlane is a control plane that has its keys but does not run yet. Its
// components start in the order Etcd, APIServer, ControllerManager, Scheduler and
// must stop in reverse: the API server waits for its etcd while it shuts down.
type ControlPlane struct {
	Etcd              component.Mortal
	APIServer         component.Mortal
	ControllerManager component.Mortal
	Scheduler         component.Mortal

	// Kubeconfig is the file with the administrator's credentials.
	Kubeconfig string
	// Client is what Kubeconfig says, without a limit on the client's side.
	Client *rest.Config
	// Kubelet is what the kubelet of this machine's node needs.
	Kubelet Kubelet
}

// Kubelet is how the kubelet of this machine's node and the API server know each
// other.
type Kubelet struct {
	Certificate tls.Certificate
	// ClientCA is who vouches for the API server, which calls itself ClientName.
	ClientCA   *x509.CertPool
	ClientName string
}

// New makes or renews keys and certificates, writes the kubeconfig and turns
// the logs of the embedded programs to files in Dir.
func New(c Config) (*ControlPlane, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	logs, err := redirectLogs(filepath.Join(c.Dir, "logs"))
	if err != nil {
		return nil, err
	}
	creds, err := newCredentials(filepath.Join(c.Dir, "pki"), c.Listener.Addr().(*net.TCPAddr), c.Now)
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{Kubeconfig: filepath.Join(c.Dir, "kubeconfig")}
	if err := writeKubeconfig(cp.Kubeconfig, creds.admin); err != nil {
		return nil, err
	}
	cp.Client, err = clientcmd.NewDefaultClientConfig(*creds.admin, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	cp.Client.QPS = -1
	cp.Kubelet = Kubelet{Certificate: creds.kubelet.tls(), ClientCA: x509.NewCertPool(), ClientName: KubeletClient}
	cp.Kubelet.ClientCA.AddCert(creds.ca.cert)
	return cp, cp.addComponents(c, creds, logs)
}

func (cp *ControlPlane) addComponents(c Config, creds credentials, logs logFiles) error {
	etcd, err := newEtcd(filepath.Join(c.Dir, "etcd"), logs.etcd)
	if err != nil {
		return err
	}
	cp.Etcd = etcd
	if cp.APIServer, err = newAPIServer(c.Listener, etcd.endpoint(), creds, cp.Client); err != nil {
		return err
	}
	if cp.ControllerManager, err = newControllerManager(creds, cp.Client); err != nil {
		return err
	}
	cp.Scheduler = newScheduler(creds)
	return nil
}
