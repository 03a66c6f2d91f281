// Package controlplane runs a Kubernetes control plane in this process: etcd, kube-apiserver,
// kube-scheduler and the controllers of kube-controller-manager that K8s4r's objects need.
//
// kube-apiserver keeps its settings in package variables, so a process can run one control plane,
// once.
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

	"k8s4r.io/k8s4r/standalone/internal/auditlog"
	"k8s4r.io/k8s4r/standalone/internal/component"
	_ "k8s4r.io/k8s4r/standalone/internal/quiet"
)

// Config is the configuration of a control plane.
type Config struct {
	// Dir is the data directory. No other process may use it at the same time.
	Dir string
	// Listener is the open port of the API server. It is opened by the caller so that a port in use
	// is reported before anything has started.
	Listener net.Listener
	// Lifetime is that of certificates, which are renewed when a third of it is left. If zero,
	// DefaultLifetime.
	Lifetime time.Duration
	// OnCertificates is called with all certificates, by their names, before the start and after each
	// renewal. If nil, it is not called.
	OnCertificates func(map[string]*x509.Certificate)
	// Warn logs an error for the user.
	Warn func(message string, err error)
}

// ControlPlane is a control plane with its keys and certificates. Its components must be started in
// the order Certificates, Etcd, APIServer, ControllerManager, Scheduler and stopped in reverse:
// during its shutdown the API server still needs etcd.
type ControlPlane struct {
	Certificates      component.Monitored // renews them
	Etcd              component.Monitored
	APIServer         component.Monitored
	ControllerManager component.Monitored
	Scheduler         component.Monitored

	// Kubeconfig is the path of the file with the administrator's credentials.
	Kubeconfig string
	// Client is the configuration of this process: also an administrator, but another user than that of
	// Kubeconfig, for the audit log. It has no client-side rate limits.
	Client *rest.Config
	// Kubelet is what the kubelet of this machine's node needs.
	Kubelet Kubelet
}

// Kubelet has the credentials by which the node's kubelet and the API server authenticate each
// other.
type Kubelet struct {
	// Certificate returns the current serving certificate.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCA verifies the API server's client certificate, whose name is ClientName.
	ClientCA   *x509.CertPool
	ClientName string
}

// New creates or renews keys and certificates, writes the kubeconfig and redirects the logs of the
// embedded programs to files in Dir.
func New(c Config) (*ControlPlane, error) {
	logs, err := redirectLogs(filepath.Join(c.Dir, "logs"))
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{Kubeconfig: filepath.Join(c.Dir, "kubeconfig")}
	renewer := newRenewer(c, cp.Kubeconfig)
	if err := renewer.renew(); err != nil {
		return nil, err
	}
	creds := renewer.current()
	cp.Certificates = component.NewBackground(renewer.run, nil)
	if cp.Client, err = clientOf(creds.process); err != nil {
		return nil, err
	}
	cp.Kubelet = Kubelet{Certificate: renewer.kubeletCertificate, ClientCA: x509.NewCertPool(), ClientName: KubeletClient}
	cp.Kubelet.ClientCA.AddCert(creds.ca.cert)
	return cp, cp.addComponents(c, creds, logs)
}

// clientOf returns the configuration in a kubeconfig, without client-side rate limits.
func clientOf(kubeconfig string) (*rest.Config, error) {
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	c.QPS = -1
	return c, nil
}

// AuditDir returns the directory of the audit log in a data directory.
func AuditDir(dataDir string) string { return filepath.Join(dataDir, "audit") }

func (cp *ControlPlane) addComponents(c Config, creds credentials, logs logFiles) error {
	etcd, err := newEtcd(filepath.Join(c.Dir, "etcd"), logs.etcd)
	if err != nil {
		return err
	}
	cp.Etcd = etcd
	audit, err := auditlog.WriteConfig(AuditDir(c.Dir))
	if err != nil {
		return err
	}
	if cp.APIServer, err = newAPIServer(c.Listener, etcd.clientEndpoint(), creds, cp.Client, audit); err != nil {
		return err
	}
	if cp.ControllerManager, err = newControllerManager(creds, cp.Client); err != nil {
		return err
	}
	cp.Scheduler = newScheduler(creds)
	return nil
}
