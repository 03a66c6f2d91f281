package controlplane

import (
	"fmt"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"k8s4r.io/k8s4r/standalone/internal/auditlog"
	"k8s4r.io/k8s4r/standalone/internal/datadir"
)

const (
	serviceRange = "10.96.0.0/16"
	// serviceIP is the first address of serviceRange: the API server assigns it to the Service
	// "kubernetes".
	serviceIP = "10.96.0.1"
)

// credentials are the files with which the servers and their clients authenticate.
type credentials struct {
	ca, serving       pair
	serviceAccountKey string // file
	admin             *api.Config
	process           *api.Config // of this process
	controllerManager string      // kubeconfig file
	scheduler         string      // kubeconfig file
	kubeletClient     pair        // of the API server, towards a kubelet
	kubelet           pair        // the kubelet's serving certificate
}

// newCredentials reads or creates all credentials in dir for a server at address.
func newCredentials(dir string, address *net.TCPAddr, now func() time.Time) (credentials, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return credentials{}, fmt.Errorf("keys: %w", err)
	}
	p := pki{dir: dir, now: now}
	ca, err := p.loadCA()
	if err != nil {
		return credentials{}, err
	}
	c := credentials{ca: ca}
	if c.serving, err = p.loadServing(ca, servingNames(), servingAddresses(address.IP)); err != nil {
		return credentials{}, err
	}
	if c.serviceAccountKey, err = p.serviceAccountKey(); err != nil {
		return credentials{}, err
	}
	return c, c.addClients(p, serverURL(address))
}

func (c *credentials) addClients(p pki, server string) error {
	admin, err := p.loadClient("admin", c.ca, "k8s4r-admin", "system:masters")
	if err != nil {
		return err
	}
	c.admin = newKubeconfig(server, c.ca, admin)
	process, err := p.loadClient("up", c.ca, auditlog.ProcessUser, "system:masters")
	if err != nil {
		return err
	}
	c.process = newKubeconfig(server, c.ca, process)
	manager, err := p.loadClient("controller-manager", c.ca, "system:kube-controller-manager")
	if err != nil {
		return err
	}
	c.controllerManager = p.filePath("controller-manager.kubeconfig")
	if err := writeKubeconfig(c.controllerManager, newKubeconfig(server, c.ca, manager)); err != nil {
		return err
	}
	scheduler, err := p.loadClient("scheduler", c.ca, "system:kube-scheduler")
	if err != nil {
		return err
	}
	c.scheduler = p.filePath("scheduler.kubeconfig")
	if err := writeKubeconfig(c.scheduler, newKubeconfig(server, c.ca, scheduler)); err != nil {
		return err
	}
	return c.addKubelet(p)
}

// KubeletClient is the common name of the API server's client certificate for kubelets.
const KubeletClient = "kube-apiserver-kubelet-client"

func (c *credentials) addKubelet(p pki) (err error) {
	if c.kubeletClient, err = p.loadClient("kubelet-client", c.ca, KubeletClient); err != nil {
		return err
	}
	c.kubelet, err = p.loadKubelet(c.ca)
	return err
}

func servingNames() []string {
	names := []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		names = append(names, host)
	}
	return names
}

// servingAddresses returns the addresses at which clients reach the server. For an unspecified bind
// address, these are all addresses of this machine.
func servingAddresses(bind net.IP) []net.IP {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP)}
	if !bind.IsUnspecified() {
		return append(ips, bind)
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ips = append(ips, n.IP)
		}
	}
	return ips
}

// serverURL returns the URL of the server for clients on this machine.
func serverURL(address *net.TCPAddr) string {
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, fmt.Sprint(address.Port))
}

func newKubeconfig(server string, ca, client pair) *api.Config {
	const name = "k8s4r"
	c := api.NewConfig()
	c.Clusters[name] = &api.Cluster{Server: server, CertificateAuthorityData: ca.certPEM}
	c.AuthInfos[name] = &api.AuthInfo{ClientCertificateData: client.certPEM, ClientKeyData: client.keyPEM}
	c.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return c
}

func writeKubeconfig(path string, c *api.Config) error {
	data, err := clientcmd.Write(*c)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return datadir.WriteFile(path, data)
}
